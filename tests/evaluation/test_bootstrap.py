"""The bootstrap against the obvious: measuring the drawn pictures themselves, one draw at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from manylabel.errors import ConfigError
from manylabel.evaluation import ScoredImages, bootstrap, measure
from manylabel.evaluation.bootstrap import draw_counts, mean_over_labels, resample
from manylabel.evaluation.statistics import WeightedAveragePrecision
from manylabel.metrics import average_precision


def made_set(num_pictures=60, num_labels=7, *, unknown=True, ties=True, single_label=False):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(num_pictures, num_labels, generator=generator)
    scores = (scores * 8).round() / 8 if ties else scores
    if single_label:
        targets = torch.nn.functional.one_hot(
            torch.randint(num_labels, (num_pictures,), generator=generator), num_labels
        )
    else:
        targets = torch.rand(num_pictures, num_labels, generator=generator) < 0.25
    known = torch.rand(num_pictures, num_labels, generator=generator) < 0.8 if unknown else None
    scored = ScoredImages.from_arrays(scores, targets, labels=list("abcdefghij"[:num_labels]), known=known)
    return replace(scored, single_label=single_label)


def repeat(scored, counts):
    """Return the drawn pictures themselves, each as often as it was drawn."""
    rows = torch.repeat_interleave(torch.arange(len(scored)), counts.long())
    return replace(
        scored,
        names=tuple(scored.names[row] for row in rows),
        scores=scored.scores[rows],
        targets=scored.targets[rows],
        known=scored.known[rows],
    )


def first_draws(num_pictures, draws, seed=0):
    return draw_counts(num_pictures, draws=draws, seed=(seed, 0)).unbind(dim=1)


@pytest.mark.parametrize(
    "settings",
    [{}, {"unknown": False}, {"ties": False}, {"unknown": False, "single_label": True}],
    ids=["unknown and ties", "all known", "no ties", "single label"],
)
def test_every_measure_of_every_draw_is_that_of_the_drawn_pictures(settings):
    scored = replace(made_set(**settings), thresholds=(0.3, 0.4, 0.5, 0.6, 0.7, 0.2, 0.9))
    drawn = bootstrap(scored, draws=6)
    for position, counts in enumerate(first_draws(len(scored), 6)):
        expected = measure(repeat(scored, counts))
        assert set(expected) == set(drawn.measures)
        found = {name: values[position] for name, values in drawn.measures.items()}
        assert found == pytest.approx(expected, abs=2e-6)


def test_average_precision_is_that_of_scikit_learn_with_weights():
    scored = made_set()
    found = bootstrap(scored, draws=6).average_precision
    for position, counts in enumerate(first_draws(len(scored), 6)):
        for label in range(len(scored.labels)):
            known = scored.known[:, label].numpy()
            expected = average_precision_score(
                scored.targets[known, label], scored.scores[known, label], sample_weight=counts[known]
            )
            assert found[label, position] == pytest.approx(expected, abs=2e-6)


def test_weights_of_one_give_the_metric_itself():
    judged = made_set().judged
    found = WeightedAveragePrecision(judged, interpolated=True)(torch.ones(len(judged.scores), 1))
    for kind, values in zip(("none", "all_points", "eleven_points"), found[..., 0], strict=True):
        torch.testing.assert_close(values, average_precision(*judged, interpolation=kind).values)


def test_a_label_has_no_value_in_draws_that_miss_all_its_pictures():
    scored = ScoredImages.from_arrays(torch.rand(5, 2), [[1, 0]] + [[0, 0]] * 4, labels=["rare", "never"])
    found = bootstrap(scored, draws=40)
    drawn_at_all = torch.cat([counts[:1] for counts in first_draws(5, 32)]).bool().numpy()
    assert (np.isnan(found.average_precision[0][:32]) == ~drawn_at_all).all()
    assert 0 < np.isnan(found.average_precision[0]).sum() < 40
    assert np.isnan(found.average_precision[1]).all()
    assert (np.isnan(found.measures["mAP"]) == np.isnan(found.average_precision[0])).all()


def test_mean_over_labels_leaves_out_those_without_a_value():
    values = np.array([[0.5, np.nan, np.nan], [1.0, 0.25, np.nan]])
    np.testing.assert_equal(mean_over_labels(values), [0.75, 0.25, np.nan])


def test_each_draw_has_as_many_pictures_as_there_are():
    counts = draw_counts(50, draws=40, seed=1)
    assert counts.shape == (50, 40)
    assert (counts.sum(dim=0) == 50).all()
    assert (counts.round() == counts).all()
    assert abs(counts.var(dim=0).mean() - 1) < 0.1  # about Poisson


def test_the_seed_and_nothing_else_fixes_the_draws():
    scored = made_set()
    num_threads = torch.get_num_threads()
    first = bootstrap(scored, draws=70, seed=3).measures["mAP"]
    torch.set_num_threads(3)
    try:
        again = bootstrap(scored, draws=70, seed=3).measures["mAP"]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(num_threads)
    assert (first == again).all()
    assert len(set(first.tolist())) == 70
    assert (first != bootstrap(scored, draws=70, seed=4).measures["mAP"]).all()


def test_no_draws_leave_no_values():
    drawn = bootstrap(made_set(), draws=0)
    assert drawn.average_precision.shape == (7, 0)
    assert all(values.shape == (0,) for values in drawn.measures.values())


def test_rejects_what_cannot_be_drawn():
    with pytest.raises(ConfigError, match=r"draws must be at least 0.*got -1 of 3 pictures"):
        resample({}, num_pictures=3, draws=-1, seed=0)
    with pytest.raises(ConfigError, match="at least 1 picture, got 5 of 0"):
        resample({}, num_pictures=0, draws=5, seed=0)
