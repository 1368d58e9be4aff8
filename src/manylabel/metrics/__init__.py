"""Metrics: pure functions, NaN where a metric is undefined, and a torchmetrics class that accumulates any of them."""

from typing import TYPE_CHECKING

from manylabel.metrics.average_precision import average_precision, mean_average_precision
from manylabel.metrics.calibration import Calibration, CalibrationBin, calibration, calibration_error
from manylabel.metrics.decisions import PrecisionRecall, hamming_loss, precision_recall, subset_accuracy
from manylabel.metrics.inputs import above_threshold, top_labels
from manylabel.metrics.ranking import coverage, one_error, ranking_loss, top_one_accuracy

if TYPE_CHECKING:
    from manylabel.metrics.accumulated import AccumulatedMetric

__all__ = [
    "AccumulatedMetric",
    "Calibration",
    "CalibrationBin",
    "PrecisionRecall",
    "above_threshold",
    "average_precision",
    "calibration",
    "calibration_error",
    "coverage",
    "hamming_loss",
    "mean_average_precision",
    "one_error",
    "precision_recall",
    "ranking_loss",
    "subset_accuracy",
    "top_labels",
    "top_one_accuracy",
]


def __getattr__(name: str) -> object:
    if name == "AccumulatedMetric":  # imported on first use: torchmetrics brings matplotlib and scipy
        from manylabel.metrics.accumulated import AccumulatedMetric

        return AccumulatedMetric
    raise AttributeError(f"module 'manylabel.metrics' has no attribute {name!r}")
