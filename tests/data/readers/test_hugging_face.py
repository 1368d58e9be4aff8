import sys

import datasets
import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import hugging_face, load
from manylabel.errors import DataError, MissingExtraError

CLASSES = datasets.ClassLabel(names=["dog", "cat"])
MANY_CLASSES = datasets.Sequence(CLASSES)
TEXTS = datasets.Sequence(datasets.Value("string"))


@pytest.fixture(autouse=True)
def no_progress_bars():
    datasets.disable_progress_bars()


def table(tmp_path, column, feature, values):
    """Return a table of as many images as there are values."""
    encoded = draw(tmp_path / "made.png").read_bytes()
    features = datasets.Features({"image": datasets.Image(), column: feature})
    rows = {"image": [{"bytes": encoded, "path": None}] * len(values), column: values}
    return datasets.Dataset.from_dict(rows, features=features)


class HuggingFaceSuite(SplitReaderSuite):
    format = "hf"
    reader = staticmethod(hugging_face)

    def save(self, tmp_path, column, feature, **values):
        parts = {split: table(tmp_path, column, feature, rows) for split, rows in values.items()}
        datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
        return tmp_path / "saved"

    def test_reads_although_a_image_cannot_be_decoded(self, tmp_path):
        rows = {"image": [{"bytes": b"not an image", "path": None}], "tags": [["cat"]]}
        made = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
        made.save_to_disk(tmp_path / "spoilt")
        assert hugging_face(tmp_path / "spoilt").images[0] == b"not an image"


class TestOneClass(HuggingFaceSuite):
    single_label = True

    def build(self, tmp_path):
        return Example(
            self.save(tmp_path, "label", CLASSES, train=[1, 0], test=[-1, None]),
            names=["train/0", "train/1", "test/0", "test/1"],
            labels=["dog", "cat"],
            values=[[0, 1], [1, 0], [0, 0], [0, 0]],
            known=[[1, 1], [1, 1], [0, 0], [0, 0]],
            splits={"train": [0, 1], "test": [2, 3]},
        )


class TestManyClasses(HuggingFaceSuite):
    def build(self, tmp_path):
        return Example(
            self.save(tmp_path, "objects", MANY_CLASSES, train=[[1, 0], [], None], test=[[1, 1]]),
            names=["train/0", "train/1", "train/2", "test/0"],
            labels=["dog", "cat"],
            values=[[1, 1], [0, 0], [0, 0], [0, 1]],
            known=[[1, 1], [1, 1], [0, 0], [1, 1]],
            splits={"train": [0, 1, 2], "test": [3]},
            options={"label": "objects"},
        )


class TestTexts(HuggingFaceSuite):
    def build(self, tmp_path):
        return Example(
            self.save(tmp_path, "tags", TEXTS, train=[["sofa", "cat"], []], test=[["ant"]]),
            names=["train/0", "train/1", "test/0"],
            labels=["ant", "cat", "sofa"],
            values=[[0, 1, 1], [0, 0, 0], [1, 0, 0]],
            known=[[1, 1, 1]] * 3,
            splits={"train": [0, 1], "test": [2]},
        )


def test_a_table_saved_alone_is_the_split_train(tmp_path):
    table(tmp_path, "tags", TEXTS, [["a"], ["b"], ["c"]]).select([2, 0]).save_to_disk(tmp_path / "saved")
    dataset = hugging_face(tmp_path / "saved")
    assert list(dataset.splits) == ["train"]
    assert dataset.targets.dense()[0].tolist() == [[0, 1], [1, 0]]


def test_reads_a_folder_of_data_files(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "files").mkdir()
    table(tmp_path, "tags", TEXTS, [["a", "b"]]).to_parquet(tmp_path / "files" / "train.parquet")
    dataset = load(f"hf:{tmp_path / 'files'},split=train")
    assert list(dataset.labels) == ["a", "b"]
    assert dataset.images[0].startswith(b"\x89PNG")


def test_reads_images_that_the_table_only_points_to(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for name in ("cat", "dog"):
        draw(tmp_path / "files" / name / "a.png")
    dataset = hugging_face(tmp_path / "files")
    assert list(dataset.labels) == ["cat", "dog"]
    assert dataset.images[0].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "several columns could be the labels.*available: label, tags"),
        ({"label": "tag"}, "no label column 'tag'.*did you mean 'tags'"),
        ({"label": "width"}, "no label column 'width'.*available: label, tags"),
        ({"image": "photo", "label": "tags"}, "no image column 'photo'.*available: image"),
    ],
)
def test_lists_the_columns_there_are(tmp_path, options, reason):
    made = table(tmp_path, "tags", TEXTS, [["a"]]).add_column("width", [5])
    made = made.add_column("label", [0]).cast_column("label", CLASSES)
    made.save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=reason):
        hugging_face(tmp_path / "saved", **options)


def test_says_why_a_dataset_cannot_be_opened(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"cannot open dataset .*empty"):
        hugging_face(tmp_path / "empty")


def test_names_the_extra_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*manylabel\[huggingface\]"):
        hugging_face(tmp_path)
