"""Losses: logits and targets in, a scalar out; the contract is in `manylabel.losses.loss`."""

from torch import nn as _nn

from manylabel.losses.binary import AsymmetricLoss, BinaryCrossEntropy, FocalLoss, MultiLabelSoftMargin
from manylabel.losses.cross_entropy import CrossEntropy
from manylabel.losses.distribution_balanced import DistributionBalancedLoss
from manylabel.losses.entropy_maximization import EntropyMaximization
from manylabel.losses.hill import Hill
from manylabel.losses.large_loss import LargeLoss
from manylabel.losses.loss import MultiLabelLoss, Reduction, positive_weights
from manylabel.losses.selective import ClassAwareSelective
from manylabel.losses.self_paced_correction import SelfPacedCorrection
from manylabel.losses.two_way import TwoWayLoss
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
