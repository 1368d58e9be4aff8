"""Losses: logits and targets in, a scalar out; one file per family, the contract in `manylabel.losses.loss`."""

from torch import nn as _nn

from manylabel.losses.binary import AsymmetricLoss, BinaryCrossEntropy, FocalLoss, MultiLabelSoftMargin
from manylabel.losses.long_tail import DistributionBalancedLoss, positive_weights
from manylabel.losses.loss import MultiLabelLoss, Reduction
from manylabel.losses.missing import ClassAwareSelective, EntropyMaximization, Hill, LargeLoss, SelfPacedCorrection
from manylabel.losses.softmax import CrossEntropy, TwoWayLoss
from manylabel.plugins import Registry as _Registry

__all__ = [
    "LOSSES",
    "AsymmetricLoss",
    "BinaryCrossEntropy",
    "ClassAwareSelective",
    "CrossEntropy",
    "DistributionBalancedLoss",
    "EntropyMaximization",
    "FocalLoss",
    "Hill",
    "LargeLoss",
    "MultiLabelLoss",
    "MultiLabelSoftMargin",
    "Reduction",
    "SelfPacedCorrection",
    "TwoWayLoss",
    "positive_weights",
]

LOSSES: _Registry[type[_nn.Module]] = _Registry(
    "manylabel.losses",
    {
        "asymmetric": AsymmetricLoss,
        "binary_cross_entropy": BinaryCrossEntropy,
        "cross_entropy": CrossEntropy,
        "distribution_balanced": DistributionBalancedLoss,
        "entropy_maximization": EntropyMaximization,
        "focal": FocalLoss,
        "hill": Hill,
        "large_loss": LargeLoss,
        "selective": ClassAwareSelective,
        "soft_margin": MultiLabelSoftMargin,
        "splc": SelfPacedCorrection,
        "two_way": TwoWayLoss,
    },
)
"""The losses by the name that the command line and run folders use, with those of installed packages."""
