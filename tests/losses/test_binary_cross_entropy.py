"""Binary cross-entropy against its definition."""

import torch

from conformance.loss_suite import LABELS, MultiLabelLossSuite
from manylabel.losses import BinaryCrossEntropy


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
