"""The contract of all losses: names, unknown labels, weights of positives, and what they learn from the run."""

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.losses import LOSSES, BinaryCrossEntropy, CrossEntropy, MultiLabelLoss, positive_weights
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
    with pytest.raises(ConfigError, match=r"nothing absent is left to learn from; set --loss.unknown negative, or"):
        BinaryCrossEntropy().fit(positives.forget_absent())


def test_present_and_absent_images_of_a_label_weigh_the_same_in_total():
    targets = Targets.from_lists([[0], [0, 1], [], [], [], []], num_labels=2)
    values = torch.from_numpy(targets.dense()[0])
    weights = positive_weights(targets)
    torch.testing.assert_close((values * weights).sum(dim=0), (1 - values).sum(dim=0))


def test_unknown_labels_are_not_counted():
    listed = Targets.from_lists([[0], [], [], []], num_labels=1, unknown=[[], [], [0], [0]])
    assert positive_weights(listed).tolist() == [1]
    absent = Targets.from_lists([[0], [], [], []], num_labels=1, absent=[[], [0], [0], []])
    assert positive_weights(absent).tolist() == [2]


def test_a_weight_is_at_most_the_maximum_and_one_without_positives():
    targets = Targets.from_lists([[0]] + [[]] * 50, num_labels=2)
    assert positive_weights(targets, maximum=20).tolist() == [20, 1]


def test_rejects_a_maximum_of_nothing():
    with pytest.raises(ConfigError, match="maximum must be above 0, got 0"):
        positive_weights(Targets.from_lists([[0]], num_labels=1), maximum=0)


def test_a_label_that_is_never_known_to_be_absent_keeps_its_weight():
    targets = Targets.from_lists([[0], [0]], num_labels=1, unknown=[[], []])
    assert positive_weights(targets).tolist() == [1.0]  # 0 would train it to be absent wherever it is unknown
