"""Calibration and thresholds for a trained model, from held-out data."""

from manylabel.tuning.calibrating import PlattFit, fit_platt, fit_temperature
from manylabel.tuning.page import tuning_page
from manylabel.tuning.thresholds import Objective, Thresholds, choose_thresholds
from manylabel.tuning.tune import Performance, TunedLabel, Tuning, tune

__all__ = [
    "Objective",
    "Performance",
    "PlattFit",
    "Thresholds",
    "TunedLabel",
    "Tuning",
    "choose_thresholds",
    "fit_platt",
    "fit_temperature",
    "tune",
    "tuning_page",
]
