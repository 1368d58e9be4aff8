"""Any timm model as a source of feature maps."""

from manylabel.backbone.backbone import Backbone
from manylabel.backbone.fingerprint import fingerprint_weights
from manylabel.backbone.weights import OFFLINE_MODELS, imagenet_classifier

__all__ = ["OFFLINE_MODELS", "Backbone", "fingerprint_weights", "imagenet_classifier"]
