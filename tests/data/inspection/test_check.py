"""The check of a dataset: every finding against a dataset that was made to have it."""

import io
import json
import signal
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from deadly import load_or_die
from manylabel.data import Files, ImageDataset, LazyBytes, check, load, scenes
from manylabel.data.inspection.images import inspect_images
from manylabel.data.inspection.page import check_page, draw_histogram
from manylabel.errors import ConfigError
from manylabel.targets import Targets
from manylabel.types import BadImage, LabelSpace


def noise(seed, *, size=(60, 40), ending="PNG"):
    """An encoded image that looks like no other."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(blocks).resize(size, Image.Resampling.BICUBIC).save(stream, ending)
    return stream.getvalue()


def dataset(rows, labels="abcd", *, folder, images=None, splits=None, **others):
    """A dataset with these label positions per image, of images that all differ unless they are given."""
    images = images or {}
    names = [f"{index}.png" for index in range(len(rows))]
    for index, name in enumerate(names):
        content = images.get(index, noise(index))
        if content is not None:
            (folder / name).write_bytes(content)
    targets = Targets.from_lists(rows, num_labels=len(labels), **others)
    splits = {name: np.asarray(members, dtype=np.int64) for name, members in (splits or {}).items()}
    return ImageDataset(Files(folder, names), targets, LabelSpace(list(labels)), name="made up", splits=splits)


def test_counts_what_is_present_absent_and_unknown(tmp_path):
    report = check(dataset([[0], [0, 1], []], "abc", unknown=[[2], [], [0, 2]], folder=tmp_path))
    assert [(label.positives, label.negatives, label.unknown) for label in report.labels] == [
        (2, 0, 1),
        (1, 2, 0),
        (0, 1, 2),
    ]
    assert report.unknown_fraction == pytest.approx(3 / 9)
    assert report.labels_per_image == (1, 1, 1)
    assert report.unlabelled == (2,)
    assert report.mean_labels == 1.0
    assert report.cooccurrence.toarray().tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]


@pytest.mark.slow
def test_very_many_labels_on_one_image_need_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("manylabel.data.inspection.check"), "MOST_PAIRS", 250_000)
    rows = [range(100_000), [0, 1], [0, 1], [2]]
    many = dataset(rows, [f"label {number}" for number in range(100_000)], folder=tmp_path)
    report = check(many)
    assert report.cooccurrence.nnz < 400_000
    assert report.cooccurrence[0, 1] == 3
    assert report.cooccurrence.diagonal().tolist() == many.targets.positives.tolist()
    assert len(report.to_dict()["cooccurrence"]) == 5_000
    html = check_page(report, many).html()
    assert "100,000 labels" in html
    assert "and 99,992 more" in html
    assert len(html) < 3_000_000


def test_knows_the_sizes_of_images(tmp_path):
    images = {0: noise(0, size=(30, 90)), 1: noise(1, size=(300, 200), ending="JPEG")}
    report = check(dataset([[0], [1], [0]], folder=tmp_path, images=images))
    assert report.sizes.tolist() == [[90, 30], [200, 300], [40, 60]]
    assert report.to_dict()["sizes"]["width"] == {"min": 30.0, "median": 60.0, "max": 300.0}


def test_names_bad_images_and_why(tmp_path):
    cut = noise(7, size=(200, 200), ending="JPEG")
    images = {1: b"", 2: cut[: len(cut) // 2], 3: None}
    report = check(dataset([[0], [1], [0], [1]], folder=tmp_path, images=images))
    assert [(image.index, image.name) for image in report.bad] == [(1, "1.png"), (2, "2.png"), (3, "3.png")]
    assert all(word in image.reason for image, word in zip(report.bad, ["empty", "truncated", "no such"], strict=True))
    assert len(report.problems) == 1
    assert "3 of 4 images cannot be read" in report.problems[0]


def test_a_few_bad_images_are_only_a_warning(tmp_path):
    report = check(dataset([[0], [1]] * 60, folder=tmp_path, images={5: b"text"}))
    assert report.is_sound
    assert any("1 image cannot be read" in warning and "'5.png'" in warning for warning in report.warnings)


def test_finds_copies_and_says_when_their_labels_differ(tmp_path):
    near = io.BytesIO()
    Image.open(io.BytesIO(noise(1))).resize((120, 80)).save(near, "JPEG", quality=50)
    report = check(dataset([[0], [1], [0], [2], [3]], folder=tmp_path, images={2: noise(0), 3: near.getvalue()}))
    exact, alike = report.duplicates
    assert (exact.indices, exact.is_exact, exact.labels_differ) == ((0, 2), True, False)
    assert (alike.indices, alike.is_exact, alike.labels_differ) == ((1, 3), False, True)
    assert any("1 group of files with the same content: 0.png = 2.png" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("others", "differ"),
    [({}, True), ({"unknown": [[], [0]]}, False), ({"absent": [[], [0]]}, True), ({"absent": [[], [1]]}, False)],
)
def test_labels_of_copies_differ_only_where_both_are_known(others, differ, tmp_path):
    made = dataset([[0], []], folder=tmp_path, images={1: noise(0)}, **others)
    assert [group.labels_differ for group in check(made).duplicates] == [differ]


def test_bad_images_are_not_copies_of_each_other(tmp_path):
    assert check(dataset([[0], [1]], folder=tmp_path, images={0: b"", 1: b""})).duplicates == ()


def test_finds_leaks_between_splits(tmp_path):
    made = dataset(
        [[0], [1], [0], [1], [0]],
        folder=tmp_path,
        images={3: noise(0)},
        splits={"train": [0, 1, 2], "val": [2, 3, 4]},
    )
    report = check(made)
    (leak,) = report.leaks
    assert (leak.kind, leak.indices, leak.fraction) == ("exact", (0, 2), 2 / 3)
    assert any("2 images of split" in problem for problem in report.problems)


def test_finds_near_copies_and_equal_names_in_two_splits(tmp_path):
    small = io.BytesIO()
    Image.open(io.BytesIO(noise(0))).resize((30, 20)).save(small, "PNG")
    names = ["train/a.png", "train/b.png", "val/c.png", "val/b.png"]
    contents = [noise(0), noise(1), small.getvalue(), noise(3)]
    made = ImageDataset(
        LazyBytes(names, contents.__getitem__),
        Targets.from_lists([[0], [1], [0], [1]], num_labels=2),
        LabelSpace(["x", "y"]),
        splits={"train": np.array([0, 1]), "val": np.array([2, 3])},
    )
    report = check(made)
    assert [(leak.kind, leak.other) for leak in report.leaks] == [("near", "val"), ("name", "val")]
    assert report.is_sound


def test_a_split_that_is_meant_to_hold_another_is_no_leak(tmp_path):
    splits = {"train": [0, 1], "val": [2, 3], "trainval": [0, 1, 2, 3]}
    assert check(dataset([[0], [1], [0], [1]], folder=tmp_path, splits=splits)).leaks == ()


def test_names_labels_that_a_split_lacks(tmp_path):
    report = check(dataset([[0, 1], [1], [0]], "abc", folder=tmp_path, splits={"train": [0, 1], "val": [2]}))
    assert report.unseen == {"train": (), "val": ("b",)}
    assert any("split 'val' has no positives of label b" in warning for warning in report.warnings)


def test_names_rare_labels_and_labels_that_nothing_has(tmp_path):
    warnings = check(dataset([[0], [0], [0], [0], [0, 1], [1]], "abc", folder=tmp_path)).warnings
    assert "1 label has fewer than 5 images: b (2)" in warnings
    assert any(warning.startswith("no image has label c;") for warning in warnings)


def test_names_labels_that_depend_on_each_other(tmp_path):
    rows = [[0, 1, 2]] * 6 + [[2]] * 3 + [[3]] * 60
    report = check(dataset(rows, folder=tmp_path))
    assert report.always_together == (("a", "b"),)
    assert report.only_with == (("a", "c"), ("b", "c"))


def test_a_rare_label_that_comes_with_a_frequent_one_by_chance_is_not_named(tmp_path):
    report = check(dataset([[0, 1]] * 5 + [[1]] * 45 + [[2]] * 10, folder=tmp_path))
    assert report.only_with == ()


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        ([], {}, "0 images"),
        ([[], []], {}, "no image has a label"),
        ([[0], [0]], {"labels": "a"}, "nothing to learn"),
        ([[0], [1]], {"absent": [[], []]}, "nothing to learn"),
        ([[0], [1]], {"splits": {"train": [0, 1], "val": []}}, "split 'val' has no images"),
        ([[], [0]], {"splits": {"train": [0], "val": [1]}}, "no image of split 'train' has a label"),
    ],
)
def test_says_what_would_break_training(rows, settings, words, tmp_path):
    report = check(dataset(rows, folder=tmp_path, **settings))
    assert not report.is_sound
    assert any(words in problem for problem in report.problems)


def test_a_test_split_without_labels_is_only_a_warning(tmp_path):
    report = check(dataset([[0], [1], []], folder=tmp_path, splits={"train": [0, 1], "test": [2]}))
    assert report.is_sound
    assert any("no image of split 'test' has a label" in warning for warning in report.warnings)


@pytest.mark.slow
def test_clean_scenes_are_sound():
    report = check(scenes(60, seed=2))
    assert report.is_sound
    assert report.duplicates == ()
    assert report.bad == ()


def test_the_report_goes_through_json(tmp_path):
    report = check(dataset([[0, 1], [1]], folder=tmp_path, images={1: noise(0)}, splits={"train": [0], "val": [1]}))
    values = json.loads(json.dumps(report.to_dict()))
    assert values["cooccurrence"] == [{"labels": ["a", "b"], "images": 1}]
    assert values["labels"][1] == {"name": "b", "display_name": "b", "positives": 2, "negatives": 0, "unknown": 0}
    assert values["duplicates"][0]["names"] == ["0.png", "1.png"]
    assert values["is_sound"] is report.is_sound is False


def test_tells_its_progress(tmp_path):
    told = []
    check(dataset([[0]] * 70, folder=tmp_path), progress=lambda done, total: told.append((done, total)))
    assert told == [(32, 70), (64, 70), (70, 70)]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process in this way")
def test_a_image_that_kills_its_process_is_bad_and_the_others_are_not():
    deadly = (70, 130)
    names = [f"image {index}" for index in range(200)]
    seen = inspect_images(LazyBytes(names, partial(load_or_die, deadly=deadly)), num_workers=2)
    assert seen.bad == tuple(BadImage(index, f"image {index}", "the process that decoded it died") for index in deadly)
    assert seen.readable.tolist() == [index for index in range(200) if index not in deadly]


@pytest.mark.slow
def test_processes_see_the_same_as_one_process(tmp_path):
    made = dataset([[0]] * 70, folder=tmp_path, images={3: b"", 66: None})
    alone, together = (inspect_images(made.images, num_workers=workers) for workers in (0, 2))
    assert alone.bad == together.bad
    for name in ("sizes", "digests", "thumbnails"):
        assert np.array_equal(getattr(alone, name), getattr(together, name))


def test_images_that_cannot_be_sent_to_a_process_are_read_in_this_one(caplog):
    seen = inspect_images(LazyBytes(["a", "b"], lambda position: noise(position)), num_workers=1)
    assert seen.readable.tolist() == [0, 1]
    assert "decoding in the main process" in caplog.text


def test_a_image_that_cannot_be_fetched_is_bad():
    seen = inspect_images(LazyBytes(["a"], {}.__getitem__))
    assert seen.bad == (BadImage(0, "a", "it could not be fetched: KeyError: 0"),)


def test_a_negative_number_of_workers_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="num_workers must be 0 or more, got -1"):
        check(dataset([[0]], folder=tmp_path), num_workers=-1)


@pytest.mark.slow
def test_the_page_shows_what_was_found(tmp_path):
    rows = [[0, 1]] * 6 + [[0]] * 6 + [[], [2]]
    made = dataset(rows, ["$a$", "<b>", "c"], folder=tmp_path, images={1: noise(0), 5: b"", 6: b""})
    html = check_page(check(made), made).html()
    for words in (
        "Problem</b> 2 of 14 images",
        "5.png",
        "<b>1</b><span>duplicate<",
        "The same file",
        "$a$",
        "&lt;b&gt;",
        "without a label",
    ):
        assert words in html


def test_each_whole_number_has_a_bar_and_outliers_of_others_are_clipped():
    assert ">5</text>" in draw_histogram([1] * 999 + [5], what="labels", caption="Labels")
    assert ">9</text>" not in draw_histogram([1.1, 1.2] * 499 + [9.5], what="ratio", caption="Ratio")


@pytest.mark.slow
def test_the_page_of_very_many_labels_stays_small(tmp_path):
    num_labels = 9_600
    rng = np.random.default_rng(0)
    rows = [rng.choice(num_labels, 60, replace=False).tolist() for _ in range(40)]
    labels = [f"a label with a long name, number {position}" for position in range(num_labels)]
    made = dataset(rows, labels, folder=tmp_path)
    assert len(check_page(check(made), made).html()) < 5_000_000


@pytest.mark.parametrize("rows", [[], [[]], [[0]]])
def test_the_page_of_next_to_nothing_can_be_drawn(rows, tmp_path):
    made = dataset(rows, "a", folder=tmp_path, images={0: b""})
    assert "Problem" in check_page(check(made), made).html()


@pytest.mark.slow
def test_the_page_opens_in_a_browser(browser, tmp_path):
    made = scenes(12)
    browser.get_log("browser")
    browser.get(check_page(check(made), made).write(tmp_path / "page.html").as_uri())
    assert browser.title == "Check of scenes"
    broken = "return [...document.images].filter(image => !image.complete || !image.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    assert browser.get_log("browser") == []


def test_finds_spelling_variants_typos_and_what_the_reader_merged(tmp_path):
    rows = [(f"{number}.jpg", "motorbike|dog") for number in range(40)]
    rows += [("a.jpg", "MOTORBIKE"), ("b.jpg", "motor bike"), ("c.jpg", "motorbke"), ("0.jpg", "cat"), ("d.jpg", "")]
    dataset = load([(name, tags.split("|")) for name, tags in rows], images=tmp_path)
    report = check(dataset)
    assert report.variants == (("motorbike", "MOTORBIKE", "motor bike"),)
    assert report.typos == (("motorbke", "motorbike"),)
    spelling, typos, merged, different, *_ = report.warnings
    assert "motorbike (40) = MOTORBIKE (1) = motor bike (1)" in spelling
    assert "rename=motorbke:motorbike" in typos
    assert merged == "1 image is in several rows, which were merged: '0.jpg'"
    assert "different tags" in different
    assert any("1 image (2.3%) has no label, and counts as negative" in words for words in report.warnings)
    assert report.to_dict()["typos"] == [["motorbke", "motorbike"]]


@pytest.mark.slow
def test_the_verdict_counts_problems_and_warnings():
    report = check(scenes(60))
    assert replace(report, problems=(), warnings=()).verdict == "No problems found."
    assert replace(report, problems=(), warnings=("a", "b")).verdict == "No problems found; 2 warnings."
    assert "Found 1 problem" in replace(report, problems=("a",)).verdict
    html = check_page(replace(report, problems=(), warnings=("careful",)), scenes(60)).html()
    assert html.count("<b>Warning</b>") == 1
    assert '<p class="note note"><b>Note</b> No problems found; 1 warning.</p>' in html
