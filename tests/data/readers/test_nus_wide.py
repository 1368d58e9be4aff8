"""The reader of NUS-WIDE, on small folders of its official form."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import nus_wide, nus_wide_zero_shot_labels
from manylabel.errors import ConfigError, DataError

CONCEPTS = ["airport", "birds", "sky"]
TAGS = ["nature", "sky", "blue", "birds", "zoo"]
IMAGES = ["actor/0001_1.jpg", "actor/0002_2.jpg", "zoo/0001_3.jpg", "zoo/0002_4.jpg"]
IS_TRAIN = [True, False, False, True]
TRUTH = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]])
TAGGED = np.array([[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])


def write_lines(file: Path, lines) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\r\n" for line in lines), newline="")


def write_official(root: Path, *, whole: bool) -> Path:
    """Write the official files, labels and tags either of all images or of each split."""
    rows = {"": np.arange(4), "Train": np.flatnonzero(IS_TRAIN), "Test": np.flatnonzero(~np.array(IS_TRAIN))}
    for part, chosen in rows.items():
        write_lines(root / "ImageList" / f"{part}Imagelist.txt", [IMAGES[row].replace("/", "\\") for row in chosen])
        if whole == bool(part):
            continue
        for column, concept in enumerate(CONCEPTS):
            name = f"TrainTestLabels/Labels_{concept}_{part}.txt" if part else f"AllLabels/Labels_{concept}.txt"
            write_lines(root / "Groundtruth" / name, TRUTH[chosen, column])
        name = f"{part}_Tags1k.dat" if part else "AllTags1k.txt"
        write_lines(root / "NUS_WID_Tags" / name, ["".join(f"{value}\t" for value in TAGGED[row]) for row in chosen])
    write_lines(root / "ConceptsList" / "Concepts81.txt", CONCEPTS)
    write_lines(root / "NUS_WID_Tags" / "TagList1k.txt", TAGS)
    for name in IMAGES:
        draw(root / "Flickr" / name)
    return root


class TestNusWide(SplitReaderSuite):
    format = "nus_wide"
    reader = staticmethod(nus_wide)

    def build(self, tmp_path: Path) -> Example:
        return Example(
            write_official(tmp_path / "nus", whole=True),
            names=IMAGES,
            labels=CONCEPTS,
            values=TRUTH.tolist(),
            known=np.ones_like(TRUTH).tolist(),
            splits={"train": [0, 3], "test": [1, 2]},
        )


class TestNusWideZeroShot(SplitReaderSuite):
    """Both sets of labels, read from the files of each split, in which one value is wrong."""

    format = "nus_wide"
    reader = staticmethod(nus_wide)

    def build(self, tmp_path: Path) -> Example:
        root = write_official(tmp_path / "nus", whole=False)
        write_lines(root / "Groundtruth" / "TrainTestLabels" / "Labels_sky_Train.txt", ["-1130179", "1"])
        order = [0, 3, 1, 2]
        known = np.ones((4, 6), dtype=int)
        known[0, 5] = 0
        return Example(
            root,
            names=[IMAGES[row] for row in order],
            labels=["nature", "blue", "zoo", *CONCEPTS],
            values=np.hstack([TAGGED[:, [0, 2, 4]], TRUTH])[order].tolist(),
            known=known.tolist(),
            splits={"train": [0, 1], "test": [2, 3]},
            options={"labels": "1006"},
        )


def test_tags_that_are_concepts_are_not_seen(tmp_path):
    root = write_official(tmp_path, whole=True)
    seen, unseen = nus_wide_zero_shot_labels(root)
    assert (seen, unseen) == (["nature", "blue", "zoo"], CONCEPTS)
    assert list(nus_wide(root, labels="925").labels) == seen
    assert list(nus_wide(root, labels="81").labels) == unseen
    assert list(nus_wide(root, labels="1006").labels) == seen + unseen


def test_reads_tags_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("manylabel.data.readers.nus_wide"), "BLOCK_BYTES", 3)
    dataset = nus_wide(write_official(tmp_path, whole=True), labels="925")
    assert dataset.targets.dense()[0].tolist() == TAGGED[:, [0, 2, 4]].tolist()


def test_drops_images_without_labels_or_files(tmp_path):
    root = write_official(tmp_path, whole=True)
    (root / "Flickr" / IMAGES[0]).unlink()
    dataset = nus_wide(root, empty="drop", downloaded_only=True)
    assert [dataset.images.name(index) for index in range(len(dataset))] == [IMAGES[1], IMAGES[3]]
    assert {name: members.tolist() for name, members in dataset.splits.items()} == {"train": [1], "test": [0]}


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("Groundtruth/AllLabels/Labels_sky.txt", ["1", "0"], ["Labels_sky.txt", "2 rows for 4 images"]),
        ("NUS_WID_Tags/AllTags1k.txt", ["1 0 1"], ["AllTags1k.txt", "3 values"]),
        ("NUS_WID_Tags/AllTags1k.txt", ["1 0 2 0 1"], ["something other than"]),
        ("ConceptsList/Concepts81.txt", ["airport", "bird", "sky"], ["Labels_bird.txt", "Labels_birds.txt"]),
    ],
)
def test_says_which_file_does_not_fit(tmp_path, name, lines, words):
    root = write_official(tmp_path, whole=True)
    write_lines(root / name, lines)
    with pytest.raises(DataError) as error:
        nus_wide(root, labels="1006")
    assert all(word in str(error.value) for word in words), error.value


def test_refuses_unknown_sets_of_labels(tmp_path):
    with pytest.raises(ConfigError, match="81, 925"):
        nus_wide(tmp_path, labels="1000")
