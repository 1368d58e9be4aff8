"""The expected calibration error of pictures that count more than once.

Letters in shape comments: N pictures, L labels, D weightings.
"""

import torch
from torch import Tensor

from manylabel.metrics.inputs import Judged

__all__ = ["WeightedCalibrationError"]


class WeightedCalibrationError:
    """The error that `manylabel.metrics.calibration` has.

    Args:
        judged: Scores, which must be probabilities, and truth.
        num_bins: How many bins.

    Examples:
        >>> judged = Judged(torch.tensor([[0.75, 0.25]]), torch.tensor([[True, False]]), known=None)
        >>> WeightedCalibrationError(judged)(torch.ones(1, 1))
        tensor([[0.2500]])
    """

    names = ("calibration_error",)

    def __init__(self, judged: Judged, *, num_bins: int = 15) -> None:
        edges = torch.linspace(0, 1, num_bins + 1)
        gaps, entries = [torch.zeros(0, num_bins)], [torch.zeros(0)]
        for block in judged.by_picture():
            counted = block.positives | block.negatives
            bins = torch.bucketize(block.scores.float(), edges, right=True).sub_(1).clamp_(max=num_bins - 1)
            gap = torch.where(counted, block.scores.float() - block.positives.float(), 0)
            gaps.append(torch.zeros(len(gap), num_bins).scatter_add_(1, bins, gap))
            entries.append(counted.sum(dim=1).float())
        self.gaps = torch.cat(gaps).t().contiguous()  # [bins, N], score minus truth, summed over a picture's labels
        self.entries = torch.cat(entries)  # [N]

    def __call__(self, weights: Tensor) -> Tensor:
        """Return ``[1, D]`` for weights ``[N, D]``; NaN where nothing is known."""
        return ((self.gaps @ weights).abs().sum(dim=0) / (self.entries @ weights))[None]
