"""The bootstrap against the obvious: measuring the drawn images themselves, one draw at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from manylabel.errors import ConfigError
from manylabel.evaluation import (
    ScoredImages,
    bootstrap,
    bootstrap_weights,
    compare,
    compare_map,
    compute_metrics,
    estimate_map,
    evaluate,
)
from manylabel.evaluation.bootstrap import Estimate, estimate, estimates


def made_set(num_images=60, num_labels=7, *, unknown=True, ties=True, single_label=False):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(num_images, num_labels, generator=generator)
    scores = (scores * 8).round() / 8 if ties else scores
    if single_label:
        targets = torch.nn.functional.one_hot(torch.randint(num_labels, (num_images,), generator=generator), num_labels)
    else:
        targets = torch.rand(num_images, num_labels, generator=generator) < 0.25
    known = torch.rand(num_images, num_labels, generator=generator) < 0.8 if unknown else None
    scored = ScoredImages.from_arrays(scores, targets, labels=list("abcdefghij"[:num_labels]), known=known)
    return replace(scored, single_label=single_label)


def repeat(scored, counts):
    """Return the drawn images themselves, each as often as it was drawn."""
    rows = torch.repeat_interleave(torch.arange(len(scored)), counts.long())
    return replace(
        scored,
        names=tuple(scored.names[row] for row in rows),
        scores=scored.scores[rows],
        targets=scored.targets[rows],
        known=scored.known[rows],
    )


def first_draws(num_images, draws, seed=0):
    return bootstrap_weights(num_images, draws=draws, seed=seed)[1:].unbind(dim=0)


@pytest.mark.parametrize(
    "settings",
    [{}, {"unknown": False}, {"ties": False}, {"unknown": False, "single_label": True}],
    ids=["unknown and ties", "all known", "no ties", "single label"],
)
@pytest.mark.slow
def test_every_metric_of_every_draw_is_that_of_the_drawn_images(settings):
    scored = replace(made_set(**settings), thresholds=(0.3, 0.4, 0.5, 0.6, 0.7, 0.2, 0.9))
    drawn = bootstrap(scored, ["all"], draws=6)
    for position, counts in enumerate(first_draws(len(scored), 6), start=1):
        expected = compute_metrics(repeat(scored, counts), ["all"])
        found = {name: values[position] for name, values in drawn.metrics.items() if not np.isnan(values[position])}
        assert found == pytest.approx(expected, abs=2e-6)


def test_average_precision_is_that_of_scikit_learn_with_weights():
    scored = made_set()
    found = bootstrap(scored, draws=6).average_precision
    for position, counts in enumerate(first_draws(len(scored), 6), start=1):
        for label in range(len(scored.labels)):
            known = scored.known[:, label].numpy()
            expected = average_precision_score(
                scored.targets[known, label], scored.scores[known, label], sample_weight=counts[known]
            )
            assert found[label, position] == pytest.approx(expected, abs=2e-6)


def test_a_label_has_no_value_in_draws_that_miss_all_its_images():
    scored = ScoredImages.from_arrays(torch.rand(5, 2), [[1, 0]] + [[0, 0]] * 4, labels=["rare", "never"])
    found = bootstrap(scored, draws=40)
    drawn_at_all = torch.cat([counts[:1] for counts in first_draws(5, 32)]).bool().numpy()
    assert (np.isnan(found.average_precision[0][1:33]) == ~drawn_at_all).all()
    assert 0 < np.isnan(found.average_precision[0]).sum() < 40
    assert np.isnan(found.average_precision[1]).all()
    assert (np.isnan(found.metrics["mAP"]) == np.isnan(found.average_precision[0])).all()


def test_each_draw_has_as_many_images_as_there_are():
    counts = bootstrap_weights(50, draws=40, seed=1)
    assert counts.shape == (41, 50)
    assert (counts[0] == 1).all()
    assert (counts.sum(dim=1) == 50).all()
    assert abs(counts[1:].float().var(dim=1).mean() - 1) < 0.1  # about Poisson


def test_the_seed_and_nothing_else_fixes_the_draws():
    scored = made_set()
    num_threads = torch.get_num_threads()
    first = bootstrap(scored, draws=70, seed=3).metrics["mAP"]
    torch.set_num_threads(3)
    try:
        again = bootstrap(scored, draws=70, seed=3).metrics["mAP"]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(num_threads)
    assert (first == again).all()
    assert len(set(first.tolist())) == 71
    other = bootstrap(scored, draws=70, seed=4).metrics["mAP"]
    assert first[0] == other[0]
    assert (first[1:] != other[1:]).all()


def test_no_draws_leave_the_value_alone():
    drawn = bootstrap(made_set(), draws=0)
    assert drawn.average_precision.shape == (7, 1)
    assert all(values.shape == (1,) for values in drawn.metrics.values())


def test_rejects_what_cannot_be_drawn():
    with pytest.raises(ConfigError, match=r"draws must be 0 or more.*got -1 of 3 images"):
        bootstrap_weights(3, draws=-1)
    with pytest.raises(ConfigError, match="at least 1 image, got 5 of 0"):
        bootstrap_weights(0, draws=5)


def test_the_interval_holds_95_per_cent_of_the_draws():
    draws = np.random.default_rng(0).normal(0.5, 0.1, 1000)
    found = estimate([draws.mean(), *draws])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=1e-6)


def test_draws_are_moved_to_the_value():
    draws = np.linspace(0.6, 0.8, 101)
    assert estimate([0.5, *draws]) == pytest.approx((0.5, 0.405, 0.595))
    assert estimate([0.5, *draws], centred=False) == pytest.approx((0.5, 0.605, 0.795))


def test_the_interval_stays_within_its_bounds():
    draws = np.linspace(0, 1, 101)
    assert estimate([0.0, *draws]).low == 0
    assert estimate([1.0, *draws]).high == 1
    assert estimate([3.0, *(10 * draws)], bounds=(0, 80)).high == pytest.approx(7.75)


def test_draws_without_a_value_are_left_out():
    draws = np.linspace(0, 1, 101)
    with_gaps = np.append(draws, [np.nan] * 50)
    assert estimate([0.5, *with_gaps]) == estimate([0.5, *draws])


def test_too_few_draws_give_no_interval():
    few = np.append(np.linspace(0, 1, 19), [np.nan] * 50)
    assert estimate([0.5, *few]) == Estimate(0.5, None, None)
    assert estimates([[0.1], [0.2]]) == [Estimate(0.1), Estimate(0.2)]


def test_several_at_once_are_as_one_by_one():
    values = np.random.default_rng(0).random((4, 51))
    values[2] = np.nan  # undefined, such as a label without positives
    values[3, 10:] = np.nan
    found = estimates(values)
    assert [found[row] for row in (0, 1, 3)] == [estimate(values[row]) for row in (0, 1, 3)]
    assert np.isnan(found[2].value)
    assert [each.low is None for each in found] == [False, False, True, True]


def test_map_of_tensors_has_the_interval_of_an_evaluation():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(120, 4, generator=generator) < 0.3
    scores = 0.4 * targets + 0.6 * torch.rand(120, 4, generator=generator)
    known = torch.rand(120, 4, generator=generator) < 0.9
    scored = ScoredImages.from_arrays(scores, targets, labels=list("abcd"), known=known)
    expected = evaluate(scored).metrics["mAP"]
    assert estimate_map(scores, targets, known) == pytest.approx(expected)
    assert estimate_map(scores.logit(), targets, known).low == pytest.approx(expected.low)


def test_two_epochs_are_told_apart_only_where_chance_is_left_out():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(120, 4, generator=generator) < 0.3
    noise = torch.rand(3, 120, 4, generator=generator)
    good, same, bad = 0.4 * targets + 0.6 * noise[0], 0.4 * targets + 0.6 * noise[1], noise[2]
    scored = [ScoredImages.from_arrays(scores, targets, labels=list("abcd")) for scores in (bad, good)]
    expected = compare(*scored).metrics["mAP"].difference
    assert compare_map(bad, good, targets) == pytest.approx(expected)
    assert compare_map(bad, good, targets).low > 0
    assert compare_map(good, bad, targets).high < 0
    assert compare_map(same, good, targets).low <= 0
