"""CP, CR and CF1: averages over labels, of pictures that count more than once.

Letters in shape comments: N pictures, L labels, D weightings.
"""

import torch
from torch import Tensor

from manylabel.metrics.inputs import BLOCK, Judged

__all__ = ["WeightedClassAverages"]


class WeightedClassAverages:
    """CP, CR and CF1 as `manylabel.metrics.precision_recall` has them.

    Args:
        predicted: ``[N, L]``, true where a label is predicted.
        judged: Scores and truth.

    Examples:
        >>> judged = Judged(torch.rand(2, 1), torch.tensor([[True], [False]]), known=None)
        >>> averages = WeightedClassAverages(torch.tensor([[True], [True]]), judged)
        >>> averages(torch.tensor([[1.0, 3.0], [1.0, 1.0]]))
        tensor([[0.5000, 0.7500],
                [1.0000, 1.0000],
                [0.6667, 0.8571]])
    """

    names = ("CP", "CR", "CF1")

    def __init__(self, predicted: Tensor, judged: Judged) -> None:
        self.hits = predicted & judged.positives
        self.named = predicted if judged.known is None else predicted & judged.known
        self.positives = judged.positives

    def __call__(self, weights: Tensor) -> Tensor:
        """Return ``[3, D]`` for weights ``[N, D]``; NaN where no label has positives."""
        hits, named, there = (_sums(matrix, weights) for matrix in (self.hits, self.named, self.positives))  # [L, D]
        defined = there > 0
        precision = torch.where(defined, hits / named.clamp(min=1), 0).sum(dim=0) / defined.sum(dim=0)
        recall = (hits / there.clamp(min=1)).sum(dim=0) / defined.sum(dim=0)
        both = precision + recall
        f1 = torch.where(both > 0, 2 * precision * recall / both, both)
        return torch.stack([precision, recall, f1])


def _sums(matrix: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum over pictures of each column, ``[L, D]``; some labels at a time, to spare memory."""
    step = max(1, BLOCK // max(1, len(matrix)))
    blocks = [matrix[:, start : start + step].t().float() @ weights for start in range(0, matrix.shape[1], step)]
    return torch.cat(blocks) if blocks else weights.new_zeros(0, weights.shape[1])
