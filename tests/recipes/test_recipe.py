"""The skeleton that all recipes share, around a training that does nothing."""

import io
import math
import re
import socket
import tempfile
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from manylabel import progress
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, OutputExistsError, TrainingError
from manylabel.losses import AsymmetricLoss, CrossEntropy, Hill
from manylabel.recipes import RECIPES, Probe, Reporter, TrainAndVal, probe, recipe
from manylabel.recipes.recipe import save_model
from manylabel.recipes.setup import Parts
from manylabel.runs import Run
from manylabel.targets import Targets
from manylabel.training import RunFolder, read_metrics


def save_only(setup, run, reporter):
    run.save(setup.model)


def fail(setup, run, reporter):
    raise TrainingError("too hot")


def fail_later(setup, run, reporter):
    (run.checkpoints / "last.ckpt").touch()
    raise TrainingError("too hot")


@pytest.fixture
def settings(quick, tmp_path):
    return Probe(**quick, head="linear", out=tmp_path / "run")


def test_a_run_that_fails_before_anything_is_saved_leaves_no_folder(settings, sets):
    with pytest.raises(TrainingError, match="too hot"):
        replace(probe, train=fail)(settings, sets=sets)
    assert not settings.out.exists()
    assert replace(probe, train=save_only)(settings, sets=sets).is_finished


def test_no_phase_of_a_run_is_silent(settings, sets, monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.05)
    slow = replace(probe, train=lambda *given: time.sleep(0.2) or save_only(*given))
    slow(settings, sets=sets, reporter=Reporter(Console(file=text, width=200)))
    lines = text.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if "training images" in line)
    assert all(re.fullmatch(rf"working on {settings.out}: \d+ s", line) for line in lines[first + 1 : -1])
    assert len(lines[first + 1 : -1]) >= 2
    assert lines[-1] == f"the model is in {settings.out}/model"


def test_a_run_that_fails_later_can_be_resumed(settings, sets):
    with pytest.raises(TrainingError):
        replace(probe, train=fail_later)(settings, sets=sets)
    with pytest.raises(OutputExistsError, match="--resume"):
        replace(probe, train=save_only)(settings, sets=sets)
    assert replace(probe, train=save_only)(settings, sets=sets, resume=True).is_finished


@pytest.mark.parametrize("wrong", [{"head": "lineal"}, {"backbone": "resnet0"}, {"loss": "cross_entropy"}], ids=str)
def test_what_cannot_be_trained_does_not_cost_the_run_that_it_would_replace(settings, sets, wrong):
    recipe = replace(probe, train=save_only)
    run = recipe(settings, sets=sets)
    with pytest.raises(ConfigError):
        recipe(replace(settings, **wrong), sets=sets, overwrite=True)
    assert run.is_finished


def test_resuming_says_where_there_is_nothing_to_resume_and_removes_what_kills_left(
    settings, sets, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = tmp_path / "pymp-1234" / "listener-1"
    dead.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(dead))
    leftovers = [settings.out / name for name in ("checkpoints/.last.a1b2.ckpt", ".model.c3d4/new/model.safetensors")]
    for path in leftovers:
        path.parent.mkdir(parents=True)
        path.touch()
    text = io.StringIO()
    reporter = Reporter(Console(file=text, width=300))
    replace(probe, train=save_only)(settings, sets=sets, resume=True, reporter=reporter)
    assert f"no checkpoint in {settings.out}, starting from epoch 1" in text.getvalue()
    assert list(settings.out.rglob(".*")) == []
    assert not dead.parent.exists()


def test_a_finished_run_is_neither_prepared_nor_trained_again(settings, sets):
    run = replace(probe, train=save_only)(settings, sets=sets)
    again = replace(probe, train=fail, prepare=fail)(settings, sets=sets, resume=True)
    assert again == run


