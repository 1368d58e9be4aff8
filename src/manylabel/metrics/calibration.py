"""Calibration of scores, and the expected calibration error (ECE).

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017; here every known entry (image, label) is one
binary prediction, and all of them are pooled.

Letters in shape comments: N images, D weightings, B bins.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics.inputs import check, weighted


@dataclass(frozen=True)
class CalibrationBin:
    """Predictions with similar scores.

    Args:
        score: Their mean score.
        fraction: Fraction of them whose label is present.
        count: Their number.
    """

    score: float
    fraction: float
    count: int


class Calibration(NamedTuple):
    """Scores and targets, binned by score; ``[D, B]`` instead of ``[B]`` for D weightings.

    Attributes:
        scores: ``[B]``, the mean score of each bin; NaN if empty.
        fractions: ``[B]``, the fraction of positives in each bin; NaN if empty.
        counts: ``[B]``, the number of entries in each bin.
    """

    scores: Tensor
    fractions: Tensor
    counts: Tensor

    @property
    def error(self) -> Tensor:
        """The expected calibration error: the mean distance between score and fraction; NaN if all bins are empty."""
        distance = ((self.scores - self.fractions).abs() * self.counts).nansum(dim=-1)
        return distance / self.counts.sum(dim=-1)

    @property
    def bins(self) -> tuple[CalibrationBin, ...]:
        """The bins that are not empty, of one weighting."""
        rows = zip(*(column.tolist() for column in self), strict=True)
        return tuple(CalibrationBin(*row) for row in rows if row[2])


def calibration(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    num_bins: int = 15,
) -> Calibration:
    """Bin the scores evenly between 0 and 1 and compare each bin with the targets.

    Args:
        scores: ``[N, L]``, probabilities; 1 belongs to the last bin.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is ignored.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).
        num_bins: Number of bins.

    Returns:
        The bins, for a plot, and their `error`.

    Raises:
        ConfigError: A score is not a probability, or there is no bin.

    Examples:
        >>> bins = calibration(torch.tensor([[0.75, 0.25]]), torch.tensor([[1, 0]]), num_bins=2)
        >>> bins.fractions.tolist(), bins.error.item()
        ([0.0, 1.0], 0.25)
    """
    if num_bins < 1:
        raise ConfigError(f"num_bins must be at least 1, got {num_bins}")
    given = check(scores, targets, known)
    if scores.numel() and not (scores.min() >= 0 and scores.max() <= 1):
        raise ConfigError("scores must be probabilities in 0..1; apply sigmoid to logits first")
    edges = torch.linspace(0, 1, num_bins + 1, device=scores.device)
    sums = [torch.zeros(3, 0, num_bins, device=scores.device)]  # of each image: scores, positives and entries by bin
    for block in given.by_image():
        values, entries = block.scores.float(), (block.positives | block.negatives).float()
        bins = torch.bucketize(values, edges, right=True).sub_(1).clamp_(max=num_bins - 1)
        empty = torch.zeros(len(values), num_bins, device=scores.device)
        parts = (values * entries, block.positives.float(), entries)
        sums.append(torch.stack([empty.scatter_add(1, bins, part) for part in parts]))
    by_bin = torch.cat(sums, dim=1).transpose(1, 2)  # [3, B, N]
    totals = weighted(lambda counts: by_bin.to(counts.dtype) @ counts, weights, like=scores)
    score_sums, positives, entries = totals.unbind(dim=-2)
    return Calibration(score_sums / entries, positives / entries, entries.round().long())  # 0 / 0 is NaN


def calibration_error(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    num_bins: int = 15,
) -> Tensor:
    """Compute the expected calibration error (ECE); see `calibration`.

    Examples:
        >>> calibration_error(torch.tensor([[0.75, 0.25]]), torch.tensor([[1, 0]]), num_bins=2).item()
        0.25
    """
    return calibration(scores, targets, known, weights=weights, num_bins=num_bins).error
