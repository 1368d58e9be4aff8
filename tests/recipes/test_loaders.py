from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from manylabel import Classifier, heads
from manylabel.data import class_aware_sampler
from manylabel.features import FeatureCache
from manylabel.features import cache as cache_module
from manylabel.recipes import Reporter, Setup
from manylabel.recipes.loaders import CachedSets, cache_sets, make_loaders
from manylabel.recipes.setup import TrainAndVal
from manylabel.settings import LoopSettings
from manylabel.targets import Targets
from tiny_features import make_dataset, write_images


def test_images_and_weights_are_hashed_once_in_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    write_images(tmp_path / "images", 12)
    dataset = make_dataset(tmp_path / "images")
    sets = TrainAndVal(dataset.subset(range(8)), dataset.subset(range(8, 12)))
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=dataset.labels, pretrained=False, image_size=32
    )
    model.backbone.freeze()
    hashed = {"image_ids": 0, "fingerprint_weights": 0}

    def counted(name, real):
        return lambda given: hashed.update({name: hashed[name] + 1}) or real(given)

    for name in hashed:
        monkeypatch.setattr(cache_module, name, counted(name, getattr(cache_module, name)))
    settings = SimpleNamespace(workers=0, device="cpu", devices=1, num_views=lambda count: 2)
    setup = Setup(settings, sets, sets, model, nn.Identity(), model.head, model.backbone)
    cached = cache_sets(setup, Reporter())
    assert (len(cached.train), cached.train.num_views, len(cached.val), cached.val.num_views) == (8, 2, 4, 1)
    assert hashed == {"image_ids": 2, "fingerprint_weights": 1}  # of the training and of the validation set


@pytest.mark.parametrize("cached", [True, False])
def test_the_sampler_draws_rare_labels_as_often_as_others(tmp_path, monkeypatch, cached):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    write_images(tmp_path / "images", 12)
    present = [[0]] * 10 + [[1]] * 2
    dataset = replace(make_dataset(tmp_path / "images"), targets=Targets.from_lists(present, num_labels=3))
    settings = LoopSettings(sampler="class_aware", batch_size=4, seed=3, workers=0, device="cpu")
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=dataset.labels, pretrained=False, image_size=32
    )
    model.backbone.freeze()
    sets = TrainAndVal(dataset, dataset)
    if cached:
        features = FeatureCache(model.backbone, num_workers=0)
        sets = CachedSets(*[features.fill(features.plan(dataset, pooling="average"))] * 2)
    loaders = make_loaders(sets, settings, model=model)
    drawn = torch.cat([batch.indices for batch in loaders.train]).tolist()
    assert drawn == list(class_aware_sampler(dataset.targets, seed=3))
    more = torch.cat([batch.indices for _ in range(20) for batch in loaders.train])
    assert 0.4 < float((more >= 10).float().mean()) < 0.6  # 2 of 12 images
    assert torch.cat([batch.indices for batch in loaders.val]).tolist() == list(range(12))
    shuffled = make_loaders(sets, replace(settings, sampler="shuffle"), model=model).train
    assert sorted(torch.cat([batch.indices for batch in shuffled]).tolist()) == list(range(12))
