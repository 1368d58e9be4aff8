import logging

import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import load, voc
from manylabel.data.readers.voc import VOC_LABELS, voc_boxes
from manylabel.errors import ConfigError, DataError, SpecError


def annotate(root, name, *objects, size=(8, 6)):
    """Write an annotation; each object is (label, difficult, (left, top, right, bottom))."""
    things = "".join(
        f"<object><name>{label}</name><part><name>head</name></part><difficult>{int(difficult)}</difficult>"
        f"<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for label, difficult, box in objects
    )
    file = root / "Annotations" / f"{name}.xml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{things}</annotation>")
    draw(root / "JPEGImages" / f"{name}.jpg")


def list_split(root, split, *names):
    file = root / "ImageSets" / "Main" / f"{split}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}\n" for name in names))


def row(*labels):
    return [int(name in labels) for name in VOC_LABELS]


@pytest.fixture
def root(tmp_path):
    """Two training images and one for validation, lists of one label's images beside them as in the original."""
    root = tmp_path / "VOCdevkit" / "VOC2007"
    annotate(root, "000001", ("dog", False, (1, 1, 4, 3)), ("dog", True, (1, 1, 8, 3)), ("person", True, (1, 1, 8, 6)))
    annotate(root, "000002")
    annotate(root, "000003", ("sofa", False, (1, 1, 8, 6)), ("cat", False, (2, 2, 2.5, 2)))
    list_split(root, "train", "000001", "000002")
    list_split(root, "val", "000003")
    list_split(root, "trainval", "000001", "000002", "000003")
    list_split(root, "dog_train", "000001  1", "000002 -1")
    return root


class TestVoc(SplitReaderSuite):
    format = "voc"
    reader = staticmethod(voc)

    def build(self, tmp_path):
        root = tmp_path / "VOC2012"
        annotate(root, "a b", ("person", True, (1, 1, 2, 2)), ("dog", False, (1, 1, 8, 6)), ("dog", True, (1, 1, 2, 2)))
        annotate(root, "2", ("cat", False, (1, 1, 2, 2)))
        annotate(root, "3")
        list_split(root, "train", "a b", "2")
        list_split(root, "val", "3")
        return Example(
            root,
            names=["a b.jpg", "2.jpg", "3.jpg"],
            labels=list(VOC_LABELS),
            values=[row("dog"), row("cat"), row()],
            known=[[int(name != "person") for name in VOC_LABELS], [1] * 20, [1] * 20],
            splits={"train": [0, 1], "val": [2]},
        )


def test_difficult_objects_can_count_as_present(root):
    dataset = load(f"voc:{root},split=train,difficult=present")
    values, known = dataset.targets.dense()
    assert values[0].tolist() == row("dog", "person")
    assert known.all()


def test_areas_are_those_of_the_largest_box_with_its_corners_inside(root):
    areas = voc(root).areas.toarray()
    index = {name: VOC_LABELS.index(name) for name in ("dog", "sofa", "cat", "person")}
    assert areas[0, index["dog"]] == pytest.approx(8 * 3 / 48)
    assert areas[0, index["person"]] == 0  # not known to be present
    assert areas[2, index["sofa"]] == 1
    assert areas[2, index["cat"]] == pytest.approx(1.5 / 48)


def test_areas_are_none_without_sizes(tmp_path):
    annotate(tmp_path, "1", ("dog", False, (1, 1, 4, 3)), size=(0, 0))
    list_split(tmp_path, "train", "1")
    assert voc(tmp_path).areas is None


def test_trainval_is_there_when_asked_for_by_name(root):
    assert list(voc(root).splits) == ["train", "val"]
    assert len(voc(root, split="trainval")) == 3


def test_reads_the_only_year_of_a_devkit_from_any_folder_above(root):
    assert len(voc(root.parent)) == len(voc(root.parent.parent)) == len(voc(root)) == 3


def test_lists_the_years_of_a_devkit_with_several(root):
    annotate(root.parent / "VOC2012", "1")
    list_split(root.parent / "VOC2012", "train", "1")
    with pytest.raises(DataError, match=r"several years; choose one: .*VOC2007, .*VOC2012"):
        voc(root.parent)


def test_says_what_is_missing_and_what_is_there_in_another_kind_of_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match="ImageSets/Main and Annotations; found: photos"):
        voc(tmp_path)


def test_names_the_missing_annotation(root):
    (root / "Annotations" / "000003.xml").unlink()
    with pytest.raises(DataError, match=r"1 of 1 images of split 'val' have no annotation.*000003\.xml"):
        voc(root)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<annotation><object>", "no element found"),
        ("<annotation><size><width>wide</width></size></annotation>", "could not convert"),
        ("<annotation><object><name> </name></object></annotation>", "an object has no name"),
    ],
)
def test_names_the_annotation_that_cannot_be_understood(root, text, reason):
    (root / "Annotations" / "000003.xml").write_text(text)
    with pytest.raises(DataError, match=rf"000003\.xml: {reason}"):
        voc(root)


def test_a_test_split_without_annotations_is_unknown(root, caplog):
    annotate(root, "900002", ("dog", False, (1, 1, 2, 2)))
    list_split(root, "test", "900001", "900002")
    with caplog.at_level(logging.WARNING):
        dataset = voc(root)
    _, known = dataset.split("test").targets.dense()
    assert not known.any()
    assert "1 of 2 test images lack an annotation" in caplog.text
    assert dataset.split("test").images.name(0) == "900001.jpg"
    assert dataset.split("train").targets.positives.sum() == 1


def test_own_labels_are_the_same_for_every_split(root):
    annotate(root, "000002", ("zebra", False, (1, 1, 2, 2)))
    for split in ("train", "val", None):
        assert list(voc(root, split=split).labels) == ["cat", "dog", "person", "sofa", "zebra"]


def test_images_may_have_other_endings(root):
    (root / "JPEGImages" / "000003.jpg").rename(root / "JPEGImages" / "000003.png")
    assert voc(root, split="val").images.name(0) == "000003.png"


def test_rejects_another_word_for_difficult(root):
    with pytest.raises(ConfigError, match="present, unknown"):
        voc(root, difficult="absent")
    with pytest.raises(SpecError, match="present, unknown"):
        load(f"voc:{root},difficult=absent")


def test_rejects_a_folder_of_splits_without_any(root):
    for file in (root / "ImageSets" / "Main").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"holds no split such as train\.txt"):
        voc(root)


OBJECT = """<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"""


def write(folder, *objects, size="<size><width>200</width><height>100</height></size>"):
    file = folder / "a.xml"
    file.write_text(f"<annotation>{size}{''.join(objects)}</annotation>", encoding="utf-8")
    return file


def test_boxes_are_shares_of_the_image(tmp_path):
    dog = OBJECT.format(name="dog", difficult=0, box=(1, 1, 200, 100))
    cat = OBJECT.format(name="cat", difficult=1, box=(101, 51, 150, 75))
    assert voc_boxes(write(tmp_path, dog, cat)) == [
        ("dog", (0, 0, 1, 1), False),
        ("cat", (0.5, 0.5, 0.75, 0.75), True),
    ]


@pytest.mark.parametrize("size", ["", "<size><width>0</width><height>5</height></size>"])
def test_a_image_without_a_size_has_no_boxes(tmp_path, size):
    dog = "<object><name>dog</name><bndbox><xmin>1</xmin><xmax>5</xmax><ymin>1</ymin><ymax>5</ymax></bndbox></object>"
    assert voc_boxes(write(tmp_path, dog, size=size)) == [("dog", (0, 0, 0, 0), False)]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.xml"):
        voc_boxes(tmp_path / "none.xml")
