"""Losses of each label on its own, against their definitions, torch and torchvision."""

import pytest
import torch
from torchvision.ops import sigmoid_focal_loss

from conformance.loss_suite import BATCH, LABELS, MultiLabelLossSuite
from manylabel.errors import ConfigError
from manylabel.losses import AsymmetricLoss, BinaryCrossEntropy, FocalLoss, MultiLabelSoftMargin


class TestBinaryCrossEntropy(MultiLabelLossSuite):
    cases = {
        "default": lambda: BinaryCrossEntropy(),
        "sum": lambda: BinaryCrossEntropy(reduction="sum"),
        "negative": lambda: BinaryCrossEntropy(unknown="negative"),
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