@pytest.mark.slow
def test_no_epoch_is_selected_by_an_undefined_map(settings, sets, caplog):
    empty = replace(
        sets.val, targets=Targets.from_lists([[] for _ in range(len(sets.val))], num_labels=len(sets.val.labels))
    )
    without = replace(sets, val=empty)
    for selecting in ({"patience": 2}, {"keep": "best"}):
        with pytest.raises(ConfigError, match=r"none of the \d+ validation images .* has a label, so mAP is undefined"):
            probe(replace(settings, **selecting), sets=without)
        assert not settings.out.exists()
    caplog.set_level("WARNING", "manylabel")
    run = probe(settings, sets=without)
    assert "set other images with --val to evaluate" in caplog.text
    assert all(math.isnan(row["val_mAP"]) for row in read_metrics(run.metrics))
    assert Run.read(run.path).mean_average_precision is None


def test_no_epoch_is_selected_if_nothing_is_known_to_be_absent(settings, sets, caplog):
    without = replace(sets, val=replace(sets.val, targets=sets.val.targets.forget_absent()))
    with pytest.raises(ConfigError, match=r"is known to be absent, so mAP is always 100; set other images"):
        probe.setup(replace(settings, keep="best"), sets=without)
    caplog.set_level("WARNING", "manylabel")
    probe.setup(settings, sets=without)
    assert "mAP is always 100; set other images with --val" in caplog.text


def test_positive_weights_are_not_set_on_a_loss_object(settings, sets):
    with pytest.raises(ConfigError, match="a loss object has its own positive weights"):
        probe.setup(replace(settings, positive_weights=True), sets=sets, parts=Parts(loss=AsymmetricLoss()))


@pytest.fixture
def setup(settings, sets):
    return probe.setup(settings, sets=sets)


def saved(setup, *, num_images, scale=1.0):
    """Save a model whose scores tell present labels from others, but at 0.2 instead of 0.5; return it and the log."""
    generator, text = torch.Generator().manual_seed(0), io.StringIO()
    reporter = Reporter(Console(file=text, width=300))
    truth = torch.rand(num_images, len(setup.model.labels), generator=generator) < 0.3
    logits = scale * (2.0 * truth - 3.0 + torch.randn(truth.shape, generator=generator) / 2)
    reporter.scores.last, reporter.scores.targets = logits.sigmoid(), truth
    reporter.scores.known = torch.ones_like(truth)
    run = RunFolder.open(setup.settings.out)
    save_model(setup, run, reporter)
    return Classifier.from_pretrained(run.model), text.getvalue()


@pytest.mark.slow
def test_a_model_is_saved_with_tuned_thresholds(setup):
    model, log = saved(setup, num_images=200)
    assert model.calibration is not None
    assert len(model.thresholds) == len(model.labels)
    assert "thresholds and calibration are tuned on the validation images (CF1 " in log


def test_few_validation_images_are_not_tuned_on(setup):
    model, log = saved(setup, num_images=29)
    assert (model.thresholds, model.calibration) == (None, None)
    assert "29 validation images are too few" in log


def test_scores_that_tuning_does_not_improve_stay(setup):
    model, log = saved(setup, num_images=60, scale=0.0)
    assert (model.thresholds, model.calibration, log) == (None, None, "")


def test_tuning_can_be_disabled(settings, sets):
    setup = probe.setup(replace(settings, tune=False), sets=sets)
    assert saved(setup, num_images=200)[0].thresholds is None


@pytest.mark.parametrize(
    ("found", "chosen"),
    [((0.5, 0.6), 1), ((0.6, 0.5), 0), ((math.nan, math.nan), 0)],
)
def test_auto_takes_the_better_backbone(settings, sets, monkeypatch, found, chosen):
    text = io.StringIO()
    names = ("resnet10t", "resnet18")
    monkeypatch.setattr(recipe, "OFFLINE_CHOICES", names)
    monkeypatch.setattr(recipe, "compare_backbones", lambda train, names, **_: dict(zip(names, found, strict=True)))
    automatic = replace(settings, backbone="auto")
    run = replace(probe, train=save_only)(automatic, sets=sets, reporter=Reporter(Console(file=text, width=200)))
    assert Classifier.from_pretrained(run.model).backbone.name == names[chosen]
    assert f"backbone: {names[chosen]}, chosen by a quick comparison on these images" in text.getvalue()
    assert replace(probe, train=save_only)(automatic, sets=sets, resume=True).is_finished


