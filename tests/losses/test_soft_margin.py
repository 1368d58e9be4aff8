"""The soft margin loss against torch's, and with pictures of which little is known."""

import pytest
import torch

from conformance.loss_suite import BATCH, LABELS, MultiLabelLossSuite
from manylabel.losses import MultiLabelSoftMargin


class TestMultiLabelSoftMargin(MultiLabelLossSuite):
    cases = {
        "default": lambda: MultiLabelSoftMargin(),
        "sum": lambda: MultiLabelSoftMargin(reduction="sum"),
        "weighted": lambda: MultiLabelSoftMargin(positive_weights=torch.linspace(0.5, 4, LABELS)),
    }

    def reference(self, loss, logits, targets, known):
        weights = torch.ones(LABELS) if loss.positive_weights is None else loss.positive_weights
        pictures = []
        for picture in range(BATCH):
            scores = logits[picture].sigmoid()
            costs = [
                -weights[label].double() * scores[label].log()
                if targets[picture, label]
                else -(1 - scores[label]).log()
                for label in range(LABELS)
                if known[picture, label]
            ]
            pictures += [sum(costs) / len(costs)] if costs else []
        return sum(pictures) if loss.reduction == "sum" else sum(pictures) / len(pictures)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_equals_torch_with_everything_known(reduction):
    logits, targets = torch.randn(4, 3), torch.eye(4, 3)
    expected = torch.nn.MultiLabelSoftMarginLoss(reduction=reduction)(logits, targets)
    torch.testing.assert_close(MultiLabelSoftMargin(reduction=reduction)(logits, targets), expected)
