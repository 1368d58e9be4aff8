import pickle

import numpy as np
import pytest
import torch

from manylabel.data import ImageLoader
from manylabel.data.sampling import class_aware_sampler
from manylabel.data.transforms import eval_transform
from manylabel.errors import ConfigError
from manylabel.features import FeatureLoader
from tiny_features import NUM_IMAGES, SPEC, cache


def batches_of(loader):
    return [(batch.indices.tolist(), batch.features[0].clone()) for batch in loader]


def test_order_and_views_follow_from_seed_and_epoch_alone(backbone, images, tmp_path):
    cached = cache(backbone, images, tmp_path, views=3)
    loader = FeatureLoader(cached, batch_size=5, shuffle=True, seed=4)
    epochs = [batches_of(loader) for _ in range(3)]
    assert epochs[0][0][0] != epochs[1][0][0]
    fresh = FeatureLoader(cached, batch_size=5, shuffle=True, seed=4)
    fresh.set_epoch(2)
    for (indices, features), (expected, right) in zip(batches_of(fresh), epochs[2], strict=True):
        assert indices == expected
        assert torch.equal(features, right)
    found = torch.cat([features for _, features in epochs[0]])
    indices = [index for batch, _ in epochs[0] for index in batch]
    views = torch.stack([cached.read(indices, view)[0] for view in range(3)])
    drawn = (views == found).flatten(2).all(2).int().argmax(0)
    assert set(drawn.tolist()) == {0, 1, 2}


def test_the_order_is_that_of_images(backbone, images, tmp_path):
    cached = cache(backbone, images, tmp_path)
    settings = {"batch_size": 5, "shuffle": True, "seed": 9}
    loaders = FeatureLoader(cached, **settings), ImageLoader(images, transform=eval_transform(SPEC), **settings)
    for ours, theirs in zip(*loaders, strict=True):
        assert torch.equal(ours.indices, theirs.indices)
        assert torch.equal(ours.targets, theirs.targets)
        assert torch.equal(ours.known, theirs.known)


def test_a_sampler_and_a_fixed_view_are_followed(backbone, images, tmp_path):
    cached = cache(backbone, images, tmp_path, views=2)
    sampler = class_aware_sampler(cached.dataset.targets, num_samples=7, seed=1)
    expected = list(sampler)
    loader = FeatureLoader(cached, batch_size=4, sampler=sampler, view=1)
    indices, features = zip(*batches_of(loader), strict=True)
    assert [index for batch in indices for index in batch] == expected
    assert torch.equal(torch.cat(features), cached.read(expected, view=1)[0])
    with pytest.raises(ConfigError, match="not both"):
        FeatureLoader(cached, sampler=sampler, shuffle=True)
    with pytest.raises(ConfigError, match="view must be 'random' or 0 to 1, got 2"):
        FeatureLoader(cached, view=2)


def test_a_part_reads_the_same_features_also_in_another_process(backbone, images, tmp_path):
    cached = cache(backbone, images, tmp_path, views=2)
    part = pickle.loads(pickle.dumps(cached.subset([9, 4])))
    assert len(pickle.dumps(cached)) < 100_000
    assert torch.equal(part.read([0, 1], 1)[0], cached.read([9, 4], 1)[0])
    assert part.dataset.images.name(0) == "009.png"
    mask = np.arange(NUM_IMAGES) % 2 == 0
    assert torch.equal(cached.subset(mask).read([1])[0], cached.read([2])[0])
