"""Large-loss rejection and correction against their definitions, over epochs and images."""

import math

import pytest
import torch

from conformance.loss_suite import IncompleteTagsSuite, entropies, in_epoch
from manylabel.errors import ConfigError
from manylabel.losses import LargeLoss
from manylabel.targets import Targets


class TestLargeLoss(IncompleteTagsSuite):
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action": "rejects"}, "action cannot be 'rejects'; did you mean 'reject'"),
        ({"rate": 2}, "rate must be above 0 and below 1, got 2"),
    ],
)
def test_rejects_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError, match=message):
        LargeLoss(**settings)
