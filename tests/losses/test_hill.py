"""Hill loss against its definition."""

import pytest

from conformance.loss_suite import LossSuite
from manylabel.errors import ConfigError
from manylabel.losses import Hill


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


def test_rejects_a_negative_gamma():
    with pytest.raises(ConfigError, match="gamma must be 0 or more, got -1"):
        Hill(gamma=-1)
