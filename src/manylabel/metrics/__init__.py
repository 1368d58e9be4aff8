"""Metrics: a functional core, NaN where a metric is undefined, and thin torchmetrics classes around it."""

from importlib import import_module
from typing import TYPE_CHECKING

from manylabel.metrics.average_precision import average_precision, mean_average_precision
from manylabel.metrics.calibration import Calibration, calibration
from manylabel.metrics.decisions import PrecisionRecall, hamming_loss, precision_recall, subset_accuracy
from manylabel.metrics.inputs import above_threshold, top_labels
from manylabel.metrics.ranking import coverage, one_error, ranking_loss, top_one_accuracy

if TYPE_CHECKING:
    from manylabel.metrics.classes import (
        CalibrationError,
        Coverage,
        HammingLoss,
        MeanAveragePrecision,
        OneError,
        PrecisionRecallF1,
        RankingLoss,
        SubsetAccuracy,
        TopOneAccuracy,
    )

__all__ = [
    "Calibration",
    "CalibrationError",
    "Coverage",
    "HammingLoss",
    "MeanAveragePrecision",
    "OneError",
    "PrecisionRecall",
    "PrecisionRecallF1",
    "RankingLoss",
    "SubsetAccuracy",
    "TopOneAccuracy",
    "above_threshold",
    "average_precision",
    "calibration",
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
    if name in __all__:  # a class: torchmetrics, which brings matplotlib and scipy, is imported when one is used
        return getattr(import_module("manylabel.metrics.classes"), name)
    raise AttributeError(f"module 'manylabel.metrics' has no attribute {name!r}")
