"""Average precision of each label, and its mean over labels, mAP.

Each label is sorted once. Its positives cut the ranking into steps, and only the weight of each step matters: a sum
over the images in it, for all weightings at once. What is left is as long as the list of positives, not of images.

Letters in shape comments: N images, L labels, S steps of a label's curve, P its positives, D weightings.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from manylabel.errors import ConfigError, list_choices
from manylabel.metrics.inputs import Inputs, check, weighted

__all__ = ["Interpolation", "average_precision", "check_interpolation", "mean_average_precision", "precision_curves"]

Interpolation = Literal["none", "all_points", "eleven_points"]


def average_precision(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    interpolation: Interpolation = "none",
) -> Tensor:
    """Compute the average precision of each label.

    Equal scores are one step of the curve, so that the order of the images never matters.

    Args:
        scores: ``[N, L]``, higher for more confident; probabilities and logits give the same.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is left out.
        weights: ``[N]`` or ``[D, N]``, how often each image counts (default: once).
        interpolation: ``"none"`` is the mean of the precisions at the positives, as in scikit-learn; ``"all_points"``
            takes the best precision at the same or a higher recall, as PASCAL VOC does since 2010;
            ``"eleven_points"`` does so at recall 0, 0.1, ..., 1, as PASCAL VOC did until 2009.

    Returns:
        ``[L]`` or ``[D, L]``; NaN for a label without a known positive.

    Raises:
        ConfigError: The shapes differ, a score is NaN, or there is no such interpolation.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.7, 0.2], [0.6, 0.4]])
        >>> targets = torch.tensor([[1, 0], [0, 0], [0, 0], [1, 0]])
        >>> average_precision(scores, targets)
        tensor([0.7500,    nan])
        >>> average_precision(scores, targets, weights=torch.tensor([1, 0, 0, 1]))
        tensor([1., nan])
    """
    check_interpolation(interpolation)
    curves = _curves(check(scores, targets, known))

    def of_labels(counts: Tensor) -> Tensor:
        # A loop over labels: their curves differ in length, and one label's weights at a time stay in the cache.
        singles = counts.cpu().float()  # whole numbers below 2 ** 24 stay exact, and are summed ten times as fast
        values = [_summarise(curve, singles, interpolation) for curve in curves]
        return (torch.stack(values) if values else counts.new_zeros(0, counts.shape[1])).to(scores.device)

    return weighted(of_labels, weights, like=scores)


def mean_average_precision(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    interpolation: Interpolation = "none",
) -> Tensor:
    """Compute mAP, the mean of `average_precision` over the labels that have one; NaN where none has.

    Examples:
        >>> mean_average_precision(torch.tensor([[0.9, 0.2], [0.3, 0.1]]), torch.tensor([[1, 0], [0, 1]]))
        tensor(0.7500)
    """
    return average_precision(scores, targets, known, weights=weights, interpolation=interpolation).nanmean(dim=-1)


def precision_curves(
    scores: Tensor, targets: Tensor, known: Tensor | None = None
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return recall and precision of each label at the scores of its positives, the highest score first.

    Examples:
        >>> [(recall, precision)] = precision_curves(torch.tensor([[0.9], [0.8], [0.7]]), torch.tensor([[1], [0], [1]]))
        >>> recall.tolist(), precision.round(2).tolist()
        ([0.5, 1.0], [1.0, 0.67])
    """
    found = []
    for curve in _curves(check(scores, targets, known)):
        reached = np.append(curve.positive_steps.numpy()[1:], len(curve.positives))[: len(curve.steps)]
        ranks = np.append(curve.steps.numpy()[1:], len(curve.images))[: len(curve.steps)]
        found.append((reached / max(1, len(curve.positives)), reached / np.maximum(ranks, 1)))
    return found


def check_interpolation(interpolation: str) -> None:
    """Refuse an interpolation that does not exist.

    Raises:
        ConfigError: There is no such interpolation.
    """
    if interpolation not in get_args(Interpolation):
        choices = list_choices(str(interpolation), get_args(Interpolation))
        raise ConfigError(f"no interpolation {interpolation!r}; {choices}")


class _Curve(NamedTuple):
    """The ranking of one label: images from the highest score down to the last positive, and where steps begin."""

    images: Tensor
    steps: Tensor  # [S], positions in `images`
    positives: Tensor  # [P], images
    positive_steps: Tensor  # [S], positions in `positives`


def _curves(given: Inputs) -> list[_Curve]:
    """Return the curve of each label; on the CPU, where numpy sorts ten times as fast as torch does."""
    curves: list[_Curve] = []
    for block in given.by_label():
        scores = block.scores if block.scores.dtype in (torch.float32, torch.float64) else block.scores.float()
        values, positives = scores.cpu().numpy(), block.positives.cpu().numpy()
        known = [None] * len(values) if block.known is None else block.known.cpu().numpy()
        curves.extend(map(_curve, values, positives, known))
    return curves


def _curve(scores: NDArray[np.float32], positives: NDArray[np.bool], known: NDArray[np.bool] | None) -> _Curve:
    """Sort one label; equal scores are one step, and only steps with a positive are kept."""
    # Below the last positive nothing changes any more.
    lowest = scores[positives].min(initial=np.inf)
    chosen = (scores >= lowest if known is None else known & (scores >= lowest)).nonzero()[0]
    order = np.argsort(-scores[chosen])
    images = chosen[order]
    values, present = scores[images], positives[images]
    ends = np.append(values[1:] != values[:-1], True)[: len(values)].nonzero()[0]  # the last of equal scores
    found = np.append(0, present.cumsum()[ends])
    has_positive = found[1:] > found[:-1]
    ends, starts = ends[has_positive], found[:-1][has_positive]
    return _Curve(
        images=_indices(images),
        steps=_indices(np.append(0, ends[:-1] + 1)[: len(ends)]),
        positives=_indices(images[present]),
        positive_steps=_indices(starts),
    )


def _indices(values: NDArray[np.int64]) -> Tensor:
    """Return indices of half the size; no label has two thousand million images."""
    return torch.from_numpy(values.astype(np.int32))


def _summarise(curve: _Curve, counts: Tensor, interpolation: Interpolation) -> Tensor:
    """Return the average precision of one label, ``[D]``."""
    if not len(curve.positives):
        return counts.new_full((counts.shape[1],), torch.nan)
    above = F.embedding_bag(curve.images, counts, curve.steps, mode="sum").cumsum_(dim=0)  # [S, D]
    gained = F.embedding_bag(curve.positives, counts, curve.positive_steps, mode="sum")
    found = gained.cumsum(dim=0)
    precision = found / above.clamp_(min=torch.finfo(above.dtype).tiny)
    if (
        interpolation != "none"
    ):  # the best at the same or a higher recall; numpy, as torch would also keep track of where
        precision = torch.from_numpy(np.maximum.accumulate(precision.numpy()[::-1], axis=0)[::-1].copy())
    if interpolation == "eleven_points":
        total = found[-1]
        # Whole numbers of positives for each tenth of recall: 0.3 in floating point is not three tenths.
        tenths = (torch.arange(11, dtype=found.dtype) * total[:, None] / 10).ceil_()  # [D, 11]
        places = torch.searchsorted(found.t().contiguous(), tenths).clamp_(max=len(precision) - 1)
        return torch.where(total > 0, precision.gather(0, places.t()).mean(dim=0), torch.nan)
    return (gained * precision).sum(dim=0) / gained.sum(dim=0)  # 0 / 0 is NaN: no positive counts
