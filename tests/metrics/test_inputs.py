"""What every metric checks, decides and weighs."""

import math

import pytest
import torch
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from manylabel import metrics
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
@for_all(
    rows=st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=5), k=st.integers(1, 8)
)
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


NAMES = ("class_precision", "class_recall", "class_f1", "overall_precision", "overall_recall", "overall_f1")
METRICS = {
    "mAP": metrics.mean_average_precision,
    "mAP_all_points": lambda *case, **kw: metrics.mean_average_precision(*case, interpolation="all_points", **kw),
    "mAP_eleven_points": lambda *case, **kw: metrics.mean_average_precision(*case, interpolation="eleven_points", **kw),
    **{name: lambda *case, name=name, **kw: getattr(metrics.precision_recall(*case, **kw), name) for name in NAMES},
    "OF1@1": lambda *case, **kw: metrics.precision_recall(*case, top_k=1, **kw).overall_f1,
    "subset_accuracy": metrics.subset_accuracy,
    "hamming_loss": metrics.hamming_loss,
    "ranking_loss": metrics.ranking_loss,
    "coverage": metrics.coverage,
    "one_error": metrics.one_error,
    "calibration_error": lambda *case, **kw: metrics.calibration(*case, **kw).error,
}
SIX_SCORES = torch.tensor([[0.9, 0.2, 0.6], [0.1, 0.7, 0.3]])
NONE, ALL = torch.zeros(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
CASES = {
    "nothing known": (SIX_SCORES, ALL, NONE),
    "no images": (SIX_SCORES[:0], ALL[:0], ALL[:0]),
    "no labels": (SIX_SCORES[:, :0], ALL[:, :0], ALL[:, :0]),
    "no positives": (SIX_SCORES, NONE, ALL),
    "no negatives": (SIX_SCORES, ALL, ALL),
}
# Defined all the same: without positives, predictions are all wrong; without negatives, they are all right.
DEFINED = {
    "no positives": {
        "overall_precision": 0,
        "subset_accuracy": 0,
        "hamming_loss": 0.5,
        "calibration_error": SIX_SCORES.mean().item(),
    },
    "no negatives": {
        "mAP": 1,
        "mAP_all_points": 1,
        "mAP_eleven_points": 1,
        "class_precision": 1,
        "class_recall": 0.5,
        "class_f1": 2 / 3,
        "overall_precision": 1,
        "overall_recall": 0.5,
        "overall_f1": 2 / 3,
        "OF1@1": 0.5,
        "subset_accuracy": 0,
        "hamming_loss": 0.5,
        "coverage": 3,
        "one_error": 0,
        "calibration_error": 1 - SIX_SCORES.mean().item(),
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", METRICS)
def test_what_is_undefined_is_nan_and_nothing_else_is(name, case):
    expected = DEFINED.get(case, {}).get(name, math.nan)
    assert METRICS[name](*CASES[case]).item() == pytest.approx(expected, nan_ok=True)


def test_top_one_accuracy_is_undefined_without_a_label():
    for case in ("nothing known", "no images", "no labels", "no positives"):
        assert metrics.top_one_accuracy(*CASES[case]).isnan()


@pytest.mark.parametrize("name", METRICS)
def test_an_image_that_counts_twice_is_the_image_given_twice(name, random_case):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(3, (40, 60), generator=generator)  # more than are computed at once
    weights[0] = 0
    together = METRICS[name](*random_case, weights=weights)
    assert together.shape == (40,)
    for row in (0, 1, 39):
        repeated = (matrix.repeat_interleave(weights[row], dim=0) for matrix in random_case)
        expected = METRICS[name](*repeated).item()
        assert together[row].item() == pytest.approx(expected, abs=2e-6, nan_ok=True)
        assert METRICS[name](*random_case, weights=weights[row]).item() == pytest.approx(
            expected, abs=2e-6, nan_ok=True
        )
    assert METRICS[name](*random_case, weights=weights[:0]).shape == (0,)
