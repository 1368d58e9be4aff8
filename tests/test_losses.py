"""Losses against their definitions, and against torch and torchvision where these have them."""

import pytest
import torch
import torch.nn.functional as F
from torchvision.ops import sigmoid_focal_loss

from conformance.loss_suite import BATCH, LABELS, LossSuite, MultiLabelLossSuite
from manylabel.errors import ConfigError
from manylabel.losses import (
    LOSSES,
    AsymmetricLoss,
    BinaryCrossEntropy,
    CrossEntropy,
    FocalLoss,
    MultiLabelSoftMargin,
    positive_weights,
    resolve_unknown,
)
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


class TestBinaryCrossEntropy(MultiLabelLossSuite):
    cases = {
        "default": lambda: BinaryCrossEntropy(),
        "sum": lambda: BinaryCrossEntropy(reduction="sum"),
        "negative": lambda: BinaryCrossEntropy(unknown="negative"),
        "selective": lambda: BinaryCrossEntropy(unknown="selective", num_likely=2),
        "weighted": lambda: BinaryCrossEntropy(positive_weights=torch.linspace(0.5, 4, LABELS)),
    }

    def reference(self, loss, logits, targets, known):
        return self.slow(loss, lambda p: -p.log(), lambda p: -(1 - p).log(), logits, targets, known)


def test_equals_torch_with_everything_known():
    logits, targets, weights = torch.randn(4, 3), torch.eye(4, 3), torch.tensor([1.0, 2.0, 3.0])
    expected = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(logits, targets)
    torch.testing.assert_close(BinaryCrossEntropy(positive_weights=weights)(logits, targets), expected)


class TestMultiLabelSoftMargin(MultiLabelLossSuite):
    cases = {
        "default": lambda: MultiLabelSoftMargin(),
        "sum": lambda: MultiLabelSoftMargin(reduction="sum"),
        "weighted": lambda: MultiLabelSoftMargin(positive_weights=torch.linspace(0.5, 4, LABELS)),
    }

    def reference(self, loss, logits, targets, known):
        weights = torch.ones(LABELS) if loss.positive_weights is None else loss.positive_weights
        images = []
        for image in range(BATCH):
            scores = logits[image].sigmoid()
            costs = [
                -weights[label].double() * scores[label].log() if targets[image, label] else -(1 - scores[label]).log()
                for label in range(LABELS)
                if known[image, label]
            ]
            images += [sum(costs) / len(costs)] if costs else []
        return sum(images) if loss.reduction == "sum" else sum(images) / len(images)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_soft_margin_equals_torch_with_everything_known(reduction):
    logits, targets = torch.randn(4, 3), torch.eye(4, 3)
    expected = torch.nn.MultiLabelSoftMarginLoss(reduction=reduction)(logits, targets)
    torch.testing.assert_close(MultiLabelSoftMargin(reduction=reduction)(logits, targets), expected)


class TestFocalLoss(MultiLabelLossSuite):
    cases = {
        "default": lambda: FocalLoss(),
        "mean": lambda: FocalLoss(0.5, reduction="mean"),
        "selective": lambda: FocalLoss(unknown="selective", num_likely=2),
        "weighted": lambda: FocalLoss(positive_weights=torch.linspace(0.5, 4, LABELS)),
    }

    def reference(self, loss, logits, targets, known):
        def if_present(p):
            return -((1 - p) ** loss.gamma) * p.log()

        return self.slow(loss, if_present, lambda p: if_present(1 - p), logits, targets, known)


def test_equals_torchvision_with_everything_known():
    logits, targets = torch.randn(4, 3), torch.eye(4, 3)
    expected = sigmoid_focal_loss(logits, targets, alpha=-1, gamma=2, reduction="sum")
    torch.testing.assert_close(FocalLoss()(logits, targets), expected)


def test_rejects_a_negative_gamma():
    with pytest.raises(ConfigError, match="gamma must be 0 or more, got -2"):
        FocalLoss(gamma=-2)


