"""Results by the size of objects and by the number of labels in an image: where the hard cases are.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning" (RM), call an
image a hard instance if it shows things of very different sizes: the small ones are lost. Sizes are split where COCO
splits them: at 32 x 32 and 96 x 96 pixels, of 640 x 480.

Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manylabel.evaluation.bootstrap import Estimate, draw_counts, estimate
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import mean_average_precision, precision_recall, ranking_loss

__all__ = ["SIZE_LIMITS", "CountGroup", "SizeGroup", "by_label_count", "by_object_size"]

SIZE_LIMITS = (32 * 32 / (640 * 480), 96 * 96 / (640 * 480))
"""Fractions of the image below which an object is small, and below which it is medium."""

_MOST_LABELS = 5  # images with as many or more are one group


@dataclass(frozen=True)
class SizeGroup:
    """The labels of one size: a label of an image is as large as its largest object.

    Args:
        name: The size.
        positives: Number of (image, label) pairs in the group.
        recall: The fraction of them that is predicted.
        mean_average_precision: mAP when only these are to be found, and the other positives are left out.
    """

    name: str
    positives: int
    recall: Estimate
    mean_average_precision: Estimate


@dataclass(frozen=True)
class CountGroup:
    """The images with some number of labels.

    Args:
        name: How many.
        images: Number of such images.
        precision: OP at the thresholds.
        recall: OR at the thresholds.
        f1: OF1 at the thresholds.
        ranking_loss: Fraction of (present, absent) pairs in the wrong order; None where there are no such pairs.
    """

    name: str
    images: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    ranking_loss: Estimate | None


def by_object_size(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> tuple[SizeGroup, ...]:
    """Evaluate small, medium and large objects apart, and small ones next to large ones.

    Args:
        scored: Scores and targets.
        draws: Number of bootstrap draws; 0 for no intervals.
        seed: Seed of the draws.

    Returns:
        The groups that are not empty; none where the data have no sizes.

    Examples:
        >>> from dataclasses import replace
        >>> from scipy.sparse import csr_array
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4]], [[1, 1]], labels=["cat", "mouse"])
        >>> scored = replace(scored, areas=csr_array([[0.5, 0.001]]))
        >>> [(group.name, group.recall.value) for group in by_object_size(scored, draws=0)]
        [('small', 0.0), ('large', 1.0), ('small next to large', 0.0)]
    """
    masks = {name: mask for name, mask in _size_masks(scored).items() if mask.any()}
    weights = draw_counts(len(scored), draws=draws, seed=seed) if masks else None
    found, negatives, groups = scored.predicted.float(), scored.inputs.negatives, []
    for name, mask in masks.items():
        # Positives outside of the group are left out, as if they were unknown.
        recall = _estimate(_overall_recall, (found, mask, mask), weights)
        average = _estimate(mean_average_precision, (scored.scores, mask, negatives | mask), weights)
        groups.append(SizeGroup(name, int(mask.sum()), recall, average))
    return tuple(groups)


def by_label_count(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> tuple[CountGroup, ...]:
    """Evaluate images with one label, with two, and so on, apart.

    Args:
        scored: Scores and targets.
        draws: Number of bootstrap draws; 0 for no intervals.
        seed: Seed of the draws.

    Returns:
        The groups that are not empty.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4], [0.9, 0.1]], [[1, 1], [1, 0]], labels=["cat", "mouse"])
        >>> [(group.name, group.recall.value) for group in by_label_count(scored, draws=0)]
        [('1 label', 1.0), ('2 labels', 0.5)]
    """
    counts = scored.inputs.positives.sum(dim=1).clamp(max=_MOST_LABELS)
    weights, groups = draw_counts(len(scored), draws=draws, seed=seed), []
    for number in range(1, _MOST_LABELS + 1):
        rows = (counts == number).nonzero().flatten()
        if not len(rows):
            continue
        part, drawn = scored.take(rows.numpy()), weights[:, rows]
        decided, resampled = (precision_recall(*part.decisions, weights=which) for which in (None, drawn))
        precision, recall, f1 = (
            estimate(getattr(decided, name).item(), getattr(resampled, name).double().numpy())
            for name in ("overall_precision", "overall_recall", "overall_f1")
        )
        loss = _estimate(ranking_loss, part.inputs, drawn)
        name = "1 label" if number == 1 else f"{number}{' or more' if number == _MOST_LABELS else ''} labels"
        groups.append(CountGroup(name, len(rows), precision, recall, f1, None if math.isnan(loss.value) else loss))
    return tuple(groups)


def _estimate(metric: Callable[..., Tensor], given: Sequence[Tensor | None], weights: Tensor | None) -> Estimate:
    """Estimate a metric from its value on the images themselves and on the draws."""
    return estimate(metric(*given).item(), metric(*given, weights=weights).double().numpy())


def _overall_recall(predicted: Tensor, targets: Tensor, known: Tensor, *, weights: Tensor | None = None) -> Tensor:
    return precision_recall(predicted, targets, known, weights=weights).overall_recall


def _size_masks(scored: ScoredImages) -> dict[str, Tensor]:
    """Return which positives are of which size, ``[N, L]`` each; nothing where the data have no sizes."""
    if scored.areas is None:
        return {}
    areas = torch.from_numpy(scored.areas.toarray())
    sized = scored.inputs.positives & (areas > 0)
    small, medium = areas < SIZE_LIMITS[0], areas < SIZE_LIMITS[1]
    large = sized & ~medium
    return {
        "small": sized & small,
        "medium": sized & ~small & medium,
        "large": large,
        "small next to large": sized & small & large.any(dim=1, keepdim=True),
    }
