"""Class-aware selective loss against its definition, over epochs."""

import pytest
import torch

from conformance.loss_suite import BATCH, LABELS, IncompleteTagsSuite, entropies
from manylabel.errors import ConfigError
from manylabel.losses import ClassAwareSelective


class TestClassAwareSelective(IncompleteTagsSuite):
    cases = {
        "default": lambda: ClassAwareSelective(),
        "two": lambda: ClassAwareSelective(1, 2, 3, num_likely=2),
        "mean": lambda: ClassAwareSelective(num_likely=1, reduction="mean"),
    }

    def reference(self, loss, logits, targets, known):
        costs = []
        for image in range(BATCH):
            hidden = [label for label in range(LABELS) if not known[image, label]]
            ignored = sorted(hidden, key=lambda label: -logits[image, label].item())[: loss.num_likely]
            for label in set(range(LABELS)) - set(ignored):
                (present, absent), score = entropies(logits[image, label]), logits[image, label].sigmoid().detach()
                if known[image, label] and targets[image, label]:
                    costs.append((1 - score) ** loss.gamma_positive * present)
                else:
                    gamma = loss.gamma_negative if known[image, label] else loss.gamma_unknown
                    costs.append(score**gamma * absent)
        total = sum(costs) if costs else logits.sum() * 0
        return total if loss.reduction == "sum" else total / max(len(costs), 1)


def test_a_label_of_high_mean_score_in_the_last_epoch_is_ignored_where_unknown():
    loss = ClassAwareSelective(num_likely=1, gamma_unknown=0)
    logits, targets = torch.tensor([[5.0, 1.0, -1.0]]), torch.tensor([[-1, -1, -1]])
    _, absent = entropies(logits[0])
    torch.testing.assert_close(loss(logits, targets), absent[1] + absent[2])
    loss.start_epoch(1, 5)  # the prior of the second label is sigmoid(1), above 0.5
    torch.testing.assert_close(loss(logits, targets), absent[2])
    torch.testing.assert_close(
        loss(logits, torch.tensor([[-1, 0, -1]])), logits[0, 1].sigmoid() * absent[1] + absent[2]
    )


def test_rejects_to_ignore_no_label():
    with pytest.raises(ConfigError, match="num_likely must be at least 1, got 0"):
        ClassAwareSelective(num_likely=0)
