"""Any timm model as a source of feature maps."""

from manylabel.backbone.backbone import Backbone, fingerprint_weights
from manylabel.backbone.classes import PretrainedClasses, load_classes
from manylabel.backbone.split import Cut, Top
from manylabel.backbone.weights import OFFLINE_MODELS, check_tensors

__all__ = [
    "OFFLINE_MODELS",
    "Backbone",
    "Cut",
    "PretrainedClasses",
    "Top",
    "check_tensors",
    "fingerprint_weights",
    "load_classes",
]
