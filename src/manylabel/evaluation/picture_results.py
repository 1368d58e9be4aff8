"""The pictures that a model understands worst and best.

Letters in shape comments: N pictures, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manylabel.evaluation.scores import ScoredImages
from manylabel.types import Tag

__all__ = ["ImageResult", "picture_losses", "picture_results"]


@dataclass(frozen=True)
class ImageResult:
    """What a model says of one picture, beside the truth.

    Args:
        name: The picture.
        index: Its position in the data set.
        loss: How far the scores are from the truth: the binary cross-entropy, summed over the known labels.
        found: Labels that are present and predicted, the surest first.
        missed: Labels that are present but not predicted, the least likely first.
        invented: Labels that are absent but predicted, the surest first.
    """

    name: str
    index: int
    loss: float
    found: tuple[Tag, ...]
    missed: tuple[Tag, ...]
    invented: tuple[Tag, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        tags = {kind: [tag._asdict() for tag in getattr(self, kind)] for kind in ("found", "missed", "invented")}
        return {**vars(self), **tags}


def picture_losses(scored: ScoredImages) -> Tensor:
    """Return the binary cross-entropy of each picture, summed over its known labels, ``[N]``.

    Examples:
        >>> picture_losses(ScoredImages.from_arrays([[0.5, 0.5], [1.0, 0.0]], [[1, 0], [1, 0]], labels=["a", "b"]))
        tensor([1.3863, 0.0000])
    """
    right = torch.where(scored.targets, scored.scores, 1 - scored.scores).clamp_(min=1e-6)
    return torch.where(scored.known, right.log(), 0).sum(dim=1).abs()


def picture_results(
    scored: ScoredImages, *, at_most: int = 12
) -> tuple[tuple[ImageResult, ...], tuple[ImageResult, ...]]:
    """Find the pictures that a model understands worst, and of those that have labels, the ones it understands best.

    Args:
        scored: The scores beside the truth.
        at_most: How many of each.

    Returns:
        The worst, beginning with the worst, and the best, beginning with the best.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.1, 0.9], [0.9, 0.1]], [[1, 0], [1, 0]], labels=["cat", "dog"])
        >>> worst, best = picture_results(scored, at_most=1)
        >>> worst[0].missed, worst[0].invented, best[0].name
        ((Tag(label='cat', score=0.1),), (Tag(label='dog', score=0.9),), 'picture 1')
    """
    losses = picture_losses(scored)
    worst = losses.argsort(descending=True, stable=True)[:at_most].tolist()
    has_label = (scored.targets & scored.known).any(dim=1)
    order = torch.where(has_label, losses, torch.inf).argsort(stable=True)
    best = order[: min(at_most, int(has_label.sum()))].tolist()
    described = {row: _describe(scored, row, float(losses[row])) for row in {*worst, *best}}
    return tuple(described[row] for row in worst), tuple(described[row] for row in best)


def _describe(scored: ScoredImages, row: int, loss: float) -> ImageResult:
    there, known, predicted = scored.targets[row], scored.known[row], scored.predicted[row]

    def tags(mask: Tensor, *, surest_first: bool = True) -> tuple[Tag, ...]:
        chosen = [
            Tag(scored.labels[column], round(scored.scores[row, column].item(), 4))
            for column in mask.nonzero().flatten().tolist()
        ]
        return tuple(sorted(chosen, key=lambda tag: -tag.score if surest_first else tag.score))

    return ImageResult(
        name=scored.names[row],
        index=int(scored.indices[row]),
        loss=loss,
        found=tags(there & known & predicted),
        missed=tags(there & known & ~predicted, surest_first=False),
        invented=tags(~there & known & predicted),
    )
