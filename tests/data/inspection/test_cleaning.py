import json
from importlib.resources import files

import numpy as np
import polars as pl
import pytest

from conformance.reader_suite import draw
from manylabel.data import fix, load, scenes
from manylabel.data.inspection.cleaning import find_typos, find_variants
from manylabel.data.readers.voc import VOC_LABELS
from manylabel.errors import ConfigError, DataError, ManyLabelError, OutputExistsError

COCO_LABELS = json.loads((files("manylabel.builtin") / "everyday" / "labels.json").read_text())["names"]


@pytest.fixture
def messy(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        draw(tmp_path / "photos" / name)
    rows = ["a.png,Cat;dog,train", "b.png,cat,val", "c.png,cat,train", "a.png,dog,train", "gone.png,,val"]
    path = tmp_path / "tags.csv"
    path.write_text("\n".join(["image,tags,split", *rows]))
    return path


def test_merges_variants_and_rows_and_leaves_its_input_alone(messy, tmp_path):
    before = messy.read_text()
    changes = fix(messy, tmp_path / "out" / "clean.csv", unreadable=True)
    assert changes == (
        "renamed 'Cat' (1 image) to 'cat'",
        "dropped 'gone.png': there is no such file",
        "1 image is in several rows, which were merged: 'a.png'",
        "1 image is in several rows, which have different tags (all were added): 'a.png'",
    )
    assert messy.read_text() == before
    lines = [
        "image,tags,split",
        "../photos/a.png,cat|dog,train",
        "../photos/b.png,cat,val",
        "../photos/c.png,cat,train",
    ]
    assert (tmp_path / "out" / "clean.csv").read_text().splitlines() == lines
    assert fix(tmp_path / "out" / "clean.csv", tmp_path / "again.csv") == ()


def test_never_writes_over_its_input_nor_over_others_unasked(messy, tmp_path):
    for data in (messy, str(messy), f"csv:{messy}"):
        with pytest.raises(ConfigError, match="is the input"):
            fix(data, messy, overwrite=True)
    (tmp_path / "clean.csv").touch()
    with pytest.raises(OutputExistsError):
        fix(messy, tmp_path / "clean.csv")
    with pytest.raises(ConfigError, match=r"must end in \.csv"):
        fix(messy, tmp_path / "clean.xlsx")
    with pytest.raises(DataError, match="not files"):
        fix(scenes(3), tmp_path / "scenes.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize(
    "tags",
    [[["cat"], ["cat", "dog"]], [["a|b"], []], [["dog, small"], ["=1"]], [["traffic light"], ["traffic", "x y"]]],
)
def test_what_it_writes_is_read_back(tmp_path, tags, ending):
    names = [draw(tmp_path / f"{number}.png") for number in range(2)]
    for blank in ("negative", "unknown"):
        pairs = list(zip(names, tags, strict=True))
        fix(pairs, tmp_path / f"{blank}.{ending}", blank=blank)
        again, expected = load(tmp_path / f"{blank}.{ending}"), load(pairs, blank=blank)
        assert [again.images[index].name for index in range(2)] == ["0.png", "1.png"]
        assert again.labels == expected.labels
        for ours, theirs in zip(again.targets.dense(), expected.targets.dense(), strict=True):
            assert ours.tolist() == theirs.tolist()


def test_typos_are_renamed_on_request(tmp_path):
    pairs = [(draw(tmp_path / f"{number}.png"), "bicycle" if number else "bycicle") for number in range(30)]
    assert fix(pairs, tmp_path / "as_is.csv") == ()
    assert fix(pairs, tmp_path / "clean.csv", typos=True) == ("renamed 'bycicle' (1 image) to 'bicycle'",)
    assert list(load(tmp_path / "clean.csv").labels) == ["bicycle"]
    assert pl.read_csv(tmp_path / "clean.csv").height == 30


def test_a_label_never_takes_the_column_of_images(tmp_path):
    pairs = [(draw(tmp_path / "a.png"), ["image"]), (draw(tmp_path / "b.png"), [])]
    with pytest.raises(DataError, match="rename=image:NEW"):
        fix(pairs, tmp_path / "clean.csv", blank="unknown")
    fix(pairs, tmp_path / "clean.csv")
    assert list(load(tmp_path / "clean.csv").labels) == ["image"]


def test_an_input_in_the_home_folder_is_not_overwritten(messy, monkeypatch):
    monkeypatch.setenv("HOME", str(messy.parent))
    monkeypatch.setenv("USERPROFILE", str(messy.parent))
    with pytest.raises(ConfigError, match="is the input"):
        fix("csv:~/tags.csv", messy, overwrite=True)


@pytest.mark.parametrize("labels", [VOC_LABELS, COCO_LABELS])
def test_takes_no_label_of_voc_or_coco_for_another(labels):
    generator = np.random.default_rng(0)
    for _ in range(50):
        positives = np.exp(generator.uniform(0, 8, len(labels))).astype(np.int64)
        assert find_typos(labels, positives) == []
    assert find_variants(labels, positives) == []


@pytest.mark.parametrize(
    ("typo", "meant", "is_found"),
    [
        ("bicylce", "bicycle", True),
        ("bicycles", "bicycle", True),
        ("motorbyk", "motorbike", True),
        ("lake", "cake", False),
        ("class 10", "class 1", False),
        ("car", "cat", False),
        ("chair", "car", False),
        ("赤い車両", "青い車両", False),
        ("Bicycle", "bicycle", False),  # a variant, not a typo
    ],
)
def test_a_typo_is_rare_and_near(typo, meant, is_found):
    assert find_typos([typo, meant], np.array([2, 100])) == ([(typo, meant)] if is_found else [])
    assert find_typos([typo, meant], np.array([90, 100])) == []


ISSUES = "image,label,given,suggested,score\na.jpg,dog,absent,present,0.9\nb.jpg,cat,present,unknown,0.5\n"


def test_accepting_no_changes_leaves_the_labels_as_they_are(tmp_path):
    (tmp_path / "tags.csv").write_text("image,tags\na.jpg,cat\nb.jpg,dog\n")
    (tmp_path / "issues.csv").write_text("image,label,given,suggested,score\n")
    assert fix(tmp_path / "tags.csv", tmp_path / "new.csv", images=tmp_path, accept=tmp_path / "issues.csv") == ()
    assert load(tmp_path / "new.csv", images=tmp_path).targets.dense()[0].tolist() == [[1, 0], [0, 1]]


def test_accepted_changes_are_applied_and_reported(tmp_path):
    (tmp_path / "tags.csv").write_text("image,tags\na.jpg,cat\nb.jpg,cat\nc.jpg,dog\n")
    (tmp_path / "issues.csv").write_text(ISSUES)
    changes = fix(tmp_path / "tags.csv", tmp_path / "new.csv", images=tmp_path, accept=tmp_path / "issues.csv")
    assert changes == (
        "changed 'dog' of 'a.jpg' from absent to present",
        "changed 'cat' of 'b.jpg' from present to unknown",
    )
    values, known = load(tmp_path / "new.csv", images=tmp_path).targets.dense()
    assert values.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert known.tolist() == [[True, True], [False, True], [True, True]]
    again = fix(
        tmp_path / "new.csv", tmp_path / "again.csv", images=tmp_path, accept=tmp_path / "issues.csv", overwrite=True
    )
    assert again == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a.jpg", "z.jpg", "names image 'z.jpg', which tags.csv lacks"),
        (",dog", ",dgo", "names label 'dgo', which tags.csv lacks; did you mean 'dog'"),
        (",dog", ",", "names label None"),
        ("b.jpg,cat", "a.jpg,dog", "two suggestions for 'dog' of 'a.jpg'; delete one of the rows"),
        ("unknown", "gone", "suggested must be one of present, absent, unknown, got 'gone'"),
        ("suggested", "wanted", "has no column 'suggested'"),
    ],
)
def test_changes_that_do_not_fit_are_errors(tmp_path, old, new, message):
    (tmp_path / "tags.csv").write_text("image,tags\na.jpg,cat\nb.jpg,cat\nc.jpg,dog\n")
    (tmp_path / "issues.csv").write_text(ISSUES.replace(old, new))
    with pytest.raises(ManyLabelError, match=message):
        fix(tmp_path / "tags.csv", tmp_path / "new.csv", images=tmp_path, accept=tmp_path / "issues.csv")
    assert not (tmp_path / "new.csv").exists()
