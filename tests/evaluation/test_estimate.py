import numpy as np
import pytest
import torch

from manylabel.evaluation import ScoredImages, compare, compare_map, estimate_map, evaluate
from manylabel.evaluation.estimate import Estimate, estimate, estimates


def test_the_interval_holds_95_per_cent_of_the_draws():
    draws = np.random.default_rng(0).normal(0.5, 0.1, 1000)
    found = estimate(draws.mean(), draws)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=1e-6)


def test_draws_are_moved_to_the_value():
    draws = np.linspace(0.6, 0.8, 101)
    assert estimate(0.5, draws) == pytest.approx((0.5, 0.405, 0.595))
    assert estimate(0.5, draws, centred=False) == pytest.approx((0.5, 0.605, 0.795))


def test_the_interval_stays_within_its_bounds():
    draws = np.linspace(0, 1, 101)
    assert estimate(0.0, draws).low == 0
    assert estimate(1.0, draws).high == 1
    assert estimate(3.0, 10 * draws, bounds=(0, 80)).high == pytest.approx(7.75)


def test_draws_without_a_value_are_left_out():
    draws = np.linspace(0, 1, 101)
    with_gaps = np.append(draws, [np.nan] * 50)
    assert estimate(0.5, with_gaps) == estimate(0.5, draws)


def test_too_few_draws_give_no_interval():
    few = np.append(np.linspace(0, 1, 19), [np.nan] * 50)
    assert estimate(0.5, few) == Estimate(0.5, None, None)
    assert estimates([0.1, 0.2], np.zeros((2, 0))) == [Estimate(0.1), Estimate(0.2)]


def test_several_at_once_are_as_one_by_one():
    draws = np.random.default_rng(0).random((4, 50))
    values = [0.2, 0.4, 0.6, 0.8]
    assert estimates(values, draws) == [estimate(value, row) for value, row in zip(values, draws, strict=True)]


def test_map_of_tensors_has_the_interval_of_an_evaluation():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(120, 4, generator=generator) < 0.3
    scores = 0.4 * targets + 0.6 * torch.rand(120, 4, generator=generator)
    known = torch.rand(120, 4, generator=generator) < 0.9
    scored = ScoredImages.from_arrays(scores, targets, labels=list("abcd"), known=known)
    expected = evaluate(scored, draws=200).measures["mAP"]
    assert estimate_map(scores, targets, known) == pytest.approx(expected)
    assert estimate_map(scores.logit(), targets, known).low == pytest.approx(expected.low)


def test_two_epochs_are_told_apart_only_where_chance_is_left_out():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(120, 4, generator=generator) < 0.3
    noise = torch.rand(3, 120, 4, generator=generator)
    good, same, bad = 0.4 * targets + 0.6 * noise[0], 0.4 * targets + 0.6 * noise[1], noise[2]
    scored = [ScoredImages.from_arrays(scores, targets, labels=list("abcd")) for scores in (bad, good)]
    expected = compare(*scored, draws=200).measures["mAP"].difference
    assert compare_map(bad, good, targets) == pytest.approx(expected)
    assert compare_map(bad, good, targets).is_positive
    assert not compare_map(good, bad, targets).is_positive
    assert not compare_map(same, good, targets).is_positive
