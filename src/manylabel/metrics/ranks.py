"""Where the positives of a row stand among its scores: what average precision and ranking loss are made of.

Letters in shape comments: R rows, C columns, P the largest number of positives in a row.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.metrics.inputs import Judged

__all__ = ["Ranks", "rank_positives"]


class Ranks(NamedTuple):
    """How far down the ranking each positive stands; equal scores stand equally far down.

    Args:
        above: ``[R, P]``, how many known scores of the row are at least that of this positive, itself included.
        positives_above: ``[R, P]``, how many of these are positives.
        real: ``[R, P]``, false where a row has no more positives; those that it has are sorted by rising score.
        counts: ``[R]``, how many positives a row has.
    """

    above: Tensor
    positives_above: Tensor
    real: Tensor
    counts: Tensor


def rank_positives(judged: Judged) -> Ranks:
    """Rank the positives of each row among all that is known in it.

    Args:
        judged: ``[R, C]``, at least one row; the scores are used up: sorted in place where their type allows.

    Returns:
        The ranks; precision at each positive is ``positives_above / above``.

    Example:
        >>> scores, positives = torch.tensor([[0.9, 0.8, 0.8, 0.1]]), torch.tensor([[True, False, True, False]])
        >>> ranks = rank_positives(Judged(scores, positives, known=None))
        >>> ranks.above.tolist(), ranks.positives_above.tolist()
        ([[3, 1]], [[2, 1]])
    """
    scores, positives, known = judged
    scores = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    counts = positives.sum(dim=1, dtype=torch.int32)
    places = torch.arange(max(1, int(counts.max())), device=scores.device)
    real = places < counts[:, None]
    chosen = scores.new_full(real.shape, torch.inf).masked_scatter_(real, scores.masked_select(positives))
    if known is not None:
        scores.masked_fill_(~known, -torch.inf)
    chosen, everything = _sort(chosen), _sort(scores)
    above = scores.shape[1] - torch.searchsorted(everything, chosen)
    if known is not None:  # what is not known stands at the very bottom, where only minus infinity reaches it
        above = above.minimum(known.sum(dim=1, keepdim=True))
    equal = torch.zeros_like(real)
    equal[:, 1:] = chosen[:, 1:] == chosen[:, :-1]
    first_equal = torch.where(equal, 0, places).cummax(dim=1).values
    return Ranks(above, counts[:, None] - first_equal, real, counts)


def _sort(rows: Tensor) -> Tensor:
    """Sort each row upwards, in place; on a CPU numpy sorts bare numbers ten times as fast as torch does."""
    if rows.device.type != "cpu":
        return rows.sort(dim=1).values
    rows.numpy().sort(axis=1)
    return rows
