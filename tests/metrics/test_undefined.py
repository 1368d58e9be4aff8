"""Every metric on degenerate input: what is undefined is NaN, never the best value; and weights count images."""

import math

import pytest
import torch

from manylabel import metrics

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
SCORES = torch.tensor([[0.9, 0.2, 0.6], [0.1, 0.7, 0.3]])
NONE, ALL = torch.zeros(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
CASES = {
    "nothing known": (SCORES, ALL, NONE),
    "no images": (SCORES[:0], ALL[:0], ALL[:0]),
    "no labels": (SCORES[:, :0], ALL[:, :0], ALL[:, :0]),
    "no positives": (SCORES, NONE, ALL),
    "no negatives": (SCORES, ALL, ALL),
}
# Defined all the same: without positives, predictions are all wrong; without negatives, they are all right.
DEFINED = {
    "no positives": {
        "overall_precision": 0,
        "subset_accuracy": 0,
        "hamming_loss": 0.5,
        "calibration_error": SCORES.mean().item(),
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
        "calibration_error": 1 - SCORES.mean().item(),
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