def test_auto_takes_the_loss_for_incomplete_tags_and_says_so(settings, sets):
    tagged = TrainAndVal(replace(sets.train, incomplete=True), sets.val)
    assert isinstance(probe.setup(settings, sets=sets).loss, AsymmetricLoss)
    assert isinstance(probe.setup(replace(settings, loss="hill"), sets=tagged).loss, Hill)
    text = io.StringIO()
    trained = replace(settings, ema_decay=0.0)
    run = probe(trained, sets=tagged, reporter=Reporter(Console(file=text, width=200)))
    assert "loss: entropy_maximization, as the tags are incomplete; choose another with --loss" in text.getvalue()
    assert len(read_metrics(run.metrics)) == 2
    with pytest.raises(ConfigError, match="EntropyMaximization has no setting 'gamma_negative'"):
        probe.setup(replace(settings, loss_settings={"gamma_negative": 4}), sets=tagged)


def without_zeros(dataset, *, labels=slice(None)):
    values, known = dataset.targets.dense()
    values[~known] = -1
    values[:, labels] = np.where(values[:, labels] > 0, 1, -1)
    return replace(dataset, targets=Targets.from_dense(values))


def test_auto_takes_the_same_loss_where_nothing_is_known_to_be_absent(settings, sets):
    blank = TrainAndVal(without_zeros(sets.train), sets.val)
    text = io.StringIO()
    run = probe(settings, sets=blank, reporter=Reporter(Console(file=text, width=200)))
    assert "loss: entropy_maximization, as the tags are incomplete; choose another with --loss" in text.getvalue()
    assert Run.read(run.path).mean_average_precision is not None
    with pytest.raises(ConfigError, match=r"nothing absent is left to learn from; set --loss.unknown negative, or"):
        probe.setup(replace(settings, loss="asymmetric"), sets=blank)
    negative = replace(settings, loss_settings={"unknown": "negative"})
    assert isinstance(probe.setup(negative, sets=blank).loss, AsymmetricLoss)
    with pytest.raises(ConfigError, match=r"nothing absent is left to learn from"):
        probe.setup(replace(settings, loss_settings={"unknown": "ignore"}), sets=blank)


def test_auto_ignores_unknown_labels_where_some_are_known_to_be_absent(settings, sets):
    one_without_zeros = TrainAndVal(without_zeros(sets.train, labels=[0]), sets.val)
    blank_rows = np.arange(len(sets.train)) < len(sets.train) - 1  # one image with all of its tags
    nearly_all = TrainAndVal(replace(sets.train, targets=sets.train.targets.forget(blank_rows)), sets.val)
    for each in (one_without_zeros, nearly_all):
        loss = probe.setup(settings, sets=each).loss
        assert isinstance(loss, AsymmetricLoss)
        assert loss.unknown == "ignore"


def test_single_labels_keep_their_loss_where_nothing_is_known_to_be_absent(settings, sets):
    first = [sets.train.targets.present[[image]].indices[:1].tolist() for image in range(len(sets.train))]
    one_each = replace(sets.train, targets=Targets.from_lists(first, labels=sets.train.labels))
    single = TrainAndVal(without_zeros(one_each), sets.val)
    loss = probe.setup(replace(settings, single_label=True), sets=single).loss
    assert isinstance(loss, CrossEntropy)


@pytest.mark.parametrize(
    "recipe",
    [RECIPES["self_distillation"], pytest.param(RECIPES["zero_shot"], marks=pytest.mark.slow)],  # loads an encoder
)
def test_recipes_of_papers_keep_their_loss_for_incomplete_tags(recipe, quick, sets, tmp_path):
    own = recipe.settings(**quick, out=tmp_path / "run")
    tagged = TrainAndVal(replace(sets.train, incomplete=True), sets.val)
    complete, incomplete = (recipe.setup(own, sets=each).loss for each in (sets, tagged))
    assert type(incomplete) is type(complete)
    assert incomplete.unknown == "negative"
