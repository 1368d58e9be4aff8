"""Whether a score of 70 % is right 70 % of the time: expected calibration error.

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017; here every known entry (picture, label) is one
yes-or-no answer, and all of them are pooled.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics.accumulated import AccumulatedMetric
from manylabel.metrics.inputs import check

__all__ = ["Calibration", "CalibrationError", "calibration"]


class Calibration(NamedTuple):
    """Scores and truth, binned by score.

    Args:
        scores: ``[bins]``, the mean score in each bin; 0 where it is empty.
        shares: ``[bins]``, the share of entries in each bin that are present; 0 where it is empty.
        counts: ``[bins]``, the number of entries in each bin.
    """

    scores: Tensor
    shares: Tensor
    counts: Tensor

    @property
    def error(self) -> Tensor:
        """The expected calibration error: the mean distance of score and share, each bin weighted by its count."""
        distance = (self.scores - self.shares).abs() * self.counts
        return distance.sum() / self.counts.sum().clamp(min=1)


def calibration(scores: Tensor, targets: Tensor, known: Tensor | None = None, *, num_bins: int = 15) -> Calibration:
    """Bin the scores evenly between 0 and 1 and compare each bin with the truth.

    Args:
        scores: ``[N, L]``, probabilities; 1 belongs to the last bin.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is left out.
        num_bins: How many bins.

    Returns:
        The bins, for a plot, and their `error`.

    Raises:
        ConfigError: A score is not a probability, or there is no bin.

    Example:
        >>> bins = calibration(torch.tensor([[0.75, 0.25]]), torch.tensor([[1, 0]]), num_bins=2)
        >>> bins.shares.tolist(), bins.error.item()
        ([0.0, 1.0], 0.25)
    """
    if num_bins < 1:
        raise ConfigError(f"num_bins must be at least 1, got {num_bins}")
    judged = check(scores, targets, known)
    if scores.numel() and not (scores.min() >= 0 and scores.max() <= 1):
        raise ConfigError("scores must be probabilities in 0..1; apply sigmoid to logits first")
    edges = torch.linspace(0, 1, num_bins + 1, device=scores.device)
    totals = torch.zeros(3, num_bins, dtype=torch.float64)  # float32 would stop counting at 16 million
    for block in judged.by_picture():
        entries = block.positives | block.negatives
        values, present = block.scores[entries].float(), block.positives[entries].float()
        bins = torch.bucketize(values, edges, right=True).sub_(1).clamp_(max=num_bins - 1)
        for total, weights in zip(totals, (values, present, None), strict=True):
            total += torch.bincount(bins, weights, minlength=num_bins).cpu()
    score_sums, positives, counts = totals.to(scores.device)
    filled = counts.clamp(min=1)
    return Calibration((score_sums / filled).float(), (positives / filled).float(), counts.long())


class CalibrationError(AccumulatedMetric):
    """The expected error of `calibration` over everything taken in.

    Args:
        num_bins: How many bins.

    Example:
        >>> metric = CalibrationError()
        >>> metric.update(torch.tensor([[0.75, 0.25]]), torch.tensor([[1, 0]]))
        >>> metric.compute()
        tensor(0.2500)
    """

    higher_is_better = False

    def __init__(self, *, num_bins: int = 15) -> None:
        super().__init__()
        self.num_bins = num_bins

    def compute(self) -> Tensor:
        """Compute the expected calibration error."""
        return calibration(*self.collected, num_bins=self.num_bins).error
