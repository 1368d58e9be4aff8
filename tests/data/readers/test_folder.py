from pathlib import Path

import pytest

from conformance.reader_suite import Example, ReaderSuite, SplitReaderSuite, draw
from manylabel.data import files, folder
from manylabel.errors import DataError


class RubbishInPlaceOfAImage:
    """Folders are listed, so that a missing image is not in the dataset: a spoilt one must still be."""

    def spoil(self, dataset):
        dataset.images[0].write_text("not an image")


class TestFolder(RubbishInPlaceOfAImage, ReaderSuite):
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


class TestFolderWithSplits(RubbishInPlaceOfAImage, SplitReaderSuite):
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
    with pytest.raises(DataError, match="no split 'val', only the labels cat"):
        folder(tmp_path, split="val")


def test_names_images_outside_the_labels_folders(tmp_path):
    draw(tmp_path / "cat" / "1.jpg")
    draw(tmp_path / "cover.jpg")
    with pytest.raises(DataError, match=r"cover\.jpg.*outside the label folders"):
        folder(tmp_path)


def test_rejects_a_folder_without_images(tmp_path):
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match=r"no images in .*; found: cat"):
        folder(tmp_path)


def test_rejects_a_file(tmp_path):
    with pytest.raises(DataError, match="is a file"):
        folder(draw(tmp_path / "a.jpg"))


def names(dataset):
    return [dataset.images.name(index) for index in range(len(dataset))]


class TestFiles(ReaderSuite):
    format = "files"
    reader = staticmethod(files)

    def build(self, tmp_path):
        root = tmp_path / "photos"
        for name in ("b.jpg", "a, b.png", "old/c.webp", 'new\nline "x".gif'):
            draw(root / name)
        (root / "notes.txt").touch()
        listed = ["a, b.png", "b.jpg", 'new\nline "x".gif', "old/c.webp"]
        return Example(root, names=listed, labels=[], values=[[]] * 4, known=[[]] * 4)

    def spoil(self, dataset):
        dataset.images[0].write_text("not an image")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    for name in ("a.jpg", "b.png", "sub/c.jpg"):
        draw(tmp_path / "photos" / name)
    (tmp_path / "photos" / "raw.data").write_bytes((tmp_path / "photos" / "a.jpg").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("photos/a.jpg", ["photos/a.jpg"]),
        (Path("photos/raw.data"), ["photos/raw.data"]),
        ("photos/*", ["photos/a.jpg", "photos/b.png"]),
        ("photos/**/*.jpg", ["photos/a.jpg", "photos/sub/c.jpg"]),
        (["photos/sub", "photos/a.jpg"], ["photos/sub/c.jpg", "photos/a.jpg"]),
        (["photos/a.jpg", "photos/*.jpg"], ["photos/a.jpg"]),
        (["photos"], ["a.jpg", "b.png", "sub/c.jpg"]),
    ],
)
def test_takes_files_folders_patterns_and_lists(photos, paths, expected):
    dataset = files(paths)
    assert names(dataset) == expected
    assert all(dataset.images[index].is_file() for index in range(len(dataset)))


def test_takes_a_pattern_from_the_root(photos):
    assert names(files(f"{photos}/*.png")) == [str(photos / "b.png")]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(photos):
    draw(photos / "x[1].jpg")
    assert names(files("photos/x[1].jpg")) == ["photos/x[1].jpg"]


def test_keeps_a_missing_image_of_a_list_for_whoever_opens_it(photos):
    assert names(files(["photos/a.jpg", "photos/gone.jpg"])) == ["photos/a.jpg", "photos/gone.jpg"]


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ("photos/gone.jpg", r"gone\.jpg does not exist; .*vailable: a\.jpg, .* \(in photos\)"),
        (["photos/a.jpg", "photoz"], "did you mean 'photos'"),
        ("photos/*.tif", r"no images in photos/\*.tif"),
        ([], "the list of images is empty"),
    ],
)
def test_says_what_is_there_when_nothing_is_found(photos, paths, reason):
    with pytest.raises(DataError, match=reason):
        files(paths)


def test_says_what_is_there_in_a_folder_without_images(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match=r"no images in .*\.jpg.*found: notes\.txt"):
        files(tmp_path)
