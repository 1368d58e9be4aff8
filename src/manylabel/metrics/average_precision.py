"""Average precision of each label, and its mean over labels, mAP.

Letters in shape comments: N pictures, L labels, P the largest number of positives of a label.
"""

from typing import Literal

import torch
from torch import Tensor

from manylabel.errors import ConfigError, list_choices
from manylabel.metrics.accumulated import AccumulatedMetric
from manylabel.metrics.inputs import check
from manylabel.metrics.per_label import PerLabel
from manylabel.metrics.ranks import Ranks, rank_positives

__all__ = ["Interpolation", "MeanAveragePrecision", "average_precision"]

Interpolation = Literal["none", "all_points", "eleven_points"]


def average_precision(
    scores: Tensor, targets: Tensor, known: Tensor | None = None, *, interpolation: Interpolation = "none"
) -> PerLabel:
    """Compute the average precision of each label; the mean of the result is mAP.

    Equal scores are one step of the curve, so that the order of the pictures never matters.

    Args:
        scores: ``[N, L]``, the higher the surer; probabilities and logits give the same.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is left out.
        interpolation: ``"none"`` is the mean of the precisions at the positives, as in scikit-learn; ``"all_points"``
            takes the best precision at the same or a higher recall, as PASCAL VOC does since 2010;
            ``"eleven_points"`` does so at recall 0, 0.1, ..., 1, as PASCAL VOC did until 2009.

    Returns:
        The values; a label without a known positive has none.

    Raises:
        ConfigError: The shapes differ, a score is NaN, or there is no such interpolation.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.7, 0.2], [0.6, 0.4]])
        >>> targets = torch.tensor([[1, 0], [0, 0], [0, 0], [1, 0]])
        >>> precision = average_precision(scores, targets)
        >>> precision.values.tolist(), precision.left_out(["cat", "dog"])
        ([0.75, 0.0], ['dog'])
    """
    _check_interpolation(interpolation)
    judged = check(scores, targets, known)
    values, defined = [scores.new_zeros(0, dtype=torch.float32)], [judged.positives.new_zeros(0)]
    for block in judged.by_label():
        ranks = rank_positives(block)
        values.append(_summarise(ranks, interpolation))
        defined.append(ranks.counts > 0)
    return PerLabel(torch.cat(values), torch.cat(defined))


class MeanAveragePrecision(AccumulatedMetric):
    """Mean over labels of `average_precision`; labels without positives are left out.

    Args:
        interpolation: See `average_precision`.

    Example:
        >>> metric = MeanAveragePrecision()
        >>> metric.update(torch.tensor([[0.9, 0.2]]), torch.tensor([[1, 0]]))
        >>> metric.update(torch.tensor([[0.3, 0.1]]), torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(0.7500)
    """

    higher_is_better = True

    def __init__(self, *, interpolation: Interpolation = "none") -> None:
        super().__init__()
        _check_interpolation(interpolation)
        self.interpolation = interpolation

    def compute(self) -> Tensor:
        """Compute mAP."""
        return average_precision(*self.collected, interpolation=self.interpolation).mean()


def _check_interpolation(interpolation: str) -> None:
    choices = ("none", "all_points", "eleven_points")
    if interpolation not in choices:
        raise ConfigError(f"no interpolation {interpolation!r}; {list_choices(str(interpolation), choices)}")


def _summarise(ranks: Ranks, interpolation: Interpolation) -> Tensor:
    """Reduce the precisions at the positives, sorted by falling recall, to one number per label."""
    precision = torch.where(ranks.real, ranks.positives_above / ranks.above.clamp(min=1), 0)  # [L, P]
    if interpolation == "eleven_points":
        # Whole numbers, because 0.3 in floating point is not three tenths.
        reached = (10 * ranks.positives_above >= point * ranks.counts[:, None] for point in range(11))
        best = [torch.where(mask, precision, 0).amax(dim=1) for mask in reached]
        return torch.stack(best).mean(dim=0)
    if interpolation == "all_points":
        precision = torch.where(ranks.real, precision.cummax(dim=1).values, 0)
    return precision.sum(dim=1) / ranks.counts.clamp(min=1)
