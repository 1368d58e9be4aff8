"""What a resampled data set gives: every measure as a function of how often each picture was drawn."""

from manylabel.evaluation.statistics.average_precision import WeightedAveragePrecision
from manylabel.evaluation.statistics.calibration import WeightedCalibrationError
from manylabel.evaluation.statistics.classes import WeightedClassAverages
from manylabel.evaluation.statistics.ratios import Ratio, WeightedRatios

__all__ = ["Ratio", "WeightedAveragePrecision", "WeightedCalibrationError", "WeightedClassAverages", "WeightedRatios"]
