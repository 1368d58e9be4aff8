"""What every metric takes: scores, targets and what is known, checked once.

Letters in shape comments: N pictures, L labels.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.errors import ConfigError

__all__ = ["Judged", "check", "where_present"]

BLOCK = 4_000_000  # scores that are looked at at once: some tens of MB beside what is given, however large that is


class Judged(NamedTuple):
    """Scores beside the truth, ready to be compared.

    Attributes:
        scores: ``[N, L]``, floating point, without NaN.
        positives: ``[N, L]``, true where a label is known to be present.
        known: ``[N, L]``, true where it is known whether a label is present; nothing when all of it is.
    """

    scores: Tensor
    positives: Tensor
    known: Tensor | None

    @property
    def negatives(self) -> Tensor:
        """True where a label is known to be absent, ``[N, L]``."""
        return ~self.positives if self.known is None else self.known & ~self.positives

    def by_picture(self) -> Iterator["Judged"]:
        """Yield some pictures at a time; each part ``[n, L]`` is a view."""
        step = max(1, BLOCK // max(1, self.scores.shape[1]))
        for start in range(0, self.scores.shape[0], step):
            rows = slice(start, start + step)
            yield Judged(self.scores[rows], self.positives[rows], None if self.known is None else self.known[rows])

    def by_label(self) -> Iterator["Judged"]:
        """Yield some labels at a time; each part ``[l, N]`` is a copy with one row per label."""
        step = max(1, BLOCK // max(1, self.scores.shape[0]))
        for start in range(0, self.scores.shape[1], step):
            columns = (slice(None), slice(start, start + step))
            known = None if self.known is None else _upright(self.known[columns])
            yield Judged(_upright(self.scores[columns]), _upright(self.positives[columns]), known)


def check(scores: Tensor, targets: Tensor, known: Tensor | None = None) -> Judged:
    """Check what a metric was given.

    Args:
        scores: ``[N, L]``, the higher the surer.
        targets: ``[N, L]``, 1 or true where a label is present, else 0 or false.
        known: ``[N, L]``, true where the target is known; everything is when left out.

    Returns:
        The scores, and what is known of the truth.

    Raises:
        ConfigError: The shapes differ, a score is not a number, or a target is neither 0 nor 1.

    Examples:
        >>> scores, targets = torch.tensor([[0.2, 0.8]]), torch.tensor([[1, 1]])
        >>> check(scores, targets, known=torch.tensor([[False, True]])).positives.tolist()
        [[False, True]]
    """
    if scores.ndim != 2 or not scores.is_floating_point():
        raise ConfigError(f"scores must be floating point [pictures, labels], got {scores.dtype} {list(scores.shape)}")
    for what, matrix in (("targets", targets), ("known", known)):
        if matrix is not None and matrix.shape != scores.shape:
            raise ConfigError(f"{what} must have the shape of scores, {list(scores.shape)}, got {list(matrix.shape)}")
    if known is not None and known.dtype != torch.bool:
        raise ConfigError(f"known must be true or false, got {known.dtype}; write known.bool()")
    if scores.numel() and scores.min().isnan():  # the minimum of anything with a NaN in it is NaN
        raise ConfigError(f"scores must be numbers, but {int(scores.isnan().sum())} are NaN; mend the model first")
    positives = where_present(targets)
    return Judged(scores.detach(), positives if known is None else positives & known, known)


def where_present(targets: Tensor) -> Tensor:
    """Return where targets are 1 or true.

    Raises:
        ConfigError: A target is neither 0 nor 1.

    Examples:
        >>> where_present(torch.tensor([[1, -1]]))
        Traceback (most recent call last):
        manylabel.errors.ConfigError: targets must be 0 or 1, got -1 to 1; say what is unknown with `known`
    """
    positives = targets.bool()
    if targets.numel() and targets.dtype != torch.bool and not bool((targets == positives).all()):
        low, high = targets.min().item(), targets.max().item()
        between = targets[targets != positives][0].item()
        found = f"{low} to {high}" if low < 0 or high > 1 else f"{between:g}"
        raise ConfigError(f"targets must be 0 or 1, got {found}; say what is unknown with `known`")
    return positives


def _upright(matrix: Tensor) -> Tensor:
    """Return the columns as rows, copied tile by tile: a third of the time that a single copy takes."""
    rows = matrix.new_empty(matrix.shape[::-1])
    for start in range(0, len(matrix), 512):
        rows[:, start : start + 512] = matrix[start : start + 512].t()
    return rows
