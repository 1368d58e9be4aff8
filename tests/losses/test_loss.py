"""The contract of all losses: names, unknown labels, and what they learn from the run."""

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.losses import LOSSES, BinaryCrossEntropy, CrossEntropy, MultiLabelLoss
from manylabel.targets import Targets


def test_every_loss_can_be_had_by_name():
    assert {name: kind().__class__.__name__ for name, kind in LOSSES.items()} == {
        "asymmetric": "AsymmetricLoss",
        "binary_cross_entropy": "BinaryCrossEntropy",
        "cross_entropy": "CrossEntropy",
        "distribution_balanced": "DistributionBalancedLoss",
        "entropy_maximization": "EntropyMaximization",
        "focal": "FocalLoss",
        "hill": "Hill",
        "large_loss": "LargeLoss",
        "selective": "ClassAwareSelective",
        "soft_margin": "MultiLabelSoftMargin",
        "splc": "SelfPacedCorrection",
        "two_way": "TwoWayLoss",
    }
    assert all(issubclass(kind, MultiLabelLoss) for kind in LOSSES.values() if kind is not CrossEntropy)


def test_ignoring_unknown_labels_where_nothing_is_absent_is_refused():
    positives = Targets.from_lists([[0], [1]], num_labels=2)
    BinaryCrossEntropy(unknown="negative").fit(positives.forget_absent())
    BinaryCrossEntropy().fit(positives)
    BinaryCrossEntropy().fit(Targets.from_dense(torch.ones(2, 2)))  # nothing absent, but nothing unknown either
    with pytest.raises(ConfigError, match=r"nothing absent is left to learn from; set --loss.unknown negative"):
        BinaryCrossEntropy().fit(positives.forget_absent())
