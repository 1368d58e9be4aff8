"""Inputs of every metric: checks, decisions by threshold or rank, and weights of the images.

A metric is a weighted sum over images. The bootstrap calls it with the number of times each image was drawn.

Letters in shape comments: N images, L labels, D weightings.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.errors import ConfigError

BLOCK = 4_000_000  # scores processed at once: limits the additional memory to some tens of MB
_WEIGHTINGS = 32  # at once: 128 bytes per image, so the weights of tens of thousands of images fit in a cache

Threshold = float | Sequence[float] | Tensor


class Inputs(NamedTuple):
    """Checked scores and targets.

    Attributes:
        scores: ``[N, L]``, floating point, without NaN.
        positives: ``[N, L]``, true where a label is known to be present.
        known: ``[N, L]``, true where the target is known; None if all are.
    """

    scores: Tensor
    positives: Tensor
    known: Tensor | None

    @property
    def negatives(self) -> Tensor:
        """True where a label is known to be absent, ``[N, L]``."""
        return ~self.positives if self.known is None else self.known & ~self.positives

    def by_image(self) -> Iterator["Inputs"]:
        """Yield blocks of images ``[n, L]``, as views; at least one, possibly empty."""
        step = max(1, BLOCK // max(1, self.scores.shape[1]))
        for start in range(0, max(1, self.scores.shape[0]), step):
            rows = slice(start, start + step)
            yield Inputs(self.scores[rows], self.positives[rows], None if self.known is None else self.known[rows])

    def by_label(self) -> Iterator["Inputs"]:
        """Yield blocks of labels ``[l, N]``, as transposed copies."""
        step = max(1, BLOCK // max(1, self.scores.shape[0]))
        for start in range(0, self.scores.shape[1], step):
            columns = (slice(None), slice(start, start + step))
            known = None if self.known is None else _transpose(self.known[columns])
            yield Inputs(_transpose(self.scores[columns]), _transpose(self.positives[columns]), known)


def check(scores: Tensor, targets: Tensor, known: Tensor | None = None) -> Inputs:
    """Check the inputs of a metric.

    Args:
        scores: ``[N, L]``, higher for more confident.
        targets: ``[N, L]``, 1 or true where a label is present, else 0 or false.
        known: ``[N, L]``, true where the target is known (default: all of it).

    Returns:
        The scores, and the known part of the targets.

    Raises:
        ConfigError: The shapes differ, a score is NaN, or a target is neither 0 nor 1.

    Examples:
        >>> scores, targets = torch.tensor([[0.2, 0.8]]), torch.tensor([[1, 1]])
        >>> check(scores, targets, known=torch.tensor([[False, True]])).positives.tolist()
        [[False, True]]
    """
    if scores.ndim != 2 or not scores.is_floating_point():
        raise ConfigError(f"scores must be floating point [images, labels], got {scores.dtype} {list(scores.shape)}")
    for what, matrix in (("targets", targets), ("known", known)):
        if matrix is not None and matrix.shape != scores.shape:
            raise ConfigError(f"{what} must have the shape of scores, {list(scores.shape)}, got {list(matrix.shape)}")
    if known is not None and known.dtype != torch.bool:
        raise ConfigError(f"known must be true or false, got {known.dtype}; write known.bool()")
    if scores.numel() and scores.min().isnan():  # NaN if any score is
        raise ConfigError(f"scores must be numbers, but {int(scores.isnan().sum())} are NaN; fix the model first")
    positives = where_present(targets)
    return Inputs(scores.detach(), positives if known is None else positives & known, known)


def where_present(targets: Tensor) -> Tensor:
    """Return the mask of targets that are 1 or true.

    Raises:
        ConfigError: A target is neither 0 nor 1.

    Examples:
        >>> where_present(torch.tensor([[1, -1]]))
        Traceback (most recent call last):
        manylabel.errors.ConfigError: targets must be 0 or 1, got -1 to 1; mark unknown ones with `known`
    """
    positives = targets.bool()
    if targets.numel() and targets.dtype != torch.bool and not bool((targets == positives).all()):
        low, high = targets.min().item(), targets.max().item()
        between = targets[targets != positives][0].item()
        found = f"{low} to {high}" if low < 0 or high > 1 else f"{between:g}"
        raise ConfigError(f"targets must be 0 or 1, got {found}; mark unknown ones with `known`")
    return positives


def above_threshold(scores: Tensor, threshold: Threshold = 0.5) -> Tensor:
    """Predict every label whose score reaches its threshold, ``[N, L]``.

    Args:
        scores: ``[N, L]``.
        threshold: One for all labels, or one per label; equal scores count as predicted.

    Raises:
        ConfigError: The number of thresholds is neither 1 nor that of the labels.

    Examples:
        >>> above_threshold(torch.tensor([[0.5, 0.4]]), [0.5, 0.6]).tolist()
        [[True, False]]
    """
    limits = torch.as_tensor(threshold, dtype=scores.dtype, device=scores.device)
    if limits.ndim and limits.shape != scores.shape[1:]:
        raise ConfigError(f"pass one threshold, or one for each of {scores.shape[1]} labels, got {list(limits.shape)}")
    return scores >= limits


def top_labels(scores: Tensor, k: int) -> Tensor:
    """Predict the `k` labels of each image with the highest scores, ``[N, L]``; of equal ones, the first.

    Args:
        scores: ``[N, L]``.
        k: Number of labels; all where there are fewer.

    Raises:
        ConfigError: `k` is below 1.

    Examples:
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
    """Predict by threshold or by rank, whichever is given (default: a threshold of 0.5).

    Raises:
        ConfigError: Both are given.

    Examples:
        >>> decide(torch.tensor([[0.4, 0.3]]), top_k=1).tolist(), decide(torch.tensor([[0.4, 0.3]])).tolist()
        ([[True, False]], [[False, False]])
    """
    if threshold is not None and top_k is not None:
        raise ConfigError(f"pass threshold or top_k, not both, got {threshold} and {top_k}")
    if top_k is not None:
        return top_labels(scores, top_k)
    return above_threshold(scores, 0.5 if threshold is None else threshold)


