"""Fine-tuning the top of a backbone on cached maps of its bottom."""

import signal
from dataclasses import replace

import pytest
import torch
from lightning import Callback
from torch import nn

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier, change_config
from manylabel.errors import ConfigError, RunInterruptedError
from manylabel.evaluation import compute_metrics, score
from manylabel.heads import LinearClassifier
from manylabel.recipes import (
    Finetune,
    Parts,
    Probe,
    Reporter,
    TrainAndVal,
    finetune,
    probe,
)
from manylabel.recipes.finetune import START_FRACTIONS, TopAndHead, choose_stage, mix_in
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.setup import resolve


@pytest.fixture
def settings(quick, tmp_path):
    """Settings that train the last stage of a small network."""
    return Finetune(**quick | {"epochs": 2}, head="linear", train_from="2", augment=False, out=tmp_path / "run")


class RunsBottom(nn.Module):
    """Bottom, top and head, run on images in every step."""

    def __init__(self, bottom, trained):
        super().__init__()
        self.bottom, self.backbone, self.head = bottom, trained.backbone, trained.head

    def forward(self, images):
        with torch.no_grad():
            features = self.bottom(images)
        return self.head(self.backbone(features))


def run_bottom_each_step(settings, data, parts):
    setup = finetune.prepare(settings, data, parts)
    return replace(setup, cached=None, trained=RunsBottom(setup.cached, setup.trained))


@pytest.mark.slow
def test_cached_maps_train_like_a_frozen_bottom_run_in_every_step(settings, sets, tmp_path):
    settings = replace(settings, optimizer="sgd", learning_rate=0.02)
    start = finetune.setup(settings, sets=sets).model.state_dict()
    online = replace(finetune, prepare=run_bottom_each_step)(replace(settings, out=tmp_path / "other"), sets=sets)
    expected, found = (
        Classifier.from_pretrained(run.model).state_dict() for run in (online, finetune(settings, sets=sets))
    )
    changed = {name for name, value in found.items() if not torch.equal(value, start[name])}
    assert {name.split(".")[2] if name.startswith("backbone.") else "head" for name in changed} == {"layer4", "head"}
    assert not any("running" in name for name in changed)
    moved, apart = (
        torch.cat([(found[name] - other[name]).flatten() for name in changed]).norm() for other in (start, expected)
    )
    assert apart < 0.01 * moved  # maps are cached in half precision
    assert all(torch.equal(value, expected[name]) for name, value in found.items() if name not in changed)


@pytest.mark.slow
def test_a_saved_model_predicts_what_was_validated(settings, sets):
    run = finetune(replace(settings, augment=True), sets=sets)
    model = Classifier.from_pretrained(run.model)
    values, known = map(torch.from_numpy, sets.val.targets.dense())
    from manylabel.metrics import mean_average_precision

    scores = model.predict([sets.val.images[index] for index in range(len(sets.val))]).scores
    measured = mean_average_precision(torch.from_numpy(scores), values, known)
    assert float(run.metrics.read_text().splitlines()[-1].split(",")[4]) == pytest.approx(float(measured), abs=2e-3)


