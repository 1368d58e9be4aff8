"""Heads on frozen features, from a data spec to a model that can be loaded."""

import csv
import io
import logging
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
import yaml
from rich.console import Console
from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import LazyBytes, folder, scenes
from manylabel.data.sampling import every_image
from manylabel.errors import ConfigError
from manylabel.features import FeatureCache
from manylabel.heads import LinearClassifier
from manylabel.recipes import (
    RECIPES,
    Finetune,
    Probe,
    RepresentationMixup,
    TrainAndVal,
    finetune,
    loaders,
    probe,
    representation_mixup,
)
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.setup import resolve
from manylabel.training import Share, read_metrics, shared_sampler

pytestmark = pytest.mark.slow  # test_recipe.py is quick


def test_a_finished_run_is_not_trained_again(quick, tmp_path):
    settings = Probe(**quick, out=tmp_path / "run", head="linear")
    run = probe(settings)
    written = (run.model / "model.safetensors").stat().st_mtime_ns
    probe(settings, resume=True)
    assert (run.model / "model.safetensors").stat().st_mtime_ns == written


def test_the_frozen_backbone_stays_as_it_is_and_finetune_changes_it(quick, sets, tmp_path):
    first = probe(Probe(**quick, out=tmp_path / "probe", head="linear"), sets=sets)
    tuned = finetune(Finetune(**quick, out=tmp_path / "tuned", head="linear"), sets=sets)
    torch.manual_seed(0)
    start = Classifier.create(
        "resnet10t", head=LinearClassifier, labels=sets.train.labels, pretrained=False, frozen=True, image_size=64
    ).backbone.state_dict()
    frozen, changed = (Classifier.from_pretrained(run.model).backbone.state_dict() for run in (first, tuned))
    assert all(torch.equal(value, frozen[name]) for name, value in start.items())
    assert not all(torch.equal(value, changed[name]) for name, value in start.items())


def test_training_without_a_cache_is_the_same_but_for_rounding(quick, sets, tmp_path):
    quick |= {"head": "linear", "views": 1}
    models = [probe(Probe(**quick, out=tmp_path / str(cache), cache=cache), sets=sets).model for cache in (True, False)]
    cached, direct = (Classifier.from_pretrained(model).head.state_dict() for model in models)
    assert all(torch.allclose(value, direct[name], atol=1e-3) for name, value in cached.items())


def test_views_are_drawn_from(quick, sets, tmp_path):
    plain, varied = (
        probe(Probe(**quick, out=tmp_path / str(views), head="linear", views=views), sets=sets).model
        for views in (1, 2)
    )
    one, other = (Classifier.from_pretrained(model).head.linear.weight for model in (plain, varied))
    assert not torch.equal(one, other)


def test_single_label_data_train_with_a_softmax(quick, tmp_path):
    images = scenes(12, size=64)
    for number in range(12):
        place = tmp_path / "photos" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.jpg").write_bytes(images.images[number])
    settings = Probe(**{**quick, "data": f"folder:{tmp_path / 'photos'}"}, out=tmp_path / "run", head="linear")
    assert folder(tmp_path / "photos").single_label
    run = probe(settings)
    assert Classifier.from_pretrained(run.model).single_label
    assert "val_accuracy" in run.metrics.read_text()


class OwnHead(nn.Module):
    def __init__(self, in_channels, num_labels, factor=1):
        super().__init__()
        self.in_channels, self.num_labels, self.factor = in_channels, num_labels, factor
        self.linear = nn.Linear(in_channels, num_labels)

    def forward(self, features):
        return self.factor * self.linear(features[-1].amax((2, 3)))


@pytest.mark.parametrize("recipe", ["probe", "finetune"])
def test_a_head_of_ones_own_trains_with_the_settings_that_were_given(recipe, quick, sets, tmp_path):
    train, kind = RECIPES[recipe], RECIPES[recipe].settings
    settings = replace(kind(**quick, head_settings={"factor": 2}), out=tmp_path / "run")
    run = train(settings, sets=sets, head=OwnHead)
    head = Classifier.from_pretrained(run.model, head=OwnHead).head
    assert (head.num_labels, head.factor) == (24, 2)
    told = yaml.safe_load((run.path / "config.yaml").read_text())
    assert (told["head"], told["head_settings"]) == (f"{OwnHead.__module__}:OwnHead", {"factor": 2})
    (run.model / "config.json").unlink()  # as if it had ended before
    assert train(settings, sets=sets, head=OwnHead, resume=True).is_finished


def test_the_name_of_a_head_of_ones_own_is_not_enough(quick, sets, tmp_path):
    with pytest.raises(ConfigError, match="is a Python object; call the recipe"):
        probe(Probe(**quick, out=tmp_path / "other", head="tests:OwnHead"), sets=sets)


def test_a_loss_that_does_not_fit_is_refused(quick, sets, tmp_path):
    settings = Probe(**quick, out=tmp_path / "run", loss="cross_entropy")
    with pytest.raises(ConfigError, match="cross_entropy does not fit images with any number of labels"):
        probe(settings, sets=sets)
    settings = Probe(**quick, out=tmp_path / "other", loss_settings={"gama": 1})
    with pytest.raises(ConfigError, match="AsymmetricLoss has no setting 'gama'"):
        probe(settings, sets=sets)


