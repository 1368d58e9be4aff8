"""Results by object size and by number of labels per image: the hard cases.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning" (RM), call an
image a hard instance if its objects differ much in size: the small ones are missed. Sizes are split as in COCO: at
32 x 32 and 96 x 96 pixels, of 640 x 480.

Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from manylabel.evaluation.bootstrap import Estimate, bootstrap_weights, estimate
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import mean_average_precision, precision_recall, ranking_loss

__all__ = ["SIZE_LIMITS", "Group", "by_label_count", "by_object_size"]

SIZE_LIMITS = (32 * 32 / (640 * 480), 96 * 96 / (640 * 480))
"""Fractions of the image below which an object is small, and below which it is medium."""

_MOST_LABELS = 5  # images with as many or more are one group


@dataclass(frozen=True)
class Group:
    """Results of some of the images or labels.

    Args:
        name: Name of the group.
        count: Number of images, or of (image, label) pairs.
        metrics: Defined metrics by name.
    """

    name: str
    count: int
    metrics: dict[str, Estimate]


def by_object_size(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> tuple[Group, ...]:
    """Evaluate small, medium and large objects separately, and small ones next to large ones.

    A label of an image is as large as its largest object. The mAP of a size ignores positives of other sizes.

    Args:
        scored: Scores and targets.
        draws: Number of bootstrap draws; 0 for no intervals.
        seed: Seed of the draws.

    Returns:
        The groups of (image, label) pairs that are not empty; none if the data have no sizes.

    Examples:
        >>> from dataclasses import replace
        >>> from scipy.sparse import csr_array
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4]], [[1, 1]], labels=["cat", "mouse"])
        >>> scored = replace(scored, areas=csr_array([[0.5, 0.001]]))
        >>> [(group.name, group.metrics["recall"].value) for group in by_object_size(scored, draws=0)]
        [('small', 0.0), ('large', 1.0), ('small next to large', 0.0)]
    """
    masks = {name: mask for name, mask in _size_masks(scored).items() if mask.any()}
    weights = bootstrap_weights(len(scored), draws=draws, seed=seed)
    predicted, negatives, groups = scored.predicted.float(), scored.inputs.negatives, []
    for name, mask in masks.items():
        # Positives outside of the group are treated as unknown.
        recall = precision_recall(predicted, mask, mask, weights=weights).overall_recall
        average = mean_average_precision(scored.scores, mask, negatives | mask, weights=weights)
        groups.append(_group(name, int(mask.sum()), recall=recall, mAP=average))
    return tuple(groups)


def by_label_count(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> tuple[Group, ...]:
    """Evaluate images with one label, with two, and so on, separately.

    Args:
        scored: Scores and targets.
        draws: Number of bootstrap draws; 0 for no intervals.
        seed: Seed of the draws.

    Returns:
        The groups of images that are not empty; precision, recall and F1 are OP, OR and OF1.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4], [0.9, 0.1]], [[1, 1], [1, 0]], labels=["cat", "mouse"])
        >>> [(group.name, group.metrics["recall"].value) for group in by_label_count(scored, draws=0)]
        [('1 label', 1.0), ('2 labels', 0.5)]
    """
    counts = scored.inputs.positives.sum(dim=1).clamp(max=_MOST_LABELS)
    weights, groups = bootstrap_weights(len(scored), draws=draws, seed=seed), []
    for number in range(1, _MOST_LABELS + 1):
        rows = (counts == number).nonzero().flatten()
        if len(rows):
            part, drawn = scored.take(rows.numpy()), weights[:, rows]
            decided = precision_recall(*part.decisions, weights=drawn)
            values = {
                "precision": decided.overall_precision,
                "recall": decided.overall_recall,
                "F1": decided.overall_f1,
                "ranking_loss": ranking_loss(*part.inputs, weights=drawn),
            }
            name = "1 label" if number == 1 else f"{number}{' or more' if number == _MOST_LABELS else ''} labels"
            groups.append(_group(name, len(rows), **values))
    return tuple(groups)


def _group(name: str, count: int, **values: Tensor) -> Group:
    return Group(name, count, {name: estimate(drawn) for name, drawn in values.items() if not math.isnan(drawn[0])})


def _size_masks(scored: ScoredImages) -> dict[str, Tensor]:
    """Return the positives of each size, ``[N, L]``; none if the data have no sizes."""
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