class TestAsymmetricLoss(MultiLabelLossSuite):
    cases = {
        "default": lambda: AsymmetricLoss(),
        "gradient through the focus": lambda: AsymmetricLoss(4, 1, 0.05, detach_focus=False),
        "no margin, mean": lambda: AsymmetricLoss(2, 1, 0, reduction="mean", detach_focus=False),
        "margin only": lambda: AsymmetricLoss(0, 0, 0.2),
        "negative": lambda: AsymmetricLoss(unknown="negative"),
        "selective": lambda: AsymmetricLoss(unknown="selective", num_likely=2),
        "weighted": lambda: AsymmetricLoss(positive_weights=torch.linspace(0.5, 4, LABELS)),
    }

    def reference(self, loss, logits, targets, known):
        def focus(weight):
            return weight.detach() if loss.detach_focus else weight

        def if_present(p):
            return -focus((1 - p) ** loss.gamma_positive) * p.log()

        def if_absent(p):
            if p <= loss.clip:
                return 0 * p
            shifted = p - loss.clip
            return -focus(shifted**loss.gamma_negative) * (1 - shifted).log()

        return self.slow(loss, if_present, if_absent, logits, targets, known)


def test_is_cross_entropy_without_focus_and_focal_loss_with_equal_focus():
    logits, targets = torch.randn(5, 4), torch.eye(5, 4)
    entropy, focal = BinaryCrossEntropy(reduction="sum"), FocalLoss(gamma=3)
    torch.testing.assert_close(AsymmetricLoss(0, 0, 0)(logits, targets), entropy(logits, targets))
    torch.testing.assert_close(AsymmetricLoss(3, 3, 0)(logits, targets), focal(logits, targets))


def test_stopping_gradients_at_the_focus_changes_gradients_but_not_values():
    logits, targets = torch.randn(5, 4), torch.eye(5, 4)
    values, gradients = [], []
    for detach_focus in (True, False):
        variable = logits.clone().requires_grad_()
        value = AsymmetricLoss(4, 1, 0.05, detach_focus=detach_focus)(variable, targets)
        value.backward()
        values.append(value)
        gradients.append(variable.grad)
    assert values[0] == values[1]
    assert not torch.allclose(*gradients)


def test_the_gradient_is_that_of_the_value():
    loss = AsymmetricLoss(4, 1, 0.05, detach_focus=False)
    logits = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: loss(x, torch.eye(3, 4)), logits)


def test_a_focus_below_one_has_a_finite_gradient_at_the_margin():
    logits = torch.tensor([[-5.0, torch.logit(torch.tensor(0.05)).item()]], requires_grad=True)
    AsymmetricLoss(0.5, 0.5, 0.05, detach_focus=False)(logits, torch.zeros(1, 2)).backward()
    assert logits.grad.tolist() == [[0, 0]]


def test_an_easy_absent_label_costs_nothing():
    assert AsymmetricLoss()(torch.full((1, 2), -4.0), torch.zeros(1, 2)) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma_negative": -1}, "gamma_negative must be 0 or more, got -1"),
        ({"gamma_positive": float("nan")}, "gamma_positive must be 0 or more, got nan"),
        ({"clip": 1.0}, "clip must be at least 0 and below 1, got 1.0"),
    ],
)
def test_rejects_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError, match=message):
        AsymmetricLoss(**settings)


class TestCrossEntropy(LossSuite):
    cases = {
        "default": lambda: CrossEntropy(),
        "sum": lambda: CrossEntropy(reduction="sum"),
        "weighted": lambda: CrossEntropy(positive_weights=torch.linspace(0.5, 4, LABELS)),
    }

    def draw_targets(self, generator):
        return F.one_hot(torch.randint(LABELS, (BATCH,), generator=generator), LABELS).float()

    def reference(self, loss, logits, targets, known):
        weights = torch.ones(LABELS) if loss.positive_weights is None else loss.positive_weights
        costs = []
        for image, label in enumerate(targets.argmax(dim=1).tolist()):
            if known[image, label]:
                share = logits[image, label].exp() / logits[image].exp().sum()
                costs.append(-weights[label].double() * share.log())
        return sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs)


def test_cross_entropy_equals_torch_with_everything_known():
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    expected = torch.nn.CrossEntropyLoss()(logits, labels)
    torch.testing.assert_close(CrossEntropy()(logits, F.one_hot(labels, 3)), expected)


def test_a_image_without_a_label_does_not_count():
    logits, targets = torch.randn(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert CrossEntropy()(logits, targets) == CrossEntropy()(logits[:1], targets[:1])


def test_a_image_with_two_labels_costs_their_mean():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    both, first, last = (torch.tensor([row]) for row in ([1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
    loss = CrossEntropy()
    torch.testing.assert_close(loss(logits, both), (loss(logits, first) + loss(logits, last)) / 2)


def test_rejects_a_wrong_reduction():
    with pytest.raises(ConfigError, match="did you mean 'mean'"):
        CrossEntropy(reduction="means")
