"""A classifier: backbone, head and labels in one object that predicts, saves and loads."""

from manylabel.classifier.calibration import CalibrationMethod, ScoreCalibration
from manylabel.classifier.classifier import Classifier
from manylabel.classifier.hub import find_model
from manylabel.classifier.model_folder import FORMAT_VERSION, SavedModel, change_config, read_model, write_model
from manylabel.classifier.vocabulary import TextVocabulary

__all__ = [
    "FORMAT_VERSION",
    "CalibrationMethod",
    "Classifier",
    "SavedModel",
    "ScoreCalibration",
    "TextVocabulary",
    "change_config",
    "find_model",
    "read_model",
    "write_model",
]
