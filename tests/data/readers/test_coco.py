import json

import numpy as np
import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import coco, load
from manylabel.errors import ConfigError, DataError

CATEGORIES = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}, {"id": 13, "name": "stop sign"}]


def image(number, *, size=(8, 6)):
    return {"id": number, "file_name": f"{number}.jpg", "width": size[0], "height": size[1]}


def thing(image, category, **more):
    return {"image_id": image, "category_id": category, **more}


def write(root, split, images, objects, *, categories=CATEGORIES, folder=None):
    file = root / "annotations" / f"instances_{split}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    for entry in images:
        draw((folder or root / split) / entry["file_name"])
    return file


class TestCoco(SplitReaderSuite):
    format = "coco"
    reader = staticmethod(coco)

    def build(self, tmp_path):
        root = tmp_path / "coco"
        objects = [thing(7, 90, area=12), thing(7, 1, area=48.0), thing(7, 1, area=1), thing(3, 13, area=6)]
        write(root, "train2014", [image(7), image(5), image(3)], objects)
        write(root, "val2014", [image(7)], [thing(7, 13, area=2, iscrowd=1)])  # the same file name again
        return Example(
            root,
            names=["train2014/7.jpg", "train2014/3.jpg", "val2014/7.jpg"],
            labels=["person", "stop sign", "toothbrush"],
            values=[[1, 0, 1], [0, 1, 0], [0, 1, 0]],
            known=[[1, 1, 1]] * 3,
            splits={"train2014": [0, 1], "val2014": [2]},
        )

    def test_areas_are_those_of_the_largest_object(self, dataset):
        expected = np.array([[48 / 48, 0, 12 / 48], [0, 6 / 48, 0], [0, 2 / 48, 0]])
        np.testing.assert_allclose(dataset.areas.toarray(), expected, rtol=1e-6)


@pytest.fixture
def root(tmp_path):
    """One split of two images, the second without objects, and no areas."""
    write(tmp_path / "coco", "val", [image(1), image(2)], [thing(1, 1)])
    return tmp_path / "coco"


def test_areas_are_none_where_the_file_has_none(root):
    assert coco(root).areas is None


def test_images_without_objects_are_dropped_unless_asked_for(root):
    assert len(coco(root)) == 1
    kept = load(f"coco:{root},empty=keep")
    assert kept.targets.dense()[0].tolist() == [[1, 0, 0], [0, 0, 0]]


def test_reads_a_file_without_any_objects(root):
    write(root, "val", [image(1)], [])
    assert coco(root, empty="keep").targets.positives.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "outline",
    [
        [[1.5, 2, 3e1, 4], [5, 6, 7, 8]],
        [],
        {"counts": [1, 2, 3], "size": [6, 8]},
        {"counts": "l_d0]`m0", "size": [6, 8]},
    ],
)
@pytest.mark.parametrize("spaces", [None, 2])
def test_outlines_of_every_form_are_passed_over(root, outline, spaces):
    objects = [
        {"segmentation": outline, "area": 12, "image_id": 1, "category_id": 1},
        {"area": 24, "image_id": 1, "category_id": 13, "segmentation": outline},
    ]
    text = {"images": [image(1)], "annotations": objects, "categories": CATEGORIES}
    (root / "annotations" / "instances_val.json").write_text(json.dumps(text, indent=spaces))
    np.testing.assert_allclose(coco(root).areas.toarray(), [[0.25, 0.5, 0]])


def test_a_missing_folder_of_images_is_named_with_what_is_there(root):
    (root / "val").rename(root / "photos")
    with pytest.raises(DataError, match=r"set images=FOLDER.*available: annotations, photos"):
        coco(root)


@pytest.mark.parametrize("place", ["val", "images/val"])
def test_images_are_found_in_the_usual_places(root, place):
    (root / "images").mkdir()
    (root / "val").rename(root / place)
    assert coco(root).images[0] == root / place / "1.jpg"


def test_images_are_found_where_images_says(root, tmp_path, monkeypatch):
    (root / "val").rename(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    assert coco(root, images="photos").images[0].resolve() == tmp_path / "photos" / "1.jpg"
    (tmp_path / "photos").rename(root / "photos")
    assert coco(root, images="photos").images[0] == root / "photos" / "1.jpg"
    with pytest.raises(DataError, match="available: annotations, photos"):
        coco(root, images="images")


def test_reads_one_json_file(root):
    dataset = coco(root / "annotations" / "instances_val.json")
    assert list(dataset.splits) == ["val"]
    assert dataset.images[0].exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot read .* as COCO JSON"),
        ("[]", "lists no images"),
        (json.dumps({"images": [image(1)]}), "lists no categories"),
        (
            json.dumps({"images": [image(1)], "categories": CATEGORIES, "annotations": [thing(4, 1)]}),
            "1 annotations with an unlisted image_id, such as 4",
        ),
        (
            json.dumps({"images": [image(1)], "categories": CATEGORIES, "annotations": [thing(1, 2)]}),
            "1 annotations with an unlisted category_id, such as 2",
        ),
    ],
)
def test_names_the_file_that_cannot_be_understood(root, text, reason):
    file = root / "annotations" / "instances_val.json"
    file.write_text(text)
    with pytest.raises(DataError, match=reason) as error:
        coco(root)
    assert str(file) in str(error.value)


def test_rejects_splits_of_different_labels(root):
    write(root, "other", [image(1)], [thing(1, 1)], categories=[{"id": 1, "name": "cat"}])
    with pytest.raises(DataError, match="labels differ"):
        coco(root)


def test_rejects_another_word_for_empty(root):
    with pytest.raises(ConfigError, match="drop, keep"):
        coco(root, empty="ignore")
