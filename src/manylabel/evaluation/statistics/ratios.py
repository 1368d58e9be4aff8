"""Measures that are a sum over pictures divided by another: most of them.

Letters in shape comments: N pictures, L labels, R ratios, D weightings.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import top_labels
from manylabel.metrics.inputs import Judged
from manylabel.metrics.ranking import coverage_depths, ranking_losses

__all__ = ["Ratio", "WeightedRatios", "overall_ratios", "picture_ratios"]


class Ratio(NamedTuple):
    """What each picture adds above and below the line.

    Examples:
        >>> recall = Ratio(torch.tensor([1, 0]), torch.tensor([2, 1]))
        >>> round(recall.value, 4)
        0.3333
    """

    numerator: Tensor
    denominator: Tensor

    @property
    def value(self) -> float:
        """The ratio when every picture counts once; 0 where there is nothing to divide by."""
        below = float(self.denominator.double().sum())
        return float(self.numerator.double().sum()) / below if below else 0.0


class WeightedRatios:
    """Ratios of pictures that count more than once.

    Args:
        ratios: The ratios by name.

    Examples:
        >>> ratios = WeightedRatios({"recall": Ratio(torch.tensor([1, 0]), torch.tensor([2, 1]))})
        >>> ratios(torch.tensor([[1.0, 2.0], [1.0, 0.0]]))
        tensor([[0.3333, 0.5000]])
    """

    def __init__(self, ratios: Mapping[str, Ratio]) -> None:
        self.names = tuple(ratios)
        self.numerators = torch.stack([ratio.numerator.float() for ratio in ratios.values()])  # [R, N]
        self.denominators = torch.stack([ratio.denominator.float() for ratio in ratios.values()])

    def __call__(self, weights: Tensor) -> Tensor:
        """Return ``[R, D]`` for weights ``[N, D]``; NaN where there is nothing to divide by."""
        return (self.numerators @ weights) / (self.denominators @ weights)


def overall_ratios(predicted: Tensor, judged: Judged, *, suffix: str = "") -> dict[str, Ratio]:
    """Return OP, OR and OF1 of some predictions.

    Args:
        predicted: ``[N, L]``, true where a label is predicted.
        judged: Scores and truth.
        suffix: What to add to the names, such as ``"@3"``.
    """
    hits = (predicted & judged.positives).sum(dim=1)
    named = (predicted if judged.known is None else predicted & judged.known).sum(dim=1)
    there = judged.positives.sum(dim=1)
    return {
        f"OP{suffix}": Ratio(hits, named),
        f"OR{suffix}": Ratio(hits, there),
        f"OF1{suffix}": Ratio(2 * hits, named + there),
    }


def picture_ratios(scored: ScoredImages) -> dict[str, Ratio]:
    """Return every measure of `manylabel.evaluation.measures` that is a ratio of sums over pictures.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 1]], labels=["cat", "dog"])
        >>> ratios = picture_ratios(scored)
        >>> ratios["OR"].value, ratios["subset_accuracy"].value
        (0.6666666666666666, 0.0)
    """
    judged = scored.judged
    ones = torch.ones(len(scored))
    known = (judged.positives | judged.negatives).sum(dim=1)
    wrong = ((scored.predicted & judged.negatives) | (~scored.predicted & judged.positives)).sum(dim=1)
    reachable = scored.scores.masked_fill(~scored.known, -torch.inf)
    best_is_there = (top_labels(reachable, 1) & judged.positives).any(dim=1)
    has_positive = judged.positives.any(dim=1)
    top_three = overall_ratios(top_labels(scored.scores, 3), judged, suffix="@3")
    ratios = {
        **overall_ratios(scored.predicted, judged),
        **top_three,
        "F1@3": top_three["OF1@3"],
        "F1@5": overall_ratios(top_labels(scored.scores, 5), judged)["OF1"],
        "ranking_loss": Ratio(ranking_losses(judged), ones),
        "coverage": Ratio(coverage_depths(judged), ones),
        "one_error": Ratio(has_positive & ~best_is_there, has_positive),
        "subset_accuracy": Ratio((wrong == 0) & (known > 0), known > 0),
        "hamming_loss": Ratio(wrong, known),
    }
    if scored.has_one_label_each:
        ratios["top_1"] = Ratio(best_is_there, ones)
    return ratios
