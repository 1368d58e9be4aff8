"""The asymmetric loss against the paper's formula."""

import pytest
import torch

from conformance.loss_suite import LABELS, MultiLabelLossSuite
from manylabel.errors import ConfigError
from manylabel.losses import AsymmetricLoss, BinaryCrossEntropy, FocalLoss


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
