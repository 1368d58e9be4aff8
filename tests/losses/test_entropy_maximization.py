"""Entropy maximization and its pseudo-labels against their definitions, over epochs."""

import math

import pytest
import torch

from conformance.loss_suite import IncompleteTagsSuite, entropies
from manylabel.errors import ConfigError
from manylabel.losses import EntropyMaximization
from manylabel.targets import Targets


class TestEntropyMaximization(IncompleteTagsSuite):
    cases = {
        "alone": lambda: EntropyMaximization(negatives=0),
        "sum": lambda: EntropyMaximization(0.5, negatives=0, reduction="sum"),
        "validation": lambda: EntropyMaximization().eval(),
    }

    def reference(self, loss, logits, targets, known):
        costs = []
        for logit, target, is_known in zip(logits.flatten(), targets.flatten(), known.flatten(), strict=True):
            present, absent = entropies(logit)
            entropy = logit.sigmoid() * present + (1 - logit.sigmoid()) * absent
            costs.append((present if target else absent) if is_known else -loss.alpha * entropy)
        return sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs)


def test_the_lowest_scores_of_each_label_become_pseudo_labels_after_the_warmup():
    loss = EntropyMaximization(alpha=0.1, beta=0.5, negatives=0.8, warmup=0.5)
    loss.fit(Targets.from_lists([[0]] * 5, num_labels=2).forget_absent())  # label 1 is unknown in 5 images
    logits = torch.tensor([[0.0, value] for value in (2.0, -1.0, -3.0, -2.0, 1.0)])
    targets, images = torch.tensor([[1, -1]] * 5), torch.arange(5)
    expected = {0: [], 1: [], 2: [2, 3], 3: [1, 2, 3, 4]}  # 0.8 * 5 / 2 in each epoch
    for epoch, chosen in expected.items():
        loss.start_epoch(epoch, 4)
        value = loss(logits, targets, None, images)
        costs = []
        for image, logit in enumerate(logits[:, 1]):
            (present, absent), score = entropies(logit), logit.sigmoid()
            entropy = score * present + (1 - score) * absent
            costs.append(0.5 * entropy if image in chosen else -0.1 * entropy)  # the score itself is the target
        torch.testing.assert_close(value, (5 * math.log(2) + sum(costs)) / 10, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("at_once", [1, 60, 10_000])
def test_pseudo_labels_are_chosen_as_label_by_label(monkeypatch, at_once):
    monkeypatch.setattr("manylabel.losses.entropy_maximization._SORTED_AT_ONCE", at_once)
    known = torch.rand(30, 7, generator=torch.Generator().manual_seed(0)) < 0.4
    present = [row.nonzero().flatten().tolist() for row in known]
    loss = EntropyMaximization(negatives=0.6, warmup=0)
    loss.fit(Targets.from_lists(present, num_labels=7).forget_absent())
    scores = torch.rand(30, 7, generator=torch.Generator().manual_seed(1)).half().masked_fill(known, -1)
    scores[3] = -1  # an image that no batch contained
    loss.memory["scores"].copy_(scores)
    expected = torch.full((30, 7), -1.0).half()
    for _ in range(2):
        for label in range(7):
            waiting = [image for image in range(30) if scores[image, label] >= 0 and expected[image, label] < 0]
            number = int(0.6 * (~known[:, label]).sum() / 3)
            for image in sorted(waiting, key=lambda image: scores[image, label].item())[:number]:
                expected[image, label] = scores[image, label]
    for epoch in (1, 2):
        loss.start_epoch(epoch, 3)
    assert torch.equal(loss.memory["pseudo"], expected)


def test_rejects_pseudo_labels_for_every_unknown_label():
    with pytest.raises(ConfigError, match="negatives must be at least 0 and below 1, got 1"):
        EntropyMaximization(negatives=1)
