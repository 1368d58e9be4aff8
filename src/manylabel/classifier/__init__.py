"""Classifier: backbone, head and labels in one module that predicts, saves and loads."""

from manylabel.classifier.classifier import Classifier
from manylabel.classifier.engine import CalibrationMethod, InferenceModule, ScoreCalibration, TorchEngine
from manylabel.classifier.model_folder import SavedModel, change_config, read_model, write_model

__all__ = [
    "CalibrationMethod",
    "Classifier",
    "InferenceModule",
    "SavedModel",
    "ScoreCalibration",
    "TorchEngine",
    "change_config",
    "read_model",
    "write_model",
]
