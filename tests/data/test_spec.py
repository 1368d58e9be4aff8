import json
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from conformance.reader_suite import draw
from manylabel.data import FORMATS, Files, ImageDataset, load
from manylabel.data.spec import find_reader, relabel
from manylabel.errors import ConfigError, DataError, LabelError, SpecError
from manylabel.targets import Targets
from manylabel.types import LabelSpace


@pytest.fixture
def calls(monkeypatch):
    """A format that keeps what its reader was given."""
    calls = []

    def reader(
        path: str | Path,
        *,
        split: str | None = None,
        count: int = 0,
        share: float = 0.5,
        deep: bool = False,
        order: Literal["name", "size"] = "name",
        size: int | Literal["auto"] = "auto",
        images: Path | None = None,
        seed: int = 0,
    ) -> ImageDataset:
        calls.append((path, {"split": split, "count": count, "share": share, "deep": deep, "order": order}))
        calls.append((size, images, seed))
        targets = Targets.from_lists([[0], [0], [0], [0]], num_labels=1)
        return ImageDataset(Files(path, ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]), targets, LabelSpace(["cat"]))

    monkeypatch.setitem(FORMATS, "fake", reader)
    return calls


DEFAULTS = {"split": None, "count": 0, "share": 0.5, "deep": False, "order": "name"}


@pytest.mark.parametrize(
    ("spec", "path", "options"),
    [
        ("fake:photos", "photos", {}),
        ("fake:C:\\photos\\new,split=val", "C:\\photos\\new", {"split": "val"}),
        ("fake:a, b,c=/d,split=val", "a, b", None),
        ("fake:Paris, 2024,holiday,count=3", "Paris, 2024,holiday", {"count": 3}),
        ("fake:x=1,share=1e-1,deep=1,order=size", "x=1", {"share": 0.1, "deep": True, "order": "size"}),
        ("fake:p,split=a, b,deep=false", "p", {"split": "a, b"}),
        ("fake:p,split=none", "p", {"split": None}),
        ("fake:p,split=a=b", "p", {"split": "a=b"}),
    ],
)
def test_takes_a_spec_apart(calls, spec, path, options):
    if options is None:
        with pytest.raises(SpecError, match="no option 'c'"):
            load(spec)
    else:
        load(spec)
        assert calls[0] == (path, DEFAULTS | options)


def test_reads_values_as_the_reader_annotates_them(calls):
    load("fake:p,size=auto,images=photos,seed=7")
    assert calls[1] == ("auto", Path("photos"), 7)
    load("fake:p,size=12")
    assert calls[3] == (12, None, 0)


def test_expands_the_home_folder_in_paths_only(calls, monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("USERPROFILE", "/somewhere")
    load("fake:~/photos,images=~/images,split=~")
    assert calls[0] == (Path("/somewhere/photos"), DEFAULTS | {"split": "~"})
    assert calls[1][1] == Path("/somewhere/images")


def test_every_format_takes_a_hold_out_and_a_limit(calls):
    assert len(load("fake:p,limit=3")) == 3
    assert len(load("fake:p,val_fraction=0.5,part=val,seed=1")) == 2


def test_the_part_after_the_colon_need_not_be_a_path(monkeypatch):
    def numbered(count: int, *, split: str | None = None) -> ImageDataset:
        targets = Targets.from_lists([[]] * count, num_labels=0)
        return ImageDataset(Files("x", [f"{number}.jpg" for number in range(count)]), targets, LabelSpace([]))

    monkeypatch.setitem(FORMATS, "numbered", numbered)
    assert len(load("numbered:5")) == 5
    with pytest.raises(SpecError, match=r"the part after the colon .* must be a whole number, got 'five'"):
        load("numbered:five")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            "photos",
            r"'photos' does not exist; .*available: .* In full: FORMAT:PATH, such as csv:photos; formats: .*voc",
        ),
        ("here/labels.csv", "'here/labels.csv' does not exist"),
        ("cocoa:photos", "no format 'cocoa'.*did you mean 'coco'"),
        ("fake:", "nothing after the colon"),
        ("", "the name of the data is empty"),
        ("fake:p,spilt=val", "no option 'spilt'.*did you mean 'split'.*val_fraction"),
        ("fake:p,split=a,split=b", "option 'split' is given twice"),
        ("fake:p,count=2.5", "count .* must be a whole number, got '2.5'"),
        ("fake:p,share=half", "share .* must be a number, got 'half'"),
        ("fake:p,deep=maybe", "deep .* must be true or false, got 'maybe'"),
        ("fake:p,order=nam", "order .* cannot be 'nam'; did you mean 'name'"),
        ("fake:p,part=test", "part .* cannot be 'test'; available: train, val"),
        ("fake:p,limit=few", "limit .* must be a whole number or none, got 'few'"),
    ],
)
def test_says_what_is_wrong_and_what_there_is(calls, spec, reason):
    with pytest.raises(SpecError, match=reason):
        load(spec)


