"""A classifier: backbone, head and labels in one object that predicts, saves and loads."""

from manylabel.classifier.classifier import Classifier
from manylabel.classifier.model_folder import FORMAT_VERSION, SavedModel, read_model, write_model
from manylabel.classifier.vocabulary import TextVocabulary

__all__ = ["FORMAT_VERSION", "Classifier", "SavedModel", "TextVocabulary", "read_model", "write_model"]
