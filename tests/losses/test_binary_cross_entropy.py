"""Binary cross-entropy against its definition; the soft margin loss against torch's, and with few known labels."""

import pytest
import torch

from conformance.loss_suite import BATCH, LABELS, MultiLabelLossSuite
from manylabel.losses import BinaryCrossEntropy, MultiLabelSoftMargin


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
