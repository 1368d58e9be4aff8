"""From scores to predicted labels: by threshold, or the best few of each picture.

Letters in shape comments: N pictures, L labels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from manylabel.errors import ConfigError

__all__ = ["Threshold", "above_threshold", "decide", "top_labels"]

Threshold = float | Sequence[float] | Tensor


def above_threshold(scores: Tensor, threshold: Threshold = 0.5) -> Tensor:
    """Predict every label whose score reaches its threshold.

    Args:
        scores: ``[N, L]``.
        threshold: One number for all labels, or one for each; a score equal to it counts as predicted.

    Returns:
        ``[N, L]``, true where a label is predicted.

    Raises:
        ConfigError: The number of thresholds is neither 1 nor that of the labels.

    Example:
        >>> above_threshold(torch.tensor([[0.5, 0.4]]), [0.5, 0.6]).tolist()
        [[True, False]]
    """
    limits = torch.as_tensor(threshold, dtype=scores.dtype, device=scores.device)
    if limits.ndim and limits.shape != scores.shape[1:]:
        raise ConfigError(f"give one threshold or one for each of {scores.shape[1]} labels, got {list(limits.shape)}")
    return scores >= limits


def top_labels(scores: Tensor, k: int) -> Tensor:
    """Predict the `k` labels of each picture with the highest scores; of equal ones, those that come first.

    Args:
        scores: ``[N, L]``.
        k: How many; all labels where there are fewer.

    Returns:
        ``[N, L]``, true where a label is predicted.

    Raises:
        ConfigError: `k` is below 1.

    Example:
        >>> top_labels(torch.tensor([[0.5, 0.9, 0.5]]), 2).tolist()
        [[True, True, False]]
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if k >= scores.shape[1]:
        return torch.ones_like(scores, dtype=torch.bool)
    last = scores.topk(k, dim=1).values[:, -1:]
    above, equal = scores > last, scores == last
    room = k - above.sum(dim=1, keepdim=True)
    return above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= room))


def decide(scores: Tensor, *, threshold: Threshold | None = None, top_k: int | None = None) -> Tensor:
    """Predict by threshold or by rank, whichever is given; by a threshold of 0.5 if neither is.

    Raises:
        ConfigError: Both are given.

    Example:
        >>> decide(torch.tensor([[0.4, 0.3]]), top_k=1).tolist(), decide(torch.tensor([[0.4, 0.3]])).tolist()
        ([[True, False]], [[False, False]])
    """
    if threshold is not None and top_k is not None:
        raise ConfigError(f"give a threshold or top_k, not both, got {threshold} and {top_k}")
    if top_k is not None:
        return top_labels(scores, top_k)
    return above_threshold(scores, 0.5 if threshold is None else threshold)
