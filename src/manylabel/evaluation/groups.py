"""Results by the size of objects and by the number of labels in a picture: where the hard cases are.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning" (RM), call a
picture a hard instance if it shows things of very different sizes: the small ones are lost. Sizes are split where COCO
splits them: at 32 x 32 and 96 x 96 pixels, of 640 x 480.

Letters in shape comments: N pictures, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manylabel.evaluation.bootstrap import Statistic, mean_over_labels, resample
from manylabel.evaluation.estimate import Estimate, estimate
from manylabel.evaluation.scores import ScoredImages
from manylabel.evaluation.statistics import Ratio, WeightedAveragePrecision, WeightedRatios
from manylabel.evaluation.statistics.ratios import overall_ratios
from manylabel.metrics import average_precision
from manylabel.metrics.inputs import Judged
from manylabel.metrics.ranking import ranking_losses

__all__ = ["SIZE_LIMITS", "CountGroup", "SizeGroup", "by_label_count", "by_object_size"]

SIZE_LIMITS = (32 * 32 / (640 * 480), 96 * 96 / (640 * 480))
"""Below which share of the picture an object is small, and below which it is medium."""

_MOST_LABELS = 5  # pictures with as many or more are one group


@dataclass(frozen=True)
class SizeGroup:
    """The labels of one size: a label of a picture is as large as its largest object.

    Args:
        name: Which.
        positives: The number of (picture, label) pairs in the group.
        recall: The share of them that is predicted.
        mean_average_precision: mAP when only these are to be found, and the other positives are left out.
    """

    name: str
    positives: int
    recall: Estimate
    mean_average_precision: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return _to_dict(self)


@dataclass(frozen=True)
class CountGroup:
    """The pictures with some number of labels.

    Args:
        name: How many.
        pictures: The number of such pictures.
        precision: OP at the thresholds.
        recall: OR at the thresholds.
        f1: OF1 at the thresholds.
        ranking_loss: The share of (present, absent) pairs in the wrong order; does not depend on thresholds.
    """

    name: str
    pictures: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    ranking_loss: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return _to_dict(self)


def by_object_size(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> tuple[SizeGroup, ...]:
    """Judge small, medium and large objects apart, and small ones beside large ones.

    Args:
        scored: The scores beside the truth.
        draws: How often to draw for the intervals; none when 0.
        seed: Fixes the draws.

    Returns:
        The groups that are not empty; nothing where the data tell no sizes.

    Examples:
        >>> from dataclasses import replace
        >>> from scipy.sparse import csr_array
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4]], [[1, 1]], labels=["cat", "mouse"])
        >>> scored = replace(scored, areas=csr_array([[0.5, 0.001]]))
        >>> [(group.name, group.recall.value) for group in by_object_size(scored, draws=0)]
        [('small', 0.0), ('large', 1.0), ('small beside large', 0.0)]
    """
    masks = {name: mask for name, mask in _size_masks(scored).items() if mask.any()}
    if not masks:
        return ()
    judged = scored.judged
    recalls = {name: Ratio((mask & scored.predicted).sum(dim=1), mask.sum(dim=1)) for name, mask in masks.items()}
    parts = {name: _only(judged, mask) for name, mask in masks.items()}
    statistics: dict[str, Statistic] = {name: WeightedAveragePrecision(part) for name, part in parts.items()}
    found = resample(statistics | {"recall": WeightedRatios(recalls)}, num_pictures=len(scored), draws=draws, seed=seed)
    return tuple(
        SizeGroup(
            name=name,
            positives=int(mask.sum()),
            recall=estimate(recalls[name].value, recall_draws),
            mean_average_precision=estimate(
                average_precision(*parts[name]).mean().item(), mean_over_labels(found[name][0])
            ),
        )
        for (name, mask), recall_draws in zip(masks.items(), found["recall"], strict=True)
    )


def by_label_count(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> tuple[CountGroup, ...]:
    """Judge pictures with one label, with two, and so on, apart.

    Args:
        scored: The scores beside the truth.
        draws: How often to draw for the intervals; none when 0.
        seed: Fixes the draws.

    Returns:
        The groups that are not empty.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4], [0.9, 0.1]], [[1, 1], [1, 0]], labels=["cat", "mouse"])
        >>> [(group.name, group.recall.value) for group in by_label_count(scored, draws=0)]
        [('1 label', 1.0), ('2 labels', 0.5)]
    """
    judged = scored.judged
    counts = judged.positives.sum(dim=1).clamp(max=_MOST_LABELS)
    whole = {
        **overall_ratios(scored.predicted, judged),
        "ranking_loss": Ratio(ranking_losses(judged), torch.ones(len(scored))),
    }
    groups = {number: members for number in range(1, _MOST_LABELS + 1) if int((members := counts == number).sum())}
    ratios = {
        f"{number} {name}": Ratio(ratio.numerator * members, ratio.denominator * members)
        for number, members in groups.items()
        for name, ratio in whole.items()
    }
    if not ratios:
        return ()
    found = resample({"ratios": WeightedRatios(ratios)}, num_pictures=len(scored), draws=draws, seed=seed)["ratios"]
    values = {
        name: estimate(ratio.value, of_ratio) for (name, ratio), of_ratio in zip(ratios.items(), found, strict=True)
    }
    return tuple(
        CountGroup(_count_name(number), int(members.sum()), *(values[f"{number} {name}"] for name in whole))
        for number, members in groups.items()
    )


def _size_masks(scored: ScoredImages) -> dict[str, Tensor]:
    """Say which positives are of which size, ``[N, L]`` each; nothing where the data tell no sizes."""
    if scored.areas is None:
        return {}
    areas = torch.from_numpy(scored.areas.toarray())
    sized = scored.judged.positives & (areas > 0)
    small, medium = areas < SIZE_LIMITS[0], areas < SIZE_LIMITS[1]
    large = sized & ~medium
    return {
        "small": sized & small,
        "medium": sized & ~small & medium,
        "large": large,
        "small beside large": sized & small & large.any(dim=1, keepdim=True),
    }


def _only(judged: Judged, mask: Tensor) -> Judged:
    """Leave out the positives outside of a mask, as if nobody knew of them."""
    return Judged(judged.scores, judged.positives & mask, judged.negatives | (judged.positives & mask))


def _count_name(number: int) -> str:
    if number == 1:
        return "1 label"
    return f"{number} or more labels" if number == _MOST_LABELS else f"{number} labels"


def _to_dict(group: SizeGroup | CountGroup) -> dict[str, Any]:
    return {name: value.to_dict() if isinstance(value, Estimate) else value for name, value in vars(group).items()}
