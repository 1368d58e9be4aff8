"""Results in detail: how well each label is recognised, which labels are confused, and the worst and best images.

Letters in shape comments: N images, L labels, D draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from manylabel.evaluation.bootstrap import Estimate, estimates
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import average_precision, precision_recall
from manylabel.metrics.average_precision import precision_curves
from manylabel.types import Tag

__all__ = [
    "Confusion",
    "Curve",
    "ImageResult",
    "LabelResult",
    "find_confusions",
    "image_losses",
    "image_results",
    "label_results",
]

_MOST_POINTS = 50  # more cannot be seen in a plot


@dataclass(frozen=True)
class Curve:
    """A precision-recall curve, thinned: the precision reached at rising recalls."""

    recall: tuple[float, ...]
    precision: tuple[float, ...]


@dataclass(frozen=True)
class LabelResult:
    """How well one label is recognised; None for what a label without positives does not have.

    Args:
        name: The label.
        display_name: The name to show.
        positives: Number of images that have it.
        known: Number of images of which it is known whether they have it.
        average_precision: With its interval.
        threshold: Score from which on it is predicted.
        predicted: Number of images, of those known, for which it is predicted.
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
    precision: float | None
    recall: float | None
    f1: float | None
    curve: Curve

    @property
    def value(self) -> float:
        """The average precision alone; 0 for a label without positives."""
        return 0.0 if self.average_precision is None else self.average_precision.value


@dataclass(frozen=True)
class Confusion:
    """One label is missed while another, absent one is predicted.

    Args:
        missed: The label that is present but not predicted.
        invented: The label that is predicted but absent.
        count: Number of images in which both happens.
        fraction: Fraction of the images with `missed` missed in which `invented` is predicted.
        usual_fraction: Fraction of all other images in which `invented` is wrongly predicted.
    """

    missed: str
    invented: str
    count: int
    fraction: float
    usual_fraction: float


@dataclass(frozen=True)
class ImageResult:
    """The predictions for one image, next to the truth.

    Args:
        name: The image.
        index: Its position in the dataset.
        loss: Binary cross-entropy, summed over the known labels.
        found: Labels that are present and predicted, the most confident first.
        missed: Labels that are present but not predicted, the least likely first.
        invented: Labels that are absent but predicted, the most confident first.
    """

    name: str
    index: int
    loss: float
    found: tuple[Tag, ...]
    missed: tuple[Tag, ...]
    invented: tuple[Tag, ...]


def label_results(scored: ScoredImages, draws: NDArray[np.float64]) -> tuple[LabelResult, ...]:
    """Evaluate each label.

    Args:
        scored: Scores and targets.
        draws: ``[L, D]``, the average precision in each draw of the bootstrap; D may be 0.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 0]], labels=["cat", "dog"])
        >>> cat, dog = label_results(scored, np.zeros((2, 0)))
        >>> cat.average_precision.value, cat.recall, dog.average_precision
        (1.0, 1.0, None)
    """
    decided = precision_recall(*scored.decisions)
    columns = zip(
        scored.labels,
        scored.inputs.positives.sum(dim=0).tolist(),
        scored.known.sum(dim=0).tolist(),
        estimates(average_precision(*scored.inputs).numpy(), draws),
        scored.thresholds or (0.5,) * len(scored.labels),
        (scored.predicted & scored.known).sum(dim=0).tolist(),
        zip(*(values.tolist() for values in (decided.precision, decided.recall, decided.label_f1)), strict=True),
        map(_thin, precision_curves(*scored.inputs)),
        strict=True,
    )
    results = []
    for name, positives, known, average, threshold, predicted, decisions, curve in columns:
        precision, recall, f1 = decisions if positives else (None, None, None)
        average_or_none = average if positives else None
        results.append(
            LabelResult(
                name,
                scored.labels.display(name),
                positives,
                known,
                average_or_none,
                threshold,
                predicted,
                precision,
                recall,
                f1,
                curve,
            )
        )
    return tuple(results)


