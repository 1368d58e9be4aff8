"""Ranking loss, coverage and one-error, against scikit-learn and slow loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import coverage_error, label_ranking_loss

from manylabel.metrics import coverage, inputs, one_error, ranking_loss

SHAPE = (6, 5)
LEVELS = arrays(np.float64, SHAPE, elements=st.sampled_from([-1.0, 0.0, 0.25, 0.5, 2.0]))
TRUTHS = arrays(np.bool_, SHAPE)


def slow_ranking_loss(scores, targets, known):
    losses = []
    for row, truth, sure in zip(scores, targets, known, strict=True):
        pairs = [(a, b) for a in row[truth & sure] for b in row[~truth & sure]]
        losses.append(np.mean([a <= b for a, b in pairs]) if pairs else 0)
    return np.mean(losses)


def slow_coverage(scores, targets, known):
    depths = []
    for row, truth, sure in zip(scores, targets, known, strict=True):
        present = row[truth & sure]
        depths.append((row[sure] >= present.min()).sum() if len(present) else 0)
    return np.mean(depths)


def slow_one_error(scores, targets, known):
    errors = []
    for row, truth, sure in zip(scores, targets, known, strict=True):
        if (truth & sure).any():
            best = max(np.flatnonzero(sure), key=lambda label: row[label])  # the first of equal ones
            errors.append(not truth[best])
    return np.mean(errors) if errors else 0


@settings(max_examples=60, deadline=None)
@given(scores=LEVELS, targets=TRUTHS)
def test_equal_scikit_learn_with_ties(scores, targets):
    given_tensors = torch.from_numpy(scores), torch.from_numpy(targets)
    assert ranking_loss(*given_tensors).item() == pytest.approx(label_ranking_loss(targets, scores), abs=1e-6)
    assert coverage(*given_tensors).item() == pytest.approx(coverage_error(targets, scores), abs=1e-6)


@pytest.mark.parametrize(
    ("function", "slow"),
    [(ranking_loss, slow_ranking_loss), (coverage, slow_coverage), (one_error, slow_one_error)],
)
@settings(max_examples=60, deadline=None)
@given(scores=LEVELS, targets=TRUTHS, known=TRUTHS)
def test_equal_slow_loops_with_unknown_labels(function, slow, scores, targets, known):
    result = function(torch.from_numpy(scores), torch.from_numpy(targets), torch.from_numpy(known))
    assert result.item() == pytest.approx(slow(scores, targets, known), abs=1e-6)


@pytest.mark.parametrize("function", [ranking_loss, coverage, one_error])
def test_blocks_and_scores_stay_as_they_are(function, random_case, monkeypatch):
    before = random_case[0].clone()
    whole = function(*random_case)
    monkeypatch.setattr(inputs, "BLOCK", 40)  # four pictures at a time
    assert function(*random_case).item() == pytest.approx(whole.item())
    assert torch.equal(random_case[0], before)


@pytest.mark.parametrize("function", [ranking_loss, coverage, one_error])
def test_is_zero_and_not_nan_of_nothing(function):
    assert function(torch.rand(0, 3), torch.zeros(0, 3)).item() == 0
    assert function(torch.rand(2, 3), torch.zeros(2, 3)).item() == 0
