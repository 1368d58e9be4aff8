"""The losses by name, as the command line and run folders say it."""

from torch import nn

from manylabel.losses.asymmetric import AsymmetricLoss
from manylabel.losses.binary_cross_entropy import BinaryCrossEntropy
from manylabel.losses.cross_entropy import CrossEntropy
from manylabel.losses.focal import FocalLoss
from manylabel.losses.soft_margin import MultiLabelSoftMargin

__all__ = ["LOSSES"]

LOSSES: dict[str, type[nn.Module]] = {
    "asymmetric": AsymmetricLoss,
    "binary_cross_entropy": BinaryCrossEntropy,
    "cross_entropy": CrossEntropy,
    "focal": FocalLoss,
    "soft_margin": MultiLabelSoftMargin,
}