def find_confusions(scored: ScoredImages, *, at_most: int = 20) -> tuple[Confusion, ...]:
    """Find the pairs of labels of which one is often missed while the other is invented.

    A pair counts if this happens in at least two images. Pairs are sorted by how many images more it happens in
    than chance would have it, so that a label that is invented everywhere does not fill the list.

    Args:
        scored: Scores and targets.
        at_most: Number of pairs to return.

    Examples:
        >>> scores = [[0.1, 0.9], [0.2, 0.8], [0.9, 0.1], [0.1, 0.9]]
        >>> targets = [[1, 0], [1, 0], [1, 0], [0, 1]]
        >>> find_confusions(ScoredImages.from_arrays(scores, targets, labels=["dog", "wolf"]))
        (Confusion(missed='dog', invented='wolf', count=2, fraction=1.0, usual_fraction=0.0),)
    """
    given = scored.inputs
    missed = csr_array((given.positives & ~scored.predicted).numpy().astype(np.int32))
    invented = csr_array((given.negatives & scored.predicted).numpy().astype(np.int32))
    together = (missed.T @ invented).tocoo()  # [L, L]
    rows, columns, counts = together.row, together.col, together.data
    misses = np.asarray(missed.sum(axis=0))[rows]
    inventions = np.asarray(invented.sum(axis=0))[columns]
    usual = (inventions - counts) / np.maximum(len(scored) - misses, 1)
    excess = counts - misses * usual
    matters = np.flatnonzero((counts > 1) & (excess > 0))
    order = matters[np.lexsort((columns[matters], rows[matters], -excess[matters]))]  # of equals, the first label first
    return tuple(
        Confusion(
            missed=scored.labels[rows[pair]],
            invented=scored.labels[columns[pair]],
            count=int(counts[pair]),
            fraction=float(counts[pair] / misses[pair]),
            usual_fraction=float(usual[pair]),
        )
        for pair in order[:at_most]
    )


def image_losses(scored: ScoredImages) -> Tensor:
    """Return the binary cross-entropy of each image, summed over its known labels, ``[N]``.

    Examples:
        >>> image_losses(ScoredImages.from_arrays([[0.5, 0.5], [1.0, 0.0]], [[1, 0], [1, 0]], labels=["a", "b"]))
        tensor([1.3863, 0.0000])
    """
    right = torch.where(scored.targets, scored.scores, 1 - scored.scores).clamp_(min=1e-6)
    return torch.where(scored.known, right.log(), 0).sum(dim=1).abs()


def image_results(
    scored: ScoredImages, *, at_most: int = 12
) -> tuple[tuple[ImageResult, ...], tuple[ImageResult, ...]]:
    """Find the images with the highest loss, and of those that have labels, the ones with the lowest.

    Args:
        scored: Scores and targets.
        at_most: Number of each.

    Returns:
        The worst, beginning with the worst, and the best, beginning with the best.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.1, 0.9], [0.9, 0.1]], [[1, 0], [1, 0]], labels=["cat", "dog"])
        >>> worst, best = image_results(scored, at_most=1)
        >>> worst[0].missed, worst[0].invented, best[0].name
        ((Tag(label='cat', score=0.1),), (Tag(label='dog', score=0.9),), 'image 1')
    """
    losses = image_losses(scored)
    worst = losses.argsort(descending=True, stable=True)[:at_most].tolist()
    has_label = (scored.targets & scored.known).any(dim=1)
    order = torch.where(has_label, losses, torch.inf).argsort(stable=True)
    best = order[: min(at_most, int(has_label.sum()))].tolist()
    described = {row: _describe(scored, row, float(losses[row])) for row in {*worst, *best}}
    return tuple(described[row] for row in worst), tuple(described[row] for row in best)


def _describe(scored: ScoredImages, row: int, loss: float) -> ImageResult:
    present, known, predicted = scored.targets[row], scored.known[row], scored.predicted[row]

    def tags(mask: Tensor, *, descending: bool = True) -> tuple[Tag, ...]:
        chosen = [
            Tag(scored.labels[column], round(scored.scores[row, column].item(), 4))
            for column in mask.nonzero().flatten().tolist()
        ]
        return tuple(sorted(chosen, key=lambda tag: -tag.score if descending else tag.score))

    return ImageResult(
        name=scored.names[row],
        index=int(scored.indices[row]),
        loss=loss,
        found=tags(present & known & predicted),
        missed=tags(present & known & ~predicted, descending=False),
        invented=tags(~present & known & predicted),
    )


def _thin(points: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Curve:
    """Return a curve of few points."""
    count = len(points[0])
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(int))
    recall, precision = (tuple(np.round(values[chosen], 4).tolist()) for values in points)
    return Curve(recall, precision)