def test_every_reader_documents_itself_and_takes_options_that_a_spec_can_give():
    for name in FORMATS:
        assert find_reader(name).__doc__, name
        with pytest.raises(SpecError, match="no option 'no_such_option'"):
            load(f"{name}:1,no_such_option=1")


def names_of(dataset):
    return [dataset.images.name(index) for index in range(len(dataset))]


def tags_of(dataset):
    return [dataset.labels_of(index) for index in range(len(dataset))]


def write_layouts(root):
    """Write one small dataset of each kind of layout; return its path, format and images."""
    for name in ("table/images/a.png", "folder/cat/a.png", "folder/dog/b.png", "plain/a.png", "mixed/a.png"):
        draw(root / name)
    for name in ("mixed/new/b.png", "mixed/old/c.png", "coco/val/a.png", "VOC2012/JPEGImages/a.png"):
        draw(root / name)
    for ending, text in ((".csv", "image,tags\na.png,cat\n"), (".tsv", "image\ttags\na.png\tcat\n")):
        (root / "table" / f"labels{ending}").write_text(text)
    (root / "table" / "labels.jsonl").write_text('{"image": "a.png", "tags": ["cat"]}')
    pl.DataFrame({"image": ["a.png"], "tags": [["cat"]]}).write_parquet(root / "table" / "labels.parquet")
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 6}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": 1, "category_id": 1, "area": 4}],
    }
    draw(root / "shop" / "photos" / "a.png")
    (root / "shop" / "tags.csv").write_text("image,tags\na.png,cat\n")
    annotations = root / "coco" / "annotations" / "instances_val.json"
    annotations.parent.mkdir()
    annotations.write_text(json.dumps(content))
    voc = root / "VOC2012"
    for name, text in (
        ("ImageSets/Main/train.txt", "a"),
        ("Annotations/a.xml", "<annotation><object><name>cat</name></object></annotation>"),
    ):
        (voc / name).parent.mkdir(parents=True)
        (voc / name).write_text(text)


@pytest.mark.parametrize(
    ("path", "labels", "num_images"),
    [
        ("table/labels.csv", ["cat"], 1),
        ("table/labels.tsv", ["cat"], 1),
        ("table/labels.jsonl", ["cat"], 1),
        ("table/labels.parquet", ["cat"], 1),
        ("coco/annotations/instances_val.json", ["cat"], 1),
        ("coco", ["cat"], 1),
        ("VOC2012", ["aeroplane", "bicycle"], 1),
        ("folder", ["cat", "dog"], 2),
        ("plain", [], 1),
        ("mixed", [], 3),
        ("plain/a.png", [], 1),
        ("shop", ["cat"], 1),
        ("mixed/*/*.png", [], 2),
    ],
)
def test_guesses_the_format_of_a_path(tmp_path, path, labels, num_images):
    write_layouts(tmp_path)
    for data in (str(tmp_path / path), tmp_path / path, f"{tmp_path / path},limit=5"):
        dataset = load(data)
        assert list(dataset.labels)[:2] == labels
        assert len(dataset) == num_images


