"""Two-way loss against its definition."""

import pytest

from conformance.loss_suite import LossSuite
from manylabel.errors import ConfigError
from manylabel.losses import TwoWayLoss


class TestTwoWayLoss(LossSuite):
    cases = {
        "default": lambda: TwoWayLoss(),
        "sum": lambda: TwoWayLoss(2, 0.5, reduction="sum"),
        "negative": lambda: TwoWayLoss(unknown="negative"),
    }

    def reference(self, loss, logits, targets, known):
        hot, cold = loss.positive_temperature, loss.negative_temperature
        total = 0
        for rows, signs, masks in ((logits, targets, known), (logits.T, targets.T, known.T)):
            costs = []
            for row, sign, mask in zip(rows, signs, masks, strict=True):
                counts = mask | (loss.unknown == "negative")
                present = [(-x / hot).exp() for x, y, m in zip(row, sign, mask, strict=True) if m and y == 1]
                absent = [
                    (x / cold).exp() for x, y, m, c in zip(row, sign, mask, counts, strict=True) if c and not (m and y)
                ]
                if present:
                    ratio = sum(present) ** hot * sum(absent) ** cold if absent else row.sum() * 0
                    costs.append((1 + ratio).log())
            total = total + (sum(costs) if loss.reduction == "sum" else sum(costs) / len(costs))
        return total


def test_rejects_a_temperature_of_zero():
    with pytest.raises(ConfigError, match="negative_temperature must be above 0, got 0"):
        TwoWayLoss(negative_temperature=0)
