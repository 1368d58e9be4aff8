"""The reader of Open Images, on folders of its official form."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import open_images
from manylabel.errors import ConfigError, DataError

HEADER = "ImageID,Source,LabelName,Confidence"
TRAIN = "oidv6-train-annotations-human-imagelabels.csv"
VALIDATION = "validation-annotations-human-imagelabels.csv"


def write_rows(file: Path, *rows: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([HEADER, *rows]) + "\n")


class TestOpenImages(SplitReaderSuite):
    format = "open_images"
    reader = staticmethod(open_images)

    def build(self, tmp_path: Path) -> Example:
        root = tmp_path / "oi"
        write_rows(root / TRAIN, "b,verification,/m/2,1", "a,verification,/m/1,0", "a,crowdsource,/m/2,1.0")
        write_rows(root / VALIDATION, "c,verification,/m/1,1", "c,verification,/m/9,1", "d,verification,/m/9,1")
        (root / "class-descriptions.csv").write_text('/m/1,Cat\n/m/2,"Dog, small"\n/m/3,Owl\n/m/9,Thing\n')
        (root / "classes-trainable.txt").write_text("/m/3\n/m/2\n/m/1\n")
        for name in ("train/a.jpg", "train/b.jpg", "validation/c.jpg"):
            draw(root / name)
        return Example(
            root,
            names=["train/a.jpg", "train/b.jpg", "validation/c.jpg"],
            labels=["/m/3", "/m/2", "/m/1"],
            values=[[0, 1, 0], [0, 1, 0], [0, 0, 1]],
            known=[[0, 1, 1], [0, 1, 0], [0, 0, 1]],
            splits={"train": [0, 1], "validation": [2]},
        )

    def test_shows_the_class_descriptions(self, dataset, example):
        assert dataset.labels.display("/m/2") == "Dog, small"

    def test_val_is_short_for_validation(self, example):
        assert list(open_images(example.path, split="val").splits) == ["validation"]


class TestOpenImagesWithoutLists(SplitReaderSuite):
    """Without a list of classes, the labels are those of all splits, so that the splits agree."""

    format = "open_images"
    reader = staticmethod(open_images)

    def build(self, tmp_path: Path) -> Example:
        root = tmp_path / "oi"
        write_rows(root / "annotations" / "oidv7-val-annotations-human-imagelabels.csv", "a,verification,/m/1,0")
        write_rows(root / "annotations" / "test-annotations-human-imagelabels.csv", "b,verification,/m/2,1")
        draw(root / "images" / "a.jpg")
        draw(root / "images" / "b.jpg")
        return Example(
            root,
            names=["a.jpg", "b.jpg"],
            labels=["/m/1", "/m/2"],
            values=[[0, 0], [0, 1]],
            known=[[1, 0], [0, 1]],
            splits={"validation": [0], "test": [1]},
            options={"images": "images"},
        )


@pytest.mark.slow
def test_agrees_with_a_slow_reference_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("manylabel.data.readers.open_images"), "BLOCK_BYTES", 64)
    generator = np.random.default_rng(0)
    said: dict[tuple[str, str], set[int]] = {}
    rows = []
    for _ in range(300):
        image, label, value = f"{generator.integers(40):04x}", f"/m/{generator.integers(9)}", generator.integers(2)
        said.setdefault((image, label), set()).add(int(value))
        rows.append(f"{image},verification,{label},{value}")
    write_rows(tmp_path / TRAIN, *rows)
    dataset = open_images(tmp_path)
    values, known = dataset.targets.dense()
    assert [dataset.images.name(index) for index in range(len(dataset))] == [
        f"train/{image}.jpg" for image in sorted({image for image, _ in said})
    ]
    assert any(len(answers) == 2 for answers in said.values())
    for row, image in enumerate(sorted({image for image, _ in said})):
        for column, label in enumerate(dataset.labels):
            answers = said.get((image, label), set())
            assert known[row, column] == (len(answers) == 1)
            assert values[row, column] == (answers == {1})


def test_confidences_of_a_model_need_a_threshold(tmp_path):
    write_rows(tmp_path / "train-annotations-machine-imagelabels.csv", "a,machine,/m/1,0.9", "a,machine,/m/2,0.6")
    with pytest.raises(DataError, match="min_confidence"):
        open_images(tmp_path, annotations="machine")
    dataset = open_images(tmp_path, annotations="machine", min_confidence=0.9)
    values, known = dataset.targets.dense()
    assert values.tolist() == [[1, 0]]
    assert known.tolist() == [[True, False]]
    with pytest.raises(ConfigError, match=r"1\.5"):
        open_images(tmp_path, annotations="machine", min_confidence=1.5)


def test_reads_only_what_was_downloaded(tmp_path):
    write_rows(tmp_path / TRAIN, "a,verification,/m/1,1", "b,verification,/m/1,0")
    draw(tmp_path / "train" / "b.jpg")
    dataset = open_images(tmp_path, downloaded_only=True)
    assert [dataset.images.name(index) for index in range(len(dataset))] == ["train/b.jpg"]
    assert dataset.splits["train"].tolist() == [0]


def test_takes_the_labels_given(tmp_path):
    write_rows(tmp_path / TRAIN, "a,verification,/m/1,1", "b,verification,/m/2,1")
    dataset = open_images(tmp_path, labels=["/m/2"])
    assert [dataset.images.name(index) for index in range(len(dataset))] == ["train/b.jpg"]
    (tmp_path / "oidv7-class-descriptions.csv").write_text("LabelName,DisplayName\n/m/2,Dog\n/m/1,Cat\n")
    described = open_images(tmp_path, labels="oidv7-class-descriptions.csv").labels
    assert list(described) == ["/m/2", "/m/1"]
    assert described.display("/m/1") == "Cat"
    with pytest.raises(DataError, match="identifiers"):
        open_images(tmp_path, labels=["Cat"])


def test_reads_a_last_line_without_a_line_end_and_windows_line_ends(tmp_path):
    (tmp_path / TRAIN).write_bytes(f"{HEADER}\r\na,verification,/m/1,1\r\nb,verification,/m/1,0".encode())
    assert open_images(tmp_path).targets.dense()[0].tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("names", "text", "words"),
    [
        ([], "", ["train-annotations-human-imagelabels.csv"]),
        (["notes.csv"], HEADER, ["notes.csv"]),
        ([TRAIN, TRAIN.replace("v6", "v7")], HEADER, ["oidv6", "oidv7", "remove one"]),
        ([TRAIN], "a,b\n1,2\n", ["ImageID, LabelName, Confidence"]),
        ([TRAIN], "", [TRAIN]),
        ([TRAIN], f"{HEADER}\na,verification,/m/1,yes\n", ["confidence"]),
        ([TRAIN], f"{HEADER}\na,verification,/m/1,\n", ["neither 0 nor 1"]),
    ],
)
def test_says_what_is_wrong_and_what_there_is(tmp_path, names, text, words):
    for name in names:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as error:
        open_images(tmp_path)
    assert all(word in str(error.value) for word in words), error.value