def test_what_cannot_be_guessed_lists_what_was_looked_for(tmp_path):
    with pytest.raises(
        SpecError, match=r"cannot guess the format of .*data\.yaml \(YOLO\).*In full: FORMAT:PATH, such as"
    ):
        load(tmp_path)
    write_layouts(tmp_path)
    with pytest.raises(SpecError, match=r"it has several tables, pass one of them: labels\.csv, labels\.jsonl"):
        load(tmp_path / "table")
    with pytest.raises(SpecError, match=r"'.*lables\.csv' does not exist; did you mean 'labels\.csv'"):
        load(tmp_path / "table" / "lables.csv")
    (tmp_path / "notes.md").touch()
    with pytest.raises(SpecError, match=r"cannot guess the format of .*notes\.md"):
        load(tmp_path / "notes.md")


def test_a_name_of_the_hub_is_one_only_where_no_file_could_be_meant(monkeypatch, tmp_path):
    def hub(name_or_path: str | Path) -> ImageDataset:
        return ImageDataset(Files("", []), Targets.from_dense(np.zeros((0, 1))), LabelSpace([str(name_or_path)]))

    monkeypatch.setitem(FORMATS, "hf", hub)
    monkeypatch.chdir(tmp_path)
    assert list(load("user/my-photos").labels) == ["user/my-photos"]
    (tmp_path / "user").mkdir()
    with pytest.raises(SpecError, match="does not exist"):
        load("user/my-photos")


def make_dataset():
    return ImageDataset(
        Files("", ["a.jpg", "b.jpg"]), Targets.from_dense([[1, 0, 0], [0, -1, 1]]), LabelSpace(["Cat", "cat", "owl"])
    )


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame, lambda rows: pl.LazyFrame(rows)])
def test_reads_data_frames_like_tables(frame):
    rows = {"file": ["a.jpg", "b.jpg", "c.jpg"], "tags": ["cat|dog", None, "owl"], "split": ["train", "train", "val"]}
    dataset = load(frame(rows), images=".")
    assert tags_of(dataset) == [["cat", "dog"], [], ["owl"]]
    assert list(dataset.splits) == ["train", "val"]
    assert len(load(frame(rows), images=".", blank="drop", split="train")) == 1


def test_reads_columns_of_flags_of_pandas():
    frame = pd.DataFrame({"path": [Path("a.jpg"), Path("b.jpg")], "cat": [1.0, np.nan], "dog": [False, True]})
    dataset = load(frame, images=".")
    assert dataset.targets.dense()[1].tolist() == [[True, True], [False, True]]


def test_reads_lists_of_paths_and_tags():
    pairs = [("a.jpg", np.array(["dog", "cat"])), (Path("b.jpg"), "cat"), ("c.jpg", []), ("d.jpg", None)]
    dataset = load(pairs, images=".")
    assert names_of(dataset) == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert tags_of(dataset) == [["cat", "dog"], ["cat"], [], []]
    assert list(load(["a.jpg", "b.jpg"]).labels) == []


def test_texts_of_tags_in_a_list_are_split_as_in_a_table():
    pairs = [("a.jpg", "traffic light|dog"), ("b.jpg", "dog"), ("c.jpg", None)]
    assert tags_of(load(pairs, images=".")) == [["dog", "traffic light"], ["dog"], []]
    assert list(load(pairs, images=".", separator="").labels) == ["dog", "traffic light|dog"]


@pytest.mark.parametrize("tags", [3, [1, 2], ["cat", None]])
def test_tags_that_are_no_names_are_refused(tags):
    with pytest.raises(DataError, match=r"tags must be a list of names such as .*, got .* for 'b.jpg'"):
        load([("a.jpg", ["cat"]), ("b.jpg", tags)], images=".")


def test_data_frames_without_rows_or_with_a_column_twice_are_refused():
    for frame in (pd.DataFrame({"image": [], "tags": []}), pl.DataFrame({"image": [], "tags": []})):
        with pytest.raises(DataError, match="the table has no rows"):
            load(frame)
    with pytest.raises(DataError, match="several columns called cat; rename or drop them"):
        load(pd.DataFrame([["a.jpg", 1, 0]], columns=["image", "cat", "cat"]))


