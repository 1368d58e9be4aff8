"""Metrics: a functional core and thin stateful classes."""

from manylabel.metrics.agreement import (
    HammingLoss,
    SubsetAccuracy,
    TopOneAccuracy,
    hamming_loss,
    subset_accuracy,
    top_one_accuracy,
)
from manylabel.metrics.average_precision import MeanAveragePrecision, average_precision
from manylabel.metrics.calibration import Calibration, CalibrationError, calibration
from manylabel.metrics.decisions import above_threshold, top_labels
from manylabel.metrics.per_label import PerLabel
from manylabel.metrics.precision_recall import F1AtK, PrecisionRecall, PrecisionRecallF1, f1_at_k, precision_recall
from manylabel.metrics.ranking import Coverage, OneError, RankingLoss, coverage, one_error, ranking_loss

__all__ = [
    "Calibration",
    "CalibrationError",
    "Coverage",
    "F1AtK",
    "HammingLoss",
    "MeanAveragePrecision",
    "OneError",
    "PerLabel",
    "PrecisionRecall",
    "PrecisionRecallF1",
    "RankingLoss",
    "SubsetAccuracy",
    "TopOneAccuracy",
    "above_threshold",
    "average_precision",
    "calibration",
    "coverage",
    "f1_at_k",
    "hamming_loss",
    "one_error",
    "precision_recall",
    "ranking_loss",
    "subset_accuracy",
    "top_labels",
    "top_one_accuracy",
]
