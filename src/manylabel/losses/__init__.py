"""Losses: logits and targets in, a scalar out. To add one: its class, lines here, its name in `settings.LossName`."""

from torch import nn

from manylabel.losses.binary import AsymmetricLoss, BinaryCrossEntropy, FocalLoss, MultiLabelSoftMargin
from manylabel.losses.cross_entropy import CrossEntropy
from manylabel.losses.multilabel import MultiLabelLoss, positive_weights

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

LOSSES: dict[str, type[nn.Module]] = {
    "asymmetric": AsymmetricLoss,
    "binary_cross_entropy": BinaryCrossEntropy,
    "cross_entropy": CrossEntropy,
    "focal": FocalLoss,
    "soft_margin": MultiLabelSoftMargin,
}
"""The losses by the name that the command line and run folders use."""