def test_masks_are_no_images():
    with pytest.raises(DataError, match=r"images must be \[N, 3, H, W\] or \[N, H, W, 3\], got \[2, 8, 8\]"):
        load((np.zeros((2, 8, 8), dtype=np.uint8), np.eye(2)))


def test_reads_tensors_of_images_and_targets():
    images = torch.randint(256, (2, 3, 8, 6), dtype=torch.uint8)
    targets = torch.tensor([[1, 0], [-1, 1]])
    for given in (images, images.permute(0, 2, 3, 1), images / 255):
        dataset = load((given, targets), labels=["cat", "dog"])
        image, target = dataset[1]
        assert torch.equal(torch.from_numpy(np.array(image)).permute(2, 0, 1), images[1])
        assert target.tolist() == [-1, 1]
    assert names_of(load((["a.jpg", "b.jpg"], targets.numpy()))) == ["a.jpg", "b.jpg"]
    with pytest.raises(ConfigError, match=r"got 2"):
        load((images, targets + 1))


def test_other_objects_are_refused_with_what_could_be_given():
    for data in (7, [], [("a.jpg", "cat", "dog")], {"a.jpg": ["cat"]}, None):
        with pytest.raises(DataError, match=r"a list of \(path, tags\), a DataFrame"):
            load(data)


def test_python_options_work_for_every_form():
    dataset = make_dataset()
    assert load(dataset) is dataset
    assert len(load(dataset, limit=1)) == 1
    assert list(load(dataset, drop=["owl"]).labels) == ["Cat", "cat"]
    with pytest.raises(SpecError, match=r"no option 'colour' of this dataset; .*rename"):
        load(dataset, colour="red")


def test_renaming_merges_labels_and_escapes_separate_names():
    dataset = relabel(make_dataset(), rename="Cat:cat|owl:a%7Cb%3A", drop=None)
    assert list(dataset.labels) == ["cat", "a|b:"]
    values, known = dataset.targets.dense()
    assert values.tolist() == [[1, 0], [0, 1]]
    assert known.tolist() == [[True, True], [False, True]]
    with pytest.raises(LabelError, match="no label 'dgo'"):
        relabel(make_dataset(), drop="dgo")
    with pytest.raises(SpecError, match="rename must be old:new"):
        relabel(make_dataset(), rename="cat")


def test_a_spec_renames_and_drops(calls):
    assert list(load("fake:p,rename=cat:tiger, big").labels) == ["tiger, big"]
    assert list(load("fake:p,drop=cat").labels) == []


def test_incomplete_tags_are_unknown_in_training_only():
    data = load([("a.jpg", ["cat"]), ("b.jpg", ["dog"])], images=".", tags="incomplete")
    assert data.incomplete
    assert data.targets.known.tolist() == [2, 2]
    assert data.for_training().targets.known.tolist() == data.targets.positives.tolist() == [1, 1]
    assert data.subset([1]).incomplete
    plain = load([("a.jpg", ["cat"])], images=".")
    assert plain.for_training() is plain


def test_an_image_without_tags_is_unknown_but_the_lists_of_others_are_complete(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.jpg").touch()
    (tmp_path / "tags.csv").write_text("image,labels\na.jpg,cat\nb.jpg,cat|dog\nc.jpg,\n")
    (tmp_path / "blank.csv").write_text("image,cat,dog\na.jpg,1,\nb.jpg,1,1\nc.jpg,,\n")
    tags, blank = load(f"{tmp_path}/tags.csv,blank=unknown"), load(f"{tmp_path}/blank.csv")
    assert (tags.targets.known.tolist(), tags.targets.positive_unlabeled) == ([2, 2], False)
    assert (blank.targets.known.tolist(), blank.targets.positive_unlabeled) == ([2, 1], True)


def test_incomplete_tags_make_a_folder_of_classes_multi_label(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").touch()
    assert load(f"folder:{tmp_path}").single_label
    assert not load(f"folder:{tmp_path},tags=incomplete").single_label
    with pytest.raises(SpecError, match=r"tags .*cannot be 'partial'; available: complete, incomplete"):
        load(f"folder:{tmp_path},tags=partial")
