"""Focal loss against its definition."""

import pytest
import torch
from torchvision.ops import sigmoid_focal_loss

from conformance.loss_suite import LABELS, MultiLabelLossSuite
from manylabel.errors import ConfigError
from manylabel.losses import FocalLoss


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
