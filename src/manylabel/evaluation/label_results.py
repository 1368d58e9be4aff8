"""How well each label is recognised: average precision, decisions at its threshold, and its precision-recall curve.

Letters in shape comments: L labels, D draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manylabel.evaluation.estimate import Estimate, estimates
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import average_precision, precision_recall
from manylabel.metrics.inputs import Judged
from manylabel.metrics.ranks import rank_positives

__all__ = ["Curve", "LabelResult", "label_results"]

_MOST_POINTS = 50  # more cannot be seen in a plot


@dataclass(frozen=True)
class Curve:
    """A precision-recall curve, thinned: the precision reached at rising recalls."""

    recall: tuple[float, ...]
    precision: tuple[float, ...]


@dataclass(frozen=True)
class LabelResult:
    """How well one label is recognised.

    Args:
        name: The label.
        display_name: What to show a person.
        positives: The number of pictures that have it.
        known: The number of pictures of which it is known whether they have it.
        average_precision: With its interval; none for a label without positives.
        threshold: From which score on it counts as predicted.
        predicted: The number of pictures, of those known, for which it is predicted.
        precision: At the threshold; 0 if it is never predicted.
        recall: At the threshold.
        f1: Their harmonic mean.
        curve: Precision and recall at every other threshold.
    """

    name: str
    display_name: str
    positives: int
    known: int
    average_precision: Estimate | None
    threshold: float
    predicted: int
    precision: float
    recall: float
    f1: float
    curve: Curve

    @property
    def value(self) -> float:
        """The average precision alone; 0 for a label without positives."""
        return 0.0 if self.average_precision is None else self.average_precision.value

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        average = None if self.average_precision is None else self.average_precision.to_dict()
        return {**vars(self), "average_precision": average, "curve": vars(self.curve)}


def label_results(scored: ScoredImages, draws: NDArray[np.float64]) -> tuple[LabelResult, ...]:
    """Judge each label.

    Args:
        scored: The scores beside the truth.
        draws: ``[L, D]``, the average precision in each draw of the bootstrap; D may be 0.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 0]], labels=["cat", "dog"])
        >>> cat, dog = label_results(scored, np.zeros((2, 0)))
        >>> cat.average_precision.value, cat.recall, dog.average_precision
        (1.0, 1.0, None)
    """
    judged = scored.judged
    thresholds = scored.thresholds or (0.5,) * len(scored.labels)
    average = average_precision(*judged)
    decided = precision_recall(*scored.decided)
    precision, recall = decided.precision.values.double(), decided.recall.values.double()
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
    columns = zip(
        scored.labels,
        judged.positives.sum(dim=0).tolist(),
        scored.known.sum(dim=0).tolist(),
        estimates(average.values.numpy(), draws),
        thresholds,
        (scored.predicted & scored.known).sum(dim=0).tolist(),
        precision.tolist(),
        recall.tolist(),
        f1.tolist(),
        _curves(judged),
        strict=True,
    )
    return tuple(
        LabelResult(name, scored.labels.display(name), there, known, value if there else None, *rest)
        for name, there, known, value, *rest in columns
    )


def _curves(judged: Judged) -> list[Curve]:
    """Return the curve of each label."""
    curves = []
    for block in judged.by_label():
        ranks = rank_positives(block)
        precision = (ranks.positives_above / ranks.above.clamp(min=1)).numpy()
        recall = (ranks.positives_above / ranks.counts[:, None].clamp(min=1)).numpy()
        for row, count in enumerate(ranks.counts.tolist()):
            # The positives are sorted by rising score, a curve by rising recall.
            chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(int))[::-1]
            points = (np.round(values[row][chosen], 4).tolist() for values in (recall, precision))
            curves.append(Curve(*map(tuple, points)))
    return curves
