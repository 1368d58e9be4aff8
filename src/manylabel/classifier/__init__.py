"""A classifier: backbone, head and labels in one object that predicts, saves and loads."""

from manylabel.classifier.calibration import CalibrationMethod, ScoreCalibration
from manylabel.classifier.classifier import Classifier
from manylabel.classifier.engine import InferenceModule, TorchEngine
from manylabel.classifier.model_folder import (
    MODEL_FILES,
    SavedModel,
    change_config,
    find_model,
    read_model,
    write_model,
)

__all__ = [
    "MODEL_FILES",
    "CalibrationMethod",
    "Classifier",
    "InferenceModule",
    "SavedModel",
    "ScoreCalibration",
    "TorchEngine",
    "change_config",
    "find_model",
    "read_model",
    "write_model",
]
