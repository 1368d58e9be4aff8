import pytest

from conformance.reader_suite import Example, ReaderSuite, SplitReaderSuite, draw
from manylabel.data import folder
from manylabel.errors import DataError


class RubbishInPlaceOfAPicture:
    """Folders are listed, so that a missing picture is not in the data set: a spoilt one must still be."""

    def spoil(self, dataset):
        dataset.pictures[0].write_text("not an image")


class TestFolder(RubbishInPlaceOfAPicture, ReaderSuite):
    format = "folder"
    reader = staticmethod(folder)
    single_label = True

    def build(self, tmp_path):
        root = tmp_path / "pets"
        for name in ("dog/b.PNG", "dog/old photos/a.jpg", "cat/ü 'quoted'.jpeg"):
            draw(root / name)
        (root / "empty").mkdir()
        (root / ".cache").mkdir()
        (root / "dog" / "notes.txt").touch()
        return Example(
            root,
            names=["cat/ü 'quoted'.jpeg", "dog/b.PNG", "dog/old photos/a.jpg"],
            labels=["cat", "dog", "empty"],
            values=[[1, 0, 0], [0, 1, 0], [0, 1, 0]],
            known=[[1, 1, 1]] * 3,
        )


class TestFolderWithSplits(RubbishInPlaceOfAPicture, SplitReaderSuite):
    format = "folder"
    reader = staticmethod(folder)
    single_label = True

    def build(self, tmp_path):
        root = tmp_path / "imagenet"
        for name in ("train/cat/1.jpg", "train/dog/1.jpg", "val/cow/1.jpg", "devkit/readme.jpg"):
            draw(root / name)
        return Example(
            root,
            names=["train/cat/1.jpg", "train/dog/1.jpg", "val/cow/1.jpg"],
            labels=["cat", "cow", "dog"],
            values=[[1, 0, 0], [0, 0, 1], [0, 1, 0]],
            known=[[1, 1, 1]] * 3,
            splits={"train": [0, 1], "val": [2]},
        )


def test_a_label_may_be_called_train(tmp_path):
    for name in ("bus/1.jpg", "train/steam/1.jpg"):
        draw(tmp_path / name)
    dataset = folder(tmp_path)
    assert list(dataset.labels) == ["bus", "train"]
    assert dataset.splits == {}


def test_one_split_alone_is_a_split(tmp_path):
    draw(tmp_path / "train" / "cat" / "1.jpg")
    draw(tmp_path / "test" / "1.jpg")  # without labels' folders: nothing to read here
    assert list(folder(tmp_path).splits) == ["train"]


def test_asking_for_a_split_where_there_is_none_lists_the_labels(tmp_path):
    draw(tmp_path / "cat" / "1.jpg")
    with pytest.raises(DataError, match="no split 'val'; it has none, but these labels: cat"):
        folder(tmp_path, split="val")


def test_names_pictures_outside_the_labels_folders(tmp_path):
    draw(tmp_path / "cat" / "1.jpg")
    draw(tmp_path / "cover.jpg")
    with pytest.raises(DataError, match=r"cover\.jpg.*outside the labels' folders"):
        folder(tmp_path)


def test_rejects_a_folder_without_pictures(tmp_path):
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match=r"no pictures in .*; in it there is: cat"):
        folder(tmp_path)


def test_rejects_a_file(tmp_path):
    with pytest.raises(DataError, match="is a file"):
        folder(draw(tmp_path / "a.jpg"))
