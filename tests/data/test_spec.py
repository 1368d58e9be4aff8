from pathlib import Path
from typing import Literal

import pytest

from manylabel.data import FORMATS, Files, ImageDataset, load
from manylabel.data.spec import find_reader
from manylabel.errors import SpecError
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
        ("photos", "a data spec is FORMAT:PATH, got 'photos'; there is: .*voc"),
        ("cocoa:photos", "no format 'cocoa'.*did you mean 'coco'"),
        ("fake:", "nothing after the colon"),
        ("fake:p,spilt=val", "no option 'spilt'.*did you mean 'split'.*val_fraction"),
        ("fake:p,split=a,split=b", "option 'split' is given twice"),
        ("fake:p,count=2.5", "count .* must be a whole number, got '2.5'"),
        ("fake:p,share=half", "share .* must be a number, got 'half'"),
        ("fake:p,deep=maybe", "deep .* must be true or false, got 'maybe'"),
        ("fake:p,order=nam", "order .* cannot be 'nam'; did you mean 'name'"),
        ("fake:p,part=test", "part .* cannot be 'test'; there is: train, val"),
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
