"""Logits and targets in, a scalar out: one loss per file."""

from manylabel.losses.asymmetric import AsymmetricLoss
from manylabel.losses.binary_cross_entropy import BinaryCrossEntropy
from manylabel.losses.cross_entropy import CrossEntropy
from manylabel.losses.focal import FocalLoss
from manylabel.losses.multilabel import MultiLabelLoss
from manylabel.losses.names import LOSSES
from manylabel.losses.soft_margin import MultiLabelSoftMargin
from manylabel.losses.weights import positive_weights

__all__ = [
    "LOSSES",
    "AsymmetricLoss",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "FocalLoss",
    "MultiLabelLoss",
    "MultiLabelSoftMargin",
    "positive_weights",
]