class Stop(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == 4:
            signal.raise_signal(signal.SIGTERM)


class Stopping(Reporter):
    callbacks = [Stop()]


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_weights(settings, sets, tmp_path):
    settings = replace(settings, augment=True)
    whole = finetune(settings, sets=sets)
    other = replace(settings, out=tmp_path / "stopped")
    with pytest.raises(RunInterruptedError):
        finetune(other, sets=sets, reporter=Stopping())
    resumed = finetune(other, sets=sets, resume=True)
    one, two = (Classifier.from_pretrained(run.model).state_dict() for run in (whole, resumed))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.slow
def test_crops_of_training_images_are_cached_as_views(settings, sets):
    cached = cache_sets(finetune.setup(replace(settings, views=3), sets=sets), Reporter())
    assert (cached.train.num_views, cached.val.num_views) == (3, 1)
    (image,), (crop,) = (cached.train.read([0], view) for view in (0, 2))
    assert not torch.equal(image, crop)


def test_whole_networks_have_no_cached_crops(settings):
    with pytest.raises(ConfigError, match="views is 3, but train_from=all trains on images"):
        replace(settings, views=3, train_from="all")


def test_maps_are_mirrored_in_training_only():
    backbone = Backbone("resnet10t", pretrained=False, stages=(-1,), image_size=64)
    bottom, top = backbone.split(2)
    module = TopAndHead(top, nn.Identity(), mirror=True)
    maps = bottom(torch.rand(16, 3, 64, 64))
    plain, flipped = module.eval()(maps)[0], module([maps[0].flip(3)])[0]
    mixed = module.train()(maps)[0]
    is_plain, is_flipped = (torch.isclose(mixed, each, atol=1e-5).all((1, 2, 3)) for each in (plain, flipped))
    assert (is_plain | is_flipped).all()
    assert is_plain.any()
    assert is_flipped.any()


def test_maps_of_all_stages_are_cropped_to_the_same_window_in_training_only():
    class Corners(nn.Module):
        def forward(self, features):
            return features

    module = TopAndHead(Corners(), Corners(), crop=True)
    fine = torch.arange(32.0).expand(2, 1, 32, 32)  # columns, finer by a factor of two
    features = [fine, fine[:, :, ::2, ::2]]
    assert module.eval()(features) is features
    seen = [module.train()(features) for _ in range(20)]
    assert all(torch.equal(below[:, :, ::2, ::2], last) for below, last in seen)
    assert {tuple(last.shape[2:]) for _, last in seen} <= {
        (rows, columns) for rows in range(12, 17) for columns in range(12, 17)
    }
    assert len({tuple(last.shape) for _, last in seen}) > 5
    assert len({last[0, 0, 0, 0].item() for _, last in seen}) > 2  # it moves


@pytest.mark.slow
def test_the_learning_rate_of_the_top_is_lower(settings, sets):
    setup = finetune.setup(settings, sets=sets)
    assert setup.backbone_scale == 0.25
    assert finetune.setup(replace(settings, train_from="all"), sets=sets).backbone_scale == 0.05
    assert finetune.setup(replace(settings, backbone_scale=0.5), sets=sets).backbone_scale == 0.5


def test_the_cut_is_chosen_by_cost():
    def choose(parts=Parts(), num_images=1_000, **changes):  # noqa: B008 (frozen)
        return choose_stage(Finetune(data="x", **changes), backbone, num_images=num_images, parts=parts)

    backbone = Backbone("resnet10t", pretrained=False, stages=(-1,))
    assert choose() == 1
    assert choose(num_images=200_000) == 2  # 20 GB in all
    assert choose(num_images=10**9) is None
    assert choose(train_from="layer1") == "layer1"
    assert choose(train_from="-2") == -2
    for images in ({"pretrained": False}, {"freeze_epochs": 1}, {"keep_statistics": False}, {"train_from": "all"}):
        assert choose(**images) is None
    assert choose(Parts(transform=torch.nn.Identity())) is None
    with pytest.raises(ConfigError, match="train_from=2 trains on cached maps, but freeze_epochs needs images"):
        choose(train_from="2", freeze_epochs=1)


@pytest.mark.parametrize(("stage", "words"), [("-1", "after its final stage"), ("no.such", "cannot be cut after")])
def test_a_backbone_that_cannot_be_cut_there_is_one_sentence(settings, sets, stage, words):
    with pytest.raises(ConfigError, match=words):
        finetune(replace(settings, train_from=stage), sets=sets)
    assert not settings.out.exists()


@pytest.mark.slow
def test_freezing_first_needs_an_epoch_more_for_the_backbone_to_change(quick, sets, tmp_path):
    run = finetune(Finetune(**quick, out=tmp_path / "run", head="linear", freeze_epochs=2), sets=sets)
    torch.manual_seed(0)
    start = Classifier.create(
        "resnet10t", head=LinearClassifier, labels=sets.train.labels, pretrained=False, image_size=64
    ).backbone.state_dict()
    found = Classifier.from_pretrained(run.model).backbone.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in start.items())


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(quick, sets, tmp_path):
    import signal

    from lightning import Callback

    from manylabel.recipes import Reporter

    class Stop(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.global_step == 5:
                signal.raise_signal(signal.SIGTERM)

    class Stopping(Reporter):
        callbacks = [Stop()]

    settings = {**quick, "head": "csra"}
    whole = finetune(Finetune(**settings, out=tmp_path / "whole"), sets=sets)
    with pytest.raises(RunInterruptedError):
        finetune(Finetune(**settings, out=tmp_path / "run"), sets=sets, reporter=Stopping())
    resumed = finetune(Finetune(**settings, out=tmp_path / "run"), sets=sets, resume=True)
    one, other = (Classifier.from_pretrained(run.model).state_dict() for run in (whole, resumed))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.slow
def test_finetuning_goes_on_from_a_trained_model(quick, sets, tmp_path):
    quick |= {"head": "linear", "views": 1}
    first = probe(Probe(**quick, out=tmp_path / "probe"), sets=sets)
    quick = {name: value for name, value in quick.items() if name not in ("head", "views")}
    change_config(first.model, {"thresholds": [0.25] * len(sets.train.labels)})
    still = {"start_from": str(first.path), "learning_rate": 1e-12, "augment": False, "ema_decay": 0.0}
    tuned = finetune(Finetune(**quick, **still, out=tmp_path / "tuned"), sets=sets)
    blurred = finetune(Finetune(**quick, **still, keep_statistics=False, out=tmp_path / "blurred"), sets=sets)
    before, after, other = (Classifier.from_pretrained(run.model) for run in (first, tuned, blurred))
    assert torch.allclose(before.head.linear.weight, after.head.linear.weight)
    assert (before.thresholds is not None, after.thresholds) == (True, None)  # they were for the weights before
    name = next(name for name in before.backbone.state_dict() if name.endswith("running_mean"))
    statistics = [model.backbone.state_dict()[name] for model in (before, after, other)]
    assert torch.equal(statistics[0], statistics[1])
    assert not torch.equal(statistics[0], statistics[2])


@pytest.mark.slow
def test_the_start_keeps_its_share_of_the_finished_model(quick, sets, tmp_path):
    quick |= {"head": "linear", "views": 1}
    first = probe(Probe(**quick, out=tmp_path / "probe"), sets=sets)
    quick = {name: value for name, value in quick.items() if name not in ("head", "views")}
    start = {"start_from": str(first.model), "augment": False}
    runs = [
        finetune(Finetune(**quick, **start, start_fraction=share, out=tmp_path / f"{share}"), sets=sets)
        for share in (0.0, 0.25, None)
    ]
    models = [Classifier.from_pretrained(run.model) for run in (first, *runs)]
    begun, tuned, mixed, chosen = (model.state_dict() for model in models)
    assert not torch.equal(begun["head.linear.weight"], tuned["head.linear.weight"])
    for name, weights in mixed.items():
        if weights.is_floating_point():
            torch.testing.assert_close(weights, 0.25 * begun[name] + 0.75 * tuned[name])
    reached = {}
    for fraction in START_FRACTIONS:
        models[2].load_state_dict(tuned)
        mix_in(models[2], begun, fraction=fraction)
        reached[fraction] = compute_metrics(score(models[2], sets.val))["mAP"]
    best = max(reached, key=lambda fraction: reached[fraction])
    name = "head.linear.weight"
    torch.testing.assert_close(chosen[name], torch.lerp(tuned[name], begun[name], best))
    with pytest.raises(ConfigError, match="start_from is not set; name a model"):
        Finetune(**quick, start_fraction=0.5)


@pytest.mark.slow
def test_finetuning_refuses_a_model_of_other_labels(quick, sets, tmp_path):
    first = probe(Probe(**quick, out=tmp_path / "probe", head="linear"), sets=sets)
    fewer = TrainAndVal(*(part.select_labels(sets.train.labels.names[1:]) for part in (sets.train, sets.val)))
    with pytest.raises(ConfigError, match=r"the labels of .* differ"):
        finetune(Finetune(**quick, out=tmp_path / "tuned", start_from=str(first.model)), sets=fewer)


def test_a_cut_backbone_takes_the_probes_head_and_a_whole_one_that_of_the_paper():
    assert resolve(Finetune(data="x")).head_settings == resolve(Probe(data="x")).head_settings
    for whole in ({"train_from": "all"}, {"pretrained": False}):
        assert resolve(Finetune(data="x", **whole)).head_settings == {}
