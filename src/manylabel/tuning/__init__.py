"""Calibration and thresholds of a trained model, fitted to held-out data."""

from manylabel.tuning.calibration import PlattFit, fit_platt, fit_temperature
from manylabel.tuning.score_tuning import ScoreTuning, tune_scores
from manylabel.tuning.thresholds import Objective, Thresholds, choose_thresholds
from manylabel.tuning.tune import METRIC_TITLES, Performance, TunedLabel, Tuning, tune, tuning_page

__all__ = [
    "METRIC_TITLES",
    "Objective",
    "Performance",
    "PlattFit",
    "ScoreTuning",
    "Thresholds",
    "TunedLabel",
    "Tuning",
    "choose_thresholds",
    "fit_platt",
    "fit_temperature",
    "tune",
    "tune_scores",
    "tuning_page",
]
