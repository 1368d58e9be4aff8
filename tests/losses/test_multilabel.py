"""The shared part of losses: which labels count when some are unknown, and weights from data."""

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.losses import LOSSES, BinaryCrossEntropy, positive_weights
from manylabel.losses.multilabel import resolve_unknown
from manylabel.targets import Targets

LOGITS = torch.tensor([[5.0, 1.0, 4.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 9.0]], requires_grad=True)
TARGETS = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]])
KNOWN = torch.tensor([[True, False, False, False, True], [True, True, True, True, False]])


def resolve(unknown, known=KNOWN, num_likely=2):
    targets, counted = resolve_unknown(LOGITS, TARGETS, known, unknown=unknown, num_likely=num_likely)
    return targets.int().tolist(), counted.int().tolist()


def test_what_is_not_known_is_never_present():
    for unknown in ("ignore", "negative", "selective"):
        assert resolve(unknown)[0] == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]


def test_ignoring_counts_only_what_is_known():
    assert resolve("ignore")[1] == [[1, 0, 0, 0, 1], [1, 1, 1, 1, 0]]


def test_taking_unknown_labels_for_absent_counts_everything():
    assert resolve("negative")[1] == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_the_selective_way_leaves_out_the_likeliest_unknown_labels_of_each_image():
    assert resolve("selective")[1] == [[1, 1, 0, 0, 1], [1, 1, 1, 1, 0]]
    assert resolve("selective", num_likely=1)[1] == [[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]]


def test_the_selective_way_is_to_ignore_all_when_there_are_few():
    assert resolve("selective", num_likely=99) == resolve("ignore")


def test_without_a_mask_everything_counts():
    for unknown in ("ignore", "negative", "selective"):
        assert resolve(unknown, known=None) == (TARGETS.int().tolist(), [[1] * 5] * 2)


def test_choosing_gives_no_gradient():
    targets, counted = resolve_unknown(LOGITS, TARGETS, KNOWN, unknown="selective", num_likely=2)
    assert not targets.requires_grad
    assert not counted.requires_grad


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


def test_weights_are_saved_and_moved_with_the_loss():
    loss = BinaryCrossEntropy(positive_weights=torch.tensor([1.0, 2.0]))
    assert loss.state_dict()["positive_weights"].tolist() == [1, 2]
    assert loss.to("meta").positive_weights.device.type == "meta"


def test_every_loss_can_be_had_by_name():
    assert {name: kind().__class__.__name__ for name, kind in LOSSES.items()} == {
        "asymmetric": "AsymmetricLoss",
        "binary_cross_entropy": "BinaryCrossEntropy",
        "cross_entropy": "CrossEntropy",
        "focal": "FocalLoss",
        "soft_margin": "MultiLabelSoftMargin",
    }


def test_a_label_that_is_never_known_to_be_absent_keeps_its_weight():
    targets = Targets.from_lists([[0], [0]], num_labels=1, unknown=[[], []])
    assert positive_weights(targets).tolist() == [1.0]  # 0 would train it to be absent wherever it is unknown
