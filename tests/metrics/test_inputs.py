"""What every metric checks, decides and weighs."""

import pytest
import torch
from hypothesis import given as case
from hypothesis import settings
from hypothesis import strategies as st

from manylabel.errors import ConfigError
from manylabel.metrics import above_threshold, top_labels
from manylabel.metrics.inputs import check, weighted

SCORES = torch.tensor([[0.1, 0.9], [0.4, 0.2]])


@pytest.mark.parametrize(
    ("scores", "targets", "known", "message"),
    [
        (
            torch.tensor([1, 0]),
            torch.tensor([1, 0]),
            None,
            r"floating point \[images, labels\], got torch.int64 \[2\]",
        ),
        (SCORES, torch.ones(2, 3), None, r"targets must have the shape of scores, \[2, 2\], got \[2, 3\]"),
        (SCORES, torch.ones(2, 2), torch.ones(2, dtype=torch.bool), "known must have the shape"),
        (SCORES, torch.ones(2, 2), torch.ones(2, 2), "known must be true or false, got torch.float32"),
        (SCORES * torch.nan, torch.ones(2, 2), None, "4 are NaN"),
        (SCORES, torch.tensor([[1, -1], [0, 0]]), None, "targets must be 0 or 1, got -1 to 1; mark unknown"),
        (SCORES, torch.full((2, 2), 2), None, "targets must be 0 or 1, got 2 to 2"),
    ],
)
def test_rejects_what_cannot_be_measured(scores, targets, known, message):
    with pytest.raises(ConfigError, match=message):
        check(scores, targets, known)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float16])
def test_takes_targets_of_any_type(dtype):
    given = check(SCORES, torch.tensor([[1, 0], [0, 1]]).to(dtype), known=torch.tensor([[True, True], [True, False]]))
    assert given.positives.tolist() == [[True, False], [False, False]]
    assert given.negatives.tolist() == [[False, True], [True, False]]


@settings(max_examples=60, deadline=None)
@case(rows=st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=5), k=st.integers(1, 8))
def test_takes_the_first_of_equal_scores(rows, k):
    chosen = top_labels(torch.tensor(rows, dtype=torch.float32), k)
    for row, marks in zip(rows, chosen.tolist(), strict=True):
        best = sorted(range(6), key=lambda label: -row[label])[:k]  # sorted is stable
        assert marks == [label in best for label in range(6)]


def test_rejects_less_than_one_label():
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        top_labels(torch.rand(2, 3), 0)


def test_rejects_thresholds_that_do_not_match_the_labels():
    with pytest.raises(ConfigError, match=r"one for each of 3 labels, got \[2\]"):
        above_threshold(torch.rand(2, 3), [0.1, 0.2])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), r"weights must be \[2\] or \[D, 2\], got \[3\]"),
        (torch.tensor([1, -1]), "whole numbers of at least 0"),
        (torch.tensor([[0.5, 1.0]]), "whole numbers"),
    ],
)
def test_rejects_weights_that_do_not_count_images(weights, message):
    with pytest.raises(ConfigError, match=message):
        weighted(lambda counts: counts.sum(dim=0), weights, like=SCORES)
