"""The confusions that matter: a label that is missed while another is invented in its place.

Letters in shape comments: N pictures, L labels.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from manylabel.evaluation.scores import ScoredImages

__all__ = ["Confusion", "find_confusions"]


@dataclass(frozen=True)
class Confusion:
    """One label is missed while another, absent one is predicted.

    Args:
        missed: The label that is present but not predicted.
        invented: The label that is predicted but absent.
        count: The number of pictures in which both happens.
        share: The share of all pictures with `missed` missed in which `invented` is invented.
        usual_share: The share of all other pictures in which `invented` is invented.
    """

    missed: str
    invented: str
    count: int
    share: float
    usual_share: float


def find_confusions(scored: ScoredImages, *, at_most: int = 20) -> tuple[Confusion, ...]:
    """Find the pairs of labels of which one is often missed while the other is invented.

    A pair counts if this happens in at least two pictures. Pairs are sorted by how many pictures more it happens in
    than chance would have it, so that a label that is invented everywhere does not fill the list.

    Args:
        scored: The scores beside the truth.
        at_most: How many pairs to return.

    Examples:
        >>> scores = [[0.1, 0.9], [0.2, 0.8], [0.9, 0.1], [0.1, 0.9]]
        >>> targets = [[1, 0], [1, 0], [1, 0], [0, 1]]
        >>> find_confusions(ScoredImages.from_arrays(scores, targets, labels=["dog", "wolf"]))
        (Confusion(missed='dog', invented='wolf', count=2, share=1.0, usual_share=0.0),)
    """
    judged = scored.judged
    missed = csr_array((judged.positives & ~scored.predicted).numpy().astype(np.int32))
    invented = csr_array((judged.negatives & scored.predicted).numpy().astype(np.int32))
    together = (missed.T @ invented).tocoo()  # [L, L]
    rows, columns, counts = together.row, together.col, together.data
    misses = np.asarray(missed.sum(axis=0))[rows]
    inventions = np.asarray(invented.sum(axis=0))[columns]
    usual = (inventions - counts) / np.maximum(len(scored) - misses, 1)
    excess = counts - misses * usual
    matters = np.flatnonzero((counts > 1) & (excess > 0))
    order = matters[np.lexsort((columns[matters], rows[matters], -excess[matters]))]  # of equals, the first label first
    return tuple(
        Confusion(
            missed=scored.labels[rows[pair]],
            invented=scored.labels[columns[pair]],
            count=int(counts[pair]),
            share=float(counts[pair] / misses[pair]),
            usual_share=float(usual[pair]),
        )
        for pair in order[:at_most]
    )