def test_labels_that_cannot_be_learned_are_told(quick, sets, tmp_path, caplog):
    few = TrainAndVal(sets.train.subset([0]), sets.val)
    with caplog.at_level(logging.WARNING, "manylabel"):
        probe(Probe(**{**quick, "epochs": 1}, out=tmp_path / "run"), sets=few)
    told = " ".join(caplog.messages)
    assert "no training image has any of" in told


def watched_poolings(monkeypatch):
    """Return a list that fills with the pooling of all features that are cached from now on."""
    poolings, fill = [], FeatureCache.fill

    def watched(self, plan, **settings):
        poolings.append(plan.specs[0].pooling)
        return fill(self, plan, **settings)

    monkeypatch.setattr(FeatureCache, "fill", watched)
    return poolings


def test_representation_mixup_caches_one_vector_per_map_and_reports_its_gain(quick, sets, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    asked, console = watched_poolings(monkeypatch), Console(file=io.StringIO(), width=200)
    settings = RepresentationMixup(**quick, out=tmp_path / "run")
    run = representation_mixup(settings, sets=sets, reporter=Reporter(console))
    assert asked == ["max_average"] * 4  # for the mixture and for the head without it, which finds them there
    said = re.search(r"gain over the same head without the mixture: (\S+) mAP", console.file.getvalue())
    mixed, plain = read_metrics(run.metrics), read_metrics(run.path / "baseline" / "metrics.csv")
    difference = 100 * (mixed[-1]["val_mAP"] - plain[-1]["val_mAP"])
    assert float(said[1]) == pytest.approx(difference, abs=0.006)
    assert plain != mixed


def with_bad_image(sets, bad):
    """Return the sets, one of the images to train on broken."""
    good = sets.train.images
    names = [good.name(index) for index in range(len(good))]
    images = LazyBytes(names, load=lambda index: b"no image" if index == bad else good[index])
    return TrainAndVal(replace(sets.train, images=images, name="one is bad"), sets.val)


def test_a_bad_image_does_not_keep_whole_maps_from_serving(quick, sets, tmp_path, monkeypatch):
    from manylabel.recipes.plan import plan

    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    asked = watched_poolings(monkeypatch)
    monkeypatch.setattr(loaders, "FeatureCache", partial(loaders.FeatureCache, max_bad_fraction=0.5))
    sets = with_bad_image(sets, 1)
    probe(Probe(**quick, out=tmp_path / "maps", head="csra", views=1), sets=sets)
    pooled = Probe(**quick, out=tmp_path / "pooled", head="linear", views=1)
    planned = []
    real = loaders.plan_sets
    monkeypatch.setattr(
        "manylabel.recipes.plan.plan_sets", lambda *a, **k: planned.append(real(*a, **k)) or planned[-1]
    )
    plan(probe.setup(pooled, sets=sets))
    probe(pooled, sets=sets)
    assert asked == ["none"] * 4
    ((_, (train, val)),) = planned
    assert (train.specs[0].pooling, train.missing, val.missing) == ("none", 1, 0)


@pytest.mark.parametrize("keep", ["last", "best"])
def test_an_epoch_whose_last_batch_is_bad_is_validated(keep, quick, sets, tmp_path, monkeypatch):
    monkeypatch.setattr(loaders, "ImageLoader", partial(loaders.ImageLoader, max_bad_fraction=0.5))
    few = TrainAndVal(sets.train.subset(range(9)), sets.val)
    last = list(shared_sampler(every_image(9), Share()))[-1]
    settings = Probe(**quick, out=tmp_path / "run", head="linear", cache=False, keep=keep)
    run = probe(settings, sets=with_bad_image(few, last))
    with run.metrics.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], 0 <= float(row["val_mAP"]) <= 1) for row in rows] == [("2", True), ("4", True)]


def test_whole_maps_of_an_earlier_run_serve_a_head_that_pools(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    probe(Probe(**quick, out=tmp_path / "maps", head="csra"))
    asked = watched_poolings(monkeypatch)
    probe(Probe(**quick, out=tmp_path / "pooled", head="linear"))
    assert asked == ["none", "none"]


def test_few_images_are_cached_in_several_views_and_many_in_one():
    settings = Probe(data="x")
    assert [settings.num_views(count) for count in (10, 6_250, 10_000, 82_081)] == [4, 4, 2, 1]
    assert Probe(data="x", views=3).num_views(82_081) == 3


def test_heads_on_frozen_features_are_small_unless_asked_otherwise():
    def head_settings(**given):
        return resolve(Probe(data="x", **given)).head_settings

    small = {"width": 256, "feedforward": 512}
    assert head_settings(head="hsq") == small
    assert head_settings(head="token_encoder") == {**small, "num_layers": 1}
    assert head_settings(head_settings={"width": 768}) == {"width": 768, "feedforward": 512, "add_csra": True}
    assert head_settings(head="linear") == {}


def test_dropped_channels_change_training_and_are_not_part_of_the_model(quick, sets, tmp_path):
    quick |= {"head": "linear", "views": 1}
    runs = [probe(Probe(**quick, out=tmp_path / str(share), feature_dropout=share), sets=sets) for share in (0.0, 0.5)]
    plain, dropped = (Classifier.from_pretrained(run.model).train() for run in runs)
    assert not torch.equal(plain.head.linear.weight, dropped.head.linear.weight)
    maps = [torch.ones(2, 512, 2, 2)]
    assert torch.equal(dropped.head(maps), dropped.head(maps))
