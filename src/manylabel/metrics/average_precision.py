"""Average precision of each label, and its mean over labels, mAP.

Each label is sorted once. Its positives divide the ranking into steps, and only the weight of each step matters: a sum
over its images, for all weightings at once. The rest is as long as the list of positives, not of images.

Letters in shape comments: N images, L labels, S steps of a label's curve, P its positives, D weightings.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from manylabel.errors import ConfigError, list_choices
from manylabel.metrics.inputs import Inputs, check, weighted

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

    Equal scores are one step of the curve: the order of the images never matters.

    Args:
        scores: ``[N, L]``, higher for more confident; probabilities or logits.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is ignored.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).
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
    if interpolation not in get_args(Interpolation):
        choices = list_choices(str(interpolation), get_args(Interpolation))
        raise ConfigError(f"no interpolation {interpolation!r}; {choices}")
    rankings = [_rank(*label) for label in _labels(check(scores, targets, known))]

    def of_labels(counts: Tensor) -> Tensor:
        # A loop over labels: their curves differ in length, and one label's weights at a time stay in the cache.
        singles = counts.cpu()  # float32: whole numbers below 2 ** 24 stay exact
        values = [_summarise(_weigh(ranking, singles), interpolation) for ranking in rankings]
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
    """Compute mAP, the mean of `average_precision` over the labels that have one; NaN if none has.

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
    once = torch.ones(len(scores), 1, dtype=torch.float64)
    steps = [_weigh(_rank(*label), once) for label in _labels(check(scores, targets, known))]
    return [((found / found[-1:]).numpy()[:, 0], (found / above).numpy()[:, 0]) for _, found, above in steps]


class _Ranking(NamedTuple):
    """The ranking of one label: images from the highest score down to the last positive, and where steps begin."""

    images: Tensor
    steps: Tensor  # [S], positions in `images`
    positives: Tensor  # [P], images
    positive_steps: Tensor  # [S], positions in `positives`


class _Steps(NamedTuple):
    """The steps of a label's curve from the highest score down, ``[S, D]`` each."""

    gained: Tensor  # positives of the step
    found: Tensor  # positives of this and all earlier steps
    above: Tensor  # images of this and all earlier steps


def _labels(given: Inputs) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool], NDArray[np.bool] | None]]:
    """Yield scores, positives and known of each label; on the CPU, where numpy sorts ten times as fast as torch."""
    for block in given.by_label():
        scores = block.scores if block.scores.dtype in (torch.float32, torch.float64) else block.scores.float()
        known = [None] * len(scores) if block.known is None else block.known.cpu().numpy()
        yield from zip(scores.cpu().numpy(), block.positives.cpu().numpy(), known, strict=True)


def _rank(scores: NDArray[np.float32], positives: NDArray[np.bool], known: NDArray[np.bool] | None) -> _Ranking:
    """Sort the images of one label; equal scores are one step, and only steps with a positive are returned."""
    # Below the last positive nothing changes any more.
    lowest = scores[positives].min(initial=np.inf)
    chosen = (scores >= lowest if known is None else known & (scores >= lowest)).nonzero()[0]
    images = chosen[np.argsort(-scores[chosen])]
    values, present = scores[images], positives[images]
    ends = np.append(values[1:] != values[:-1], True)[: len(values)].nonzero()[0]  # the last of equal scores
    found = np.append(0, present.cumsum()[ends])
    has_positive = found[1:] > found[:-1]
    ends, starts = ends[has_positive], found[:-1][has_positive]
    parts = images, np.append(0, ends[:-1] + 1)[: len(ends)], images[present], starts
    return _Ranking(*(torch.from_numpy(part.astype(np.int32)) for part in parts))


def _weigh(ranking: _Ranking, counts: Tensor) -> _Steps:
    """Sum the weights ``[N, D]`` of the images of each step."""
    above = F.embedding_bag(ranking.images, counts, ranking.steps, mode="sum").cumsum_(dim=0)
    gained = F.embedding_bag(ranking.positives, counts, ranking.positive_steps, mode="sum")
    return _Steps(gained, gained.cumsum(dim=0), above.clamp_(min=torch.finfo(above.dtype).tiny))


def _summarise(steps: _Steps, interpolation: Interpolation) -> Tensor:
    """Return the average precision of one label, ``[D]``."""
    gained, found, above = steps
    if not len(gained):
        return gained.new_full(gained.shape[1:], torch.nan)
    precision = found / above
    if interpolation != "none":  # the best at the same or a higher recall
        precision = torch.from_numpy(np.maximum.accumulate(precision.numpy()[::-1], axis=0)[::-1].copy())
    if interpolation == "eleven_points":
        total = found[-1]
        # Whole numbers of positives for each tenth of recall: 0.3 in floating point is not three tenths.
        tenths = (torch.arange(11, dtype=found.dtype) * total[:, None] / 10).ceil_()  # [D, 11]
        reached = torch.searchsorted(found.t().contiguous(), tenths).clamp_(max=len(precision) - 1)
        return torch.where(total > 0, precision.gather(0, reached.t()).mean(dim=0), torch.nan)
    return (gained * precision).sum(dim=0) / gained.sum(dim=0)  # 0 / 0 is NaN: no positive counts
