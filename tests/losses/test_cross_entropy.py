"""Cross-entropy against its definition and torch."""

import pytest
import torch
import torch.nn.functional as F

from conformance.loss_suite import BATCH, LABELS, LossSuite
from manylabel.errors import ConfigError
from manylabel.losses import CrossEntropy


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


def test_an_image_without_a_label_does_not_count():
    logits, targets = torch.randn(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert CrossEntropy()(logits, targets) == CrossEntropy()(logits[:1], targets[:1])


def test_an_image_with_two_labels_costs_their_mean():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    both, first, last = (torch.tensor([row]) for row in ([1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
    loss = CrossEntropy()
    torch.testing.assert_close(loss(logits, both), (loss(logits, first) + loss(logits, last)) / 2)


def test_rejects_a_wrong_reduction():
    with pytest.raises(ConfigError, match="did you mean 'mean'"):
        CrossEntropy(reduction="means")
