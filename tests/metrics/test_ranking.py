"""Ranking loss, coverage, one-error and top-1 accuracy, against scikit-learn and slow loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, coverage_error, label_ranking_loss

from manylabel.errors import ConfigError
from manylabel.metrics import coverage, inputs, one_error, ranking_loss, top_one_accuracy

SHAPE = (6, 5)
LEVELS = arrays(np.float64, SHAPE, elements=st.sampled_from([-1.0, 0.0, 0.25, 0.5, 2.0]))
TRUTHS = arrays(np.bool_, SHAPE)


def mean(values):
    """Return the mean of what is not NaN; NaN of nothing."""
    kept = [value for value in values if not np.isnan(value)]
    return np.mean(kept) if kept else np.nan


def slow_ranking_loss(scores, targets, known):
    losses = []
    for row, truth, sure in zip(scores, targets, known, strict=True):
        pairs = [(a, b) for a in row[truth & sure] for b in row[~truth & sure]]
        losses.append(np.mean([a <= b for a, b in pairs]) if pairs else np.nan)
    return mean(losses)


def slow_coverage(scores, targets, known):
    depths = []
    for row, truth, sure in zip(scores, targets, known, strict=True):
        present = row[truth & sure]
        depths.append((row[sure] >= present.min()).sum() if len(present) else np.nan)
    return mean(depths)


def slow_one_error(scores, targets, known):
    errors = []
    for row, truth, sure in zip(scores, targets, known, strict=True):
        if (truth & sure).any():
            best = max(np.flatnonzero(sure), key=lambda label: row[label])  # the first of equal ones
            errors.append(not truth[best])
    return mean(errors)


@settings(max_examples=60, deadline=None)
@given(scores=LEVELS, targets=TRUTHS)
@pytest.mark.slow
def test_equal_scikit_learn_with_ties(scores, targets):
    some, mixed = targets.any(axis=1), targets.any(axis=1) & ~targets.all(axis=1)  # scikit-learn counts the rest as 0
    given_tensors = torch.from_numpy(scores), torch.from_numpy(targets)
    losses = label_ranking_loss(targets[mixed], scores[mixed]) if mixed.any() else np.nan
    depths = coverage_error(targets[some], scores[some]) if some.any() else np.nan
    assert ranking_loss(*given_tensors).item() == pytest.approx(losses, abs=1e-6, nan_ok=True)
    assert coverage(*given_tensors).item() == pytest.approx(depths, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("function", "slow"),
    [(ranking_loss, slow_ranking_loss), (coverage, slow_coverage), (one_error, slow_one_error)],
)
@settings(max_examples=60, deadline=None)
@given(scores=LEVELS, targets=TRUTHS, known=TRUTHS)
def test_equal_slow_loops_with_unknown_labels(function, slow, scores, targets, known):
    result = function(torch.from_numpy(scores), torch.from_numpy(targets), torch.from_numpy(known))
    assert result.item() == pytest.approx(slow(scores, targets, known), abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("function", [ranking_loss, coverage, one_error])
def test_blocks_and_scores_stay_as_they_are(function, random_case, monkeypatch):
    before = random_case[0].clone()
    whole = function(*random_case)
    monkeypatch.setattr(inputs, "BLOCK", 40)  # four images at a time
    assert function(*random_case).item() == pytest.approx(whole.item())
    assert torch.equal(random_case[0], before)


def test_top_one_is_the_fraction_of_images_named_right():
    random = np.random.default_rng(0)
    scores, classes = random.random((50, 4)), random.integers(0, 4, size=50)
    targets = torch.nn.functional.one_hot(torch.from_numpy(classes), 4)
    expected = accuracy_score(classes, scores.argmax(axis=1))
    assert top_one_accuracy(torch.from_numpy(scores), targets).item() == pytest.approx(expected)


def test_top_one_rejects_images_with_several_labels():
    with pytest.raises(ConfigError, match="one label per image, but 1 have several"):
        top_one_accuracy(torch.rand(2, 2), torch.tensor([[1, 1], [0, 1]]))


def test_top_one_leaves_out_images_whose_label_is_not_known():
    scores = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    assert top_one_accuracy(scores, torch.tensor([[1, 0], [0, 0], [1, 0]])).item() == 0.5