def weighted(statistic: Callable[[Tensor], Tensor], weights: Tensor | None, *, like: Tensor) -> Tensor:
    """Compute a weighted statistic of images.

    Args:
        statistic: Returns values ``[..., D]`` for weights ``[N, D]``.
        weights: ``[N]``, or ``[D, N]`` for D weightings at once; whole numbers (default: 1 per image).
        like: Scores ``[N, L]``, for the number of images and the device.

    Returns:
        ``[...]``, or ``[D, ...]`` for D weightings; float32.

    Raises:
        ConfigError: The weights are not one whole number for each image, or negative.

    Examples:
        >>> weighted(lambda counts: counts.sum(dim=0), torch.tensor([[1, 0, 2], [1, 1, 1]]), like=torch.rand(3, 5))
        tensor([3., 3.])
    """
    num_images = len(like)
    with torch.no_grad():
        if weights is None:
            ones = torch.ones(num_images, 1, dtype=torch.float64, device=like.device)
            return statistic(ones)[..., 0].float()
        if weights.ndim not in (1, 2) or weights.shape[-1] != num_images:
            raise ConfigError(f"weights must be [{num_images}] or [D, {num_images}], got {list(weights.shape)}")
        if weights.numel() and (weights.min() < 0 or bool((weights != weights.round()).any())):
            raise ConfigError("weights must be whole numbers of at least 0: how often each image counts")
        values = _by_block(statistic, weights.reshape(-1, num_images).to(like.device))
    return values.movedim(-1, 0) if weights.ndim == 2 else values[..., 0]


def mean_over_images(
    of_block: Callable[[Inputs], tuple[Tensor, Tensor]], given: Inputs, weights: Tensor | None
) -> Tensor:
    """Divide two sums over images, weighted as in `weighted`; NaN if the denominator is 0.

    Args:
        of_block: Returns the numerators and denominators ``[n]`` of a block of images.
        given: All images.
        weights: As in `weighted`.

    Examples:
        >>> given = check(torch.tensor([[0.9], [0.2]]), torch.tensor([[1], [1]]))
        >>> mean_over_images(lambda block: (block.scores[:, 0], block.positives[:, 0]), given, torch.tensor([3, 1]))
        tensor(0.7250)
    """
    parts = zip(*map(of_block, given.by_image()), strict=True)
    numerators, denominators = (torch.cat(part) for part in parts)

    def divide(counts: Tensor) -> Tensor:
        return (numerators.to(counts.dtype) @ counts) / (denominators.to(counts.dtype) @ counts)

    return weighted(divide, weights, like=given.scores)


def _by_block(statistic: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
    """Return ``[..., D]`` for weights ``[D, N]``, computed in blocks of weightings, in threads."""

    def compute(start: int) -> Tensor:
        with torch.no_grad():  # each thread has its own
            return statistic(weights[start : start + _WEIGHTINGS].t().float().contiguous()).float()

    if not len(weights):  # computed once for the shape
        return statistic(weights.new_ones(weights.shape[1], 1, dtype=torch.float32))[..., :0].float()
    starts = range(0, len(weights), _WEIGHTINGS)
    if len(starts) == 1:
        return compute(0)
    with _single_threaded() as num_threads, ThreadPoolExecutor(num_threads) as pool:
        return torch.cat(list(pool.map(compute, starts)), dim=-1)


@contextmanager
def _single_threaded() -> Iterator[int]:
    """Limit torch to one thread per operation, and yield the number of threads before.

    The threads of many small operations mostly wait for each other; one thread per block of weightings does not.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield num_threads
    finally:
        torch.set_num_threads(num_threads)


def _transpose(matrix: Tensor) -> Tensor:
    """Transpose a matrix tile by tile, which takes a third of the time of a single copy."""
    rows = matrix.new_empty(matrix.shape[::-1])
    for start in range(0, len(matrix), 512):
        rows[:, start : start + 512] = matrix[start : start + 512].t()
    return rows
