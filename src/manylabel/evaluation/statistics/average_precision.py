"""Average precision of each label for many weightings of the pictures at once.

Each label is sorted once. Its positives cut the ranking into steps, and only the weight of each step matters: a sum
over the pictures in it, for all weightings at once. What is left is as long as the list of positives, not of pictures.

Letters in shape comments: N pictures, L labels, S steps of a label's curve, P its positives, D weightings,
I kinds of interpolation.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from manylabel.metrics.inputs import Judged

__all__ = ["WeightedAveragePrecision"]


class _Curve(NamedTuple):
    """The ranking of one label: pictures from the highest score down to the last positive, and where steps begin."""

    pictures: Tensor
    steps: Tensor  # [S], positions in `pictures`
    positives: Tensor  # [P], pictures
    positive_steps: Tensor  # [S], positions in `positives`


class WeightedAveragePrecision:
    """Average precision as `manylabel.metrics.average_precision` has it, of pictures that count more than once.

    Args:
        judged: Scores and truth, ``[N, L]``.
        interpolated: Whether to compute all three kinds, ``"none"``, ``"all_points"`` and ``"eleven_points"``, rather
            than the first alone.

    Examples:
        >>> judged = Judged(torch.tensor([[0.9], [0.8], [0.7]]), torch.tensor([[True], [False], [True]]), known=None)
        >>> weights = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 2.0]])  # the second time without the mistake
        >>> WeightedAveragePrecision(judged)(weights)
        tensor([[[0.8333, 1.0000]]])
    """

    def __init__(self, judged: Judged, *, interpolated: bool = False) -> None:
        self.interpolated = interpolated
        self.curves = [
            _curve(block.scores[row], block.positives[row], None if block.known is None else block.known[row])
            for block in judged.by_label()
            for row in range(len(block.scores))
        ]

    def __call__(self, weights: Tensor) -> Tensor:
        """Return ``[I, L, D]`` for weights ``[N, D]``, whole numbers; NaN where no positive of a label has any."""
        # A loop over labels: their curves differ in length, and one label's weights at a time stay in the cache.
        values = [self._of_label(curve, weights) for curve in self.curves]
        return torch.stack(values, dim=1)

    def _of_label(self, curve: _Curve, weights: Tensor) -> Tensor:
        """Return ``[I, D]``."""
        if not len(curve.positives):
            return weights.new_full((3 if self.interpolated else 1, weights.shape[1]), torch.nan)
        above = F.embedding_bag(curve.pictures, weights, curve.steps, mode="sum").cumsum_(dim=0)  # [S, D]
        gained = F.embedding_bag(curve.positives, weights, curve.positive_steps, mode="sum")
        found = gained.cumsum(dim=0)
        precision = found / above.clamp_(min=torch.finfo(above.dtype).tiny)
        area = _area(gained, precision)
        if not self.interpolated:
            return area[None]
        best = _best_from_here_on(precision)
        return torch.stack([area, _area(gained, best), _eleven_points(found, best)])


def _curve(scores: Tensor, positives: Tensor, known: Tensor | None) -> _Curve:
    """Sort one label; equal scores are one step."""
    chosen = np.arange(len(scores)) if known is None else known.numpy().nonzero()[0]
    values = scores.numpy()[chosen]
    order = np.argsort(-values)
    pictures, values, present = chosen[order], values[order], positives.numpy()[chosen[order]]
    last_of_equals = np.append(values[1:] != values[:-1], True)[: len(values)]
    ends = last_of_equals.nonzero()[0]
    found = np.append(0, present.cumsum()[ends])
    has_positive = found[1:] > found[:-1]
    ends, starts = ends[has_positive], found[:-1][has_positive]
    length = int(ends[-1]) + 1 if len(ends) else 0
    return _Curve(
        pictures=_indices(pictures[:length]),
        steps=_indices(np.append(0, ends[:-1] + 1)[: len(ends)]),
        positives=_indices(pictures[present]),
        positive_steps=_indices(starts),
    )


def _indices(values: NDArray[np.int64]) -> Tensor:
    """Return indices of half the size; no label has two thousand million pictures."""
    return torch.from_numpy(values.astype(np.int32))


def _area(gained: Tensor, precision: Tensor) -> Tensor:
    """Return the mean precision at the positives, ``[D]``; 0 / 0 is NaN, which is what a label without them has."""
    return (gained * precision).sum(dim=0) / gained.sum(dim=0)


def _best_from_here_on(precision: Tensor) -> Tensor:
    """Return the best precision at the same or a higher recall, ``[S, D]``."""
    # In numpy, because torch would also keep track of where it was.
    return torch.from_numpy(np.maximum.accumulate(precision.numpy()[::-1], axis=0)[::-1].copy())


def _eleven_points(found: Tensor, best: Tensor) -> Tensor:
    """Return the mean of the best precision at recall 0, 0.1, ..., 1, ``[D]``."""
    total = found[-1]
    tenths = (torch.arange(11, dtype=found.dtype) * total[:, None] / 10).ceil_()  # [D, 11], positives needed for each
    places = torch.searchsorted(found.t().contiguous(), tenths).clamp_(max=len(best) - 1)
    return torch.where(total > 0, best.gather(0, places.t()).mean(dim=0), torch.nan)
