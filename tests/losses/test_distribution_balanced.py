"""Distribution-balanced loss against its definition."""

import numpy as np
import pytest
import torch

from conformance.loss_suite import BATCH, LABELS, LossSuite
from manylabel.errors import ConfigError
from manylabel.losses import DistributionBalancedLoss
from manylabel.targets import Targets

COUNTS = [1, 2, 3, 4, 6, 9, 12, 20, 39]  # images of each label, of 40


def balanced(**settings):
    loss = DistributionBalancedLoss(**settings)
    loss.fit(Targets.from_dense(np.arange(40)[:, None] < np.array(COUNTS)))
    return loss


class TestDistributionBalancedLoss(LossSuite):
    cases = {
        "default": lambda: balanced(),
        "sum": lambda: balanced(gamma=1, reduction="sum"),
        "negative": lambda: balanced(unknown="negative", absent_scale=5, bias=0.3),
    }

    def reference(self, loss, logits, targets, known):
        costs = []
        for image in range(BATCH):
            is_present = [bool(known[image, label] and targets[image, label]) for label in range(LABELS)]
            repeats = sum(1 / count for count, present in zip(COUNTS, is_present, strict=True) if present)
            for label, count in enumerate(COUNTS):
                if not known[image, label] and loss.unknown == "ignore":
                    continue
                ratio = 1 / count / repeats if repeats else np.inf
                weight = loss.overall + 1 / (1 + np.exp(-loss.slope * (ratio - loss.midpoint)))
                logit = logits[image, label] - loss.bias * np.log(40 / count - 1) / loss.absent_scale
                if is_present[label]:
                    score = logit.sigmoid()
                    costs.append(-2 * weight * (1 - score) ** loss.gamma * score.log())
                else:
                    score = (-loss.absent_scale * logit).sigmoid()
                    costs.append(-2 * weight * (1 - score) ** loss.gamma * score.log() / loss.absent_scale)
        return sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs)


def test_needs_the_frequencies():
    with pytest.raises(ConfigError, match=r"call fit\(targets\) first"):
        DistributionBalancedLoss()(torch.zeros(1, 2), torch.zeros(1, 2))


def test_needs_something_absent():
    targets = Targets.from_lists([[0], [1]], num_labels=2).forget_absent()
    with pytest.raises(ConfigError, match="nothing absent is left to learn from"):
        DistributionBalancedLoss().fit(targets)
    DistributionBalancedLoss(unknown="negative").fit(targets)


def test_rare_labels_weigh_more_than_frequent_ones_in_the_same_image():
    logits = torch.zeros(1, LABELS, requires_grad=True)
    balanced()(logits, torch.ones(1, LABELS)).backward()
    assert logits.grad[0, 0] < logits.grad[0, -1] < 0
