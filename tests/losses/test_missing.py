"""Losses for incomplete tags against their definitions, over epochs and images."""

import math

import pytest
import torch

from conformance.loss_suite import BATCH, LABELS, LossSuite
from manylabel.errors import ConfigError
from manylabel.losses import ClassAwareSelective, EntropyMaximization, Hill, LargeLoss, SelfPacedCorrection
from manylabel.targets import Targets


def in_epoch(loss, epoch, num_epochs=10):
    loss.start_epoch(epoch, num_epochs)
    return loss


def entropies(logit):
    """Return the cross-entropy of a label if it is present, and if it is absent."""
    score = logit.sigmoid()
    return -score.log(), -(1 - score).log()


class TestHill(LossSuite):
    cases = {
        "default": lambda: Hill(),
        "mean": lambda: Hill(1.2, 0.5, 1, reduction="mean"),
        "ignore": lambda: Hill(unknown="ignore"),
    }

    def reference(self, loss, logits, targets, known):
        costs = []
        for logit, target, is_known in zip(logits.flatten(), targets.flatten(), known.flatten(), strict=True):
            score, shifted = logit.sigmoid(), (logit - loss.margin).sigmoid()
            if is_known and target:
                costs.append(-((1 - shifted) ** loss.gamma) * shifted.log())
            elif is_known or loss.unknown == "negative":
                costs.append((loss.scale - score) * score**2)
        return sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs)


class UnobservedSuite(LossSuite):
    """Of losses that treat unknown labels themselves: they count even if nothing is known."""

    def test_is_zero_with_zero_gradient_when_nothing_is_known(self, loss, batch):
        logits, targets, known = batch
        value = loss(logits, targets, torch.zeros_like(known))
        torch.testing.assert_close(
            value.double(), torch.as_tensor(self.reference(loss, logits.double(), targets, torch.zeros_like(known)))
        )

    def test_an_empty_batch_costs_nothing(self, loss):
        assert loss(torch.zeros(0, LABELS), torch.zeros(0, LABELS)) == 0

    def test_rejects_targets_without_unknown_labels(self, loss):
        with pytest.raises(ConfigError, match=r"no label of the training set is unknown; .* tags=incomplete"):
            loss.fit(Targets.from_lists([[0]], num_labels=2))


class TestSelfPacedCorrection(UnobservedSuite):
    cases = {
        "first epoch": lambda: SelfPacedCorrection(),
        "later": lambda: in_epoch(SelfPacedCorrection(), 1),
        "other settings": lambda: in_epoch(SelfPacedCorrection(0.9, 3, 0.5, 1, reduction="mean"), 3),
        "validation": lambda: in_epoch(SelfPacedCorrection(), 1).eval(),
    }

    def reference(self, loss, logits, targets, known):
        costs = []
        for logit, target, is_known in zip(logits.flatten(), targets.flatten(), known.flatten(), strict=True):
            score, shifted = logit.sigmoid(), (logit - loss.margin).sigmoid()
            corrects = loss.training and loss.epoch >= loss.first_epoch
            if target if is_known else corrects and score > loss.threshold:
                costs.append(-((1 - shifted) ** loss.gamma) * shifted.log())
            else:
                costs.append(-(score**loss.gamma) * (1 - score).log())
        return sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs)


class TestLargeLoss(UnobservedSuite):
    cases = {
        "first epoch": lambda: LargeLoss(),
        "reject": lambda: in_epoch(LargeLoss(rate=0.02), 3),
        "correct": lambda: in_epoch(LargeLoss("correct", 0.02, reduction="sum"), 3),
        "more than there are": lambda: in_epoch(LargeLoss("correct", 0.5), 2),
        "validation": lambda: in_epoch(LargeLoss(rate=0.02), 3).eval(),
    }

    def reference(self, loss, logits, targets, known):
        flat = list(zip(logits.flatten(), targets.flatten(), known.flatten(), strict=True))
        number = math.ceil(loss.rate * loss.epoch * len(flat)) if loss.training else 0
        unknown = [place for place, (_, _, is_known) in enumerate(flat) if not is_known]
        largest = sorted(unknown, key=lambda place: -entropies(flat[place][0])[1].item())[:number]
        costs = []
        for place, (logit, target, is_known) in enumerate(flat):
            if place in largest and loss.action == "reject":
                continue
            present = place in largest or bool(is_known and target)
            costs.append(entropies(logit)[0 if present else 1])
        return sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs) if costs else logits.sum() * 0


def test_what_was_relabelled_stays_present_in_later_epochs():
    loss = LargeLoss("relabel", 0.25)
    loss.fit(Targets.from_lists([[0], [1], [0]], num_labels=2).forget_absent())
    logits, targets, images = (
        torch.tensor([[0.0, 3.0], [1.0, 0.0]]),
        torch.tensor([[1, -1], [-1, 1]]),
        torch.tensor([2, 1]),
    )
    present, absent = entropies(torch.tensor([3.0, 1.0]))
    half = math.log(2)
    torch.testing.assert_close(loss(logits, targets, None, images), (2 * half + absent.sum()) / 4)
    loss.start_epoch(1, 5)  # one of four labels: the one of logit 3
    torch.testing.assert_close(loss(logits, targets, None, images), (2 * half + present[0] + absent[1]) / 4)
    assert loss.memory["relabelled"].tolist() == [[False, False], [False, False], [False, True]]
    loss.start_epoch(2, 5)  # one more
    torch.testing.assert_close(
        loss(-logits, targets, None, images).item(), (2 * half + 3.0486 + 1.3133) / 4, rtol=1e-4, atol=0
    )
    assert loss.memory["relabelled"].sum() == 2


def test_relabelling_needs_to_know_the_images():
    loss = in_epoch(LargeLoss("relabel"), 1)
    with pytest.raises(ConfigError, match=r"call fit\(targets\) before training, and pass the positions"):
        loss(torch.zeros(1, 2), torch.tensor([[1, -1]]))


class TestEntropyMaximization(UnobservedSuite):
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
    monkeypatch.setattr("manylabel.losses.missing._SORTED_AT_ONCE", at_once)
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


class TestClassAwareSelective(UnobservedSuite):
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SelfPacedCorrection(1.0), "threshold must be above 0 and below 1, got 1.0"),
        (lambda: LargeLoss("rejects"), "action cannot be 'rejects'; did you mean 'reject'"),
        (lambda: LargeLoss(rate=2), "rate must be above 0 and below 1, got 2"),
        (lambda: EntropyMaximization(negatives=1), "negatives must be at least 0 and below 1, got 1"),
        (lambda: ClassAwareSelective(num_likely=0), "num_likely must be at least 1, got 0"),
        (lambda: Hill(gamma=-1), "gamma must be 0 or more, got -1"),
    ],
)
def test_rejects_settings_out_of_range(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
