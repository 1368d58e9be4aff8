import numpy as np
import pytest
from torch.utils.data import RandomSampler

from manylabel.data.sampling import SeededBatches, class_aware_sampler, every_image
from manylabel.errors import ConfigError
from manylabel.targets import Targets

# Label 0 is common, 1 rare, 2 never seen; the last 20 images have no label at all.
ROWS = [[0]] * 70 + [[0, 1]] * 6 + [[1]] * 4 + [[]] * 20
TARGETS = Targets.from_lists(ROWS, num_labels=3)


def reference_chances(rows, num_labels, power):
    """The chance of each image, label by label, image by image."""
    holders = [[i for i, row in enumerate(rows) if label in row] for label in range(num_labels)]
    without = [i for i, row in enumerate(rows) if not row]
    weights = [len(images) ** power if images else 0 for images in holders]
    chances = np.zeros(len(rows))
    for images, weight in zip(holders, weights, strict=True):
        for image in images:
            chances[image] += (1 - len(without) / len(rows)) * weight / sum(weights) / len(images)
    chances[without] = 1 / len(rows)
    return chances


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_draws_a_label_and_then_a_image_that_has_it(power):
    drawn = list(class_aware_sampler(TARGETS, power=power, num_samples=200_000, seed=3))
    shares = np.bincount(drawn, minlength=len(ROWS)) / len(drawn)
    expected = reference_chances(ROWS, 3, power)
    assert expected.sum() == pytest.approx(1)
    assert np.abs(shares - expected).max() < 5 * np.sqrt(expected.max() / len(drawn))


def test_images_without_labels_get_their_fair_share():
    drawn = np.array(list(class_aware_sampler(TARGETS, num_samples=50_000)))
    assert (drawn >= 80).mean() == pytest.approx(0.2, abs=0.01)


def test_data_without_any_label_are_drawn_evenly():
    drawn = list(class_aware_sampler(Targets.from_lists([[], []], num_labels=2), num_samples=1000))
    assert 400 < sum(drawn) < 600


def test_an_epoch_is_as_long_as_the_data_by_default():
    sampler = class_aware_sampler(TARGETS)
    assert len(sampler) == len(list(sampler)) == 100
    assert all(isinstance(index, int) for index in sampler)


@pytest.mark.parametrize(
    "make",
    [lambda seed: class_aware_sampler(TARGETS, seed=seed), lambda seed: every_image(50, shuffle=True, seed=seed)],
)
def test_draws_follow_from_seed_and_epoch(make):
    sampler = make(1)
    first = list(sampler)
    assert list(sampler) == first == list(make(1))
    assert list(make(2)) != first
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_every_image_comes_once():
    assert list(every_image(5, shuffle=False)) == [0, 1, 2, 3, 4]
    assert sorted(every_image(50, shuffle=True)) == list(range(50))
    assert list(every_image(0, shuffle=True)) == []


def test_batches_go_through_the_epochs():
    batches = SeededBatches(every_image(10, shuffle=True), batch_size=4)
    epochs = [[list(batch) for batch in batches] for _ in range(3)]
    assert [[len(batch) for batch in epoch] for epoch in epochs] == [[4, 4, 2]] * 3
    assert len({str(epoch) for epoch in epochs}) == 3
    batches.set_epoch(1)
    assert list(batches) == epochs[1]
    assert batches.epoch == 2


def test_an_epoch_set_on_the_sampler_counts_for_the_seeds_too():
    batches = SeededBatches(every_image(4, shuffle=False), batch_size=2)
    epochs = [list(batches) for _ in range(2)]
    batches.sampler.set_epoch(1)  # as Lightning does
    assert list(batches) == epochs[1] != epochs[0]


def test_a_image_drawn_twice_has_two_seeds():
    batches = SeededBatches([0, 0, 0, 0], batch_size=2)
    assert len({draw.seed for batch in batches for draw in batch}) == 4


def test_samplers_without_epochs_still_get_new_seeds():
    batches = SeededBatches(RandomSampler(range(3)), batch_size=3)
    seeds = [{draw.seed ^ draw.index for batch in batches for draw in batch} for _ in range(2)]
    assert not seeds[0] & seeds[1]


@pytest.mark.parametrize(
    ("targets", "options", "words"),
    [
        (TARGETS, {"power": 2}, "got 2"),
        (TARGETS, {"num_samples": 0}, "got 0"),
        (Targets.from_lists([], num_labels=2), {}, "no image"),
    ],
)
def test_rejects_what_cannot_be_drawn(targets, options, words):
    with pytest.raises(ConfigError, match=words):
        class_aware_sampler(targets, **options)
