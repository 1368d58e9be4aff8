"""A classifier: backbone, head and labels in one object that predicts, saves and loads."""

from manylabel.classifier.calibration import CalibrationMethod, ScoreCalibration
from manylabel.classifier.classifier import Classifier
from manylabel.classifier.engine import InferenceModule, TorchEngine
from manylabel.classifier.hub import find_model
from manylabel.classifier.model_folder import (
    FORMAT_VERSION,
    MODEL_FILES,
    SavedModel,
    StoredForm,
    change_config,
    read_model,
    stored_form,
    write_model,
)
from manylabel.classifier.vocabulary import TextVocabulary

__all__ = [
    "FORMAT_VERSION",
    "MODEL_FILES",
    "CalibrationMethod",
    "Classifier",
    "InferenceModule",
    "SavedModel",
    "ScoreCalibration",
    "StoredForm",
    "TextVocabulary",
    "TorchEngine",
    "change_config",
    "find_model",
    "read_model",
    "stored_form",
    "write_model",
]
