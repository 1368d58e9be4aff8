from pathlib import Path

import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import load, yolo
from manylabel.errors import DataError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


class TestYolo(SplitReaderSuite):
    format = "yolo"
    reader = staticmethod(yolo)

    def build(self, tmp_path: Path) -> Example:
        for name in ("images/train/a.png", "images/train/images b.png", "images/val/c.png"):
            draw(tmp_path / "set" / name)
        files = {
            "data.yaml": "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: traffic light\n",
            "labels/train/a.txt": "1 0.5 0.5 0.5 0.2\n1 0.5 0.5 0.1 0.1\n0 0 0 1 0 1 0.5\n",
            "labels/val/c.txt": "0 0.5 0.5 1 1\n\n",
        }
        return Example(
            write(tmp_path / "set", files),
            names=["images/train/a.png", "images/train/images b.png", "images/val/c.png"],
            labels=["cat", "traffic light"],
            values=[[1, 1], [0, 0], [1, 0]],
            known=[[1, 1]] * 3,
            splits={"train": [0, 1], "val": [2]},
        )

    def spoil(self, dataset):
        dataset.images[0].write_bytes(b"no image")

    def test_areas_are_those_of_boxes_and_of_polygons(self, dataset):
        expected = [[0.5, 0.1], [0, 0], [1, 0]]
        assert dataset.areas.toarray().round(6).tolist() == [pytest.approx(row) for row in expected]

    def test_is_guessed_from_its_folder_and_from_its_file(self, example):
        assert len(load(example.path)) == len(load(str(example.path / "data.yaml"))) == 3


def test_reads_what_roboflow_exports(tmp_path):
    for split in ("train", "valid"):
        draw(tmp_path / split / "images" / "a.png")
        write(tmp_path, {f"{split}/labels/a.txt": "0 0.5 0.5 1 1"})
    write(tmp_path, {"data.yaml": "train: ../train/images\nval: ../valid/images\nnc: 1\nnames: [cat]"})
    assert {name: len(part) for name, part in yolo(tmp_path).splits.items()} == {"train": 1, "val": 1}


def test_reads_a_list_of_images_and_data_without_a_configuration(tmp_path):
    draw(tmp_path / "images" / "a.png")
    draw(tmp_path / "images" / "b.png")
    write(tmp_path, {"labels/b.txt": "1 0.5 0.5 1 1", "classes.txt": "cat\ndog\n"})
    assert [yolo(tmp_path).labels_of(index) for index in range(2)] == [[], ["dog"]]
    write(tmp_path, {"data.yaml": "train: list.txt\nnames: [cat, dog]", "list.txt": "./images/b.png\n"})
    assert [yolo(tmp_path).images.name(0), yolo(tmp_path).labels_of(0)] == ["images/b.png", ["dog"]]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"data.yaml": "train: images"}, "needs names"),
        ({"data.yaml": "names: [cat]"}, "lists no split"),
        ({"data.yaml": "names: {1: cat}\ntrain: images"}, "needs names"),
        ({"data.yaml": "names: [cat]\ntrain: foto"}, "refers to foto; not found: "),
        ({"data.yaml": "names: ["}, "cannot read"),
        ({"data.yaml": "a: &a [cat, dog]\nnames: [*a, *a]\ntrain: images"}, r"has an alias .*write the value in full"),
        ({"data.yaml": "[" * 5000}, "cannot read"),
        ({"data.yaml": "!!python/object/apply:os.getcwd []"}, "cannot read"),
        ({"labels/a.txt": ""}, "does not name its labels"),
        ({"data.yaml": "names: [cat]\ntrain: images", "labels/a.txt": "\n3 .5 .5 1 1"}, "line 2 .* no label 3"),
        ({"data.yaml": "names: [cat]\ntrain: images", "labels/a.txt": "cat .5 .5 1 1"}, "line 1 .*could not convert"),
        ({"data.yaml": "names: [cat]\ntrain: images", "labels/a.txt": "0"}, "line 1"),
        ({"notes.txt": ""}, "not a YOLO dataset"),
    ],
)
def test_says_what_is_wrong(tmp_path, files, reason):
    draw(tmp_path / "images" / "a.png")
    with pytest.raises(DataError, match=reason):
        yolo(write(tmp_path, files))
