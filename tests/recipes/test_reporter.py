import io
import json

import pytest
import torch
from rich.console import Console

from manylabel import progress
from manylabel.data import ImageDataset
from manylabel.data.sources import LazyBytes
from manylabel.recipes import Reporter
from manylabel.recipes.reporter import advise_on_labels, describe_validation, write_validation
from manylabel.targets import Targets
from manylabel.training import RunFolder, ValidationScores
from manylabel.types import LabelSpace


def test_a_log_gets_a_line_on_the_features_every_ten_seconds(monkeypatch):
    text, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    reporter = Reporter(Console(file=text, width=200))
    for done in (100, 600, 900):
        reporter.progress("features", done, 1000)
        now[0] += 10.0
    reporter.progress("features", 1000, 1000)
    assert text.getvalue().splitlines()[0] == "features: 600/1,000  about 8 s left"


def test_a_log_gets_no_line_where_all_features_are_there():
    text = io.StringIO()
    Reporter(Console(file=text)).progress("features", 1000, 1000)
    assert text.getvalue() == ""


def test_a_terminal_gets_a_bar_that_ends():
    text = io.StringIO()
    reporter = Reporter(Console(file=text, width=200, force_terminal=True))
    reporter.progress("features", 100, 1000)
    reporter.progress("features", 1000, 1000)
    assert "1000/1000" in text.getvalue()


def test_names_in_brackets_are_shown():
    text = io.StringIO()
    Reporter(Console(file=text, width=200)).say("the model is in runs/[a]/[/b]")
    assert text.getvalue() == "the model is in runs/[a]/[/b]\n"


def run_with(folder, *, last, best, targets, keep="last"):
    run = RunFolder.open(folder)
    scores = ValidationScores()
    scores.last, scores.best, scores.best_epoch = last, best, 4
    scores.targets, scores.known = targets, torch.ones_like(targets)
    write_validation(run, scores, keep=keep)
    return run


@pytest.fixture
def scored():
    """Scores of two epochs that differ by chance, and of one that is better; 120 images of five labels."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(120, 5, generator=generator) < 0.3
    first, second = (targets + torch.randn(120, 5, generator=generator) for _ in range(2))
    return {"targets": targets, "first": first, "second": second, "better": targets + 0.1 * first}


def test_map_is_reported_with_its_interval_and_no_epoch_that_is_better_by_chance(tmp_path, scored):
    ordered = sorted((scored["first"], scored["second"]), key=lambda scores: float(scores.mean()))
    run = run_with(tmp_path / "run", last=ordered[0], best=ordered[1], targets=scored["targets"])
    values = json.loads((run.path / "validation.json").read_text())
    assert values["num_images"] == 120
    assert values["mAP"]["low"] < values["mAP"]["value"] < values["mAP"]["high"]
    words = describe_validation(run, keep="last")
    assert f"mAP {100 * values['mAP']['value']:.2f} on 120 validation images (95 % interval " in words
    assert "epoch" not in words


def test_a_best_epoch_that_is_significantly_better_is_named(tmp_path, scored):
    run = run_with(tmp_path / "run", last=scored["first"], best=scored["better"], targets=scored["targets"])
    assert "; epoch 4 was better by " in describe_validation(run, keep="last")
    kept = run_with(tmp_path / "k", last=scored["first"], best=scored["better"], targets=scored["targets"], keep="best")
    assert "mAP 100.00 on 120" in describe_validation(kept, keep="best")
    assert "was better" not in describe_validation(kept, keep="best")


def dataset(*, labels, present):
    targets = Targets.from_lists(present, num_labels=len(labels))
    return ImageDataset(LazyBytes(list(map(str, range(len(present)))), bytes), targets, LabelSpace(labels))


def test_an_empty_label_is_named():
    told = advise_on_labels(dataset(labels=["cat", "dog"], present=[[0]]), what="training", effect="so it is lost")
    assert told == ["no training image has the label 'dog', so it is lost"]


def test_many_empty_labels_are_named_as_far_as_a_line_goes():
    labels = [f"label{number}" for number in range(20)]
    (told,) = advise_on_labels(dataset(labels=labels, present=[[0]]), what="validation", effect="so it is left out")
    assert told.startswith("no validation image has any of 19 labels, so they are left out: 'label1', 'label2', ")
    assert told.endswith(" and 9 more")


def test_nothing_is_said_when_all_is_well():
    assert advise_on_labels(dataset(labels=["cat"], present=[[0]]), what="training", effect="") == []
