"""Self-paced loss correction against its definition."""

import pytest

from conformance.loss_suite import IncompleteTagsSuite, in_epoch
from manylabel.errors import ConfigError
from manylabel.losses import SelfPacedCorrection


class TestSelfPacedCorrection(IncompleteTagsSuite):
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


def test_rejects_a_threshold_of_one():
    with pytest.raises(ConfigError, match=r"threshold must be above 0 and below 1, got 1\.0"):
        SelfPacedCorrection(1.0)
