"""How much of a picture the objects of a label cover, so that small objects can be told apart.

Letters in shape comments: N pictures, L labels.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

__all__ = ["largest_shares"]


def largest_shares(rows: ArrayLike, columns: ArrayLike, shares: ArrayLike, *, present: csr_array) -> csr_array | None:
    """Return the share of each picture that the largest object of each present label covers.

    Args:
        rows: The picture of each object.
        columns: The label of each object.
        shares: The share of the picture that each object covers; 0 or not a number where it is not known.
        present: Boolean matrix ``[N, L]``; objects of other labels are left out.

    Returns:
        A matrix ``[N, L]`` of float32 in 0..1, or nothing when there are objects but the share of none is known.

    Examples:
        >>> present = csr_array(np.array([[True, False], [True, True]]))
        >>> largest_shares([0, 0, 1], [0, 0, 1], [0.25, 0.5, 0.125], present=present).toarray().tolist()
        [[0.5, 0.0], [0.0, 0.125]]
    """
    rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    shares = np.minimum(np.nan_to_num(np.asarray(shares, dtype=np.float32)), 1)
    places = rows * present.shape[1] + columns
    order = np.lexsort((shares, places))  # by place, the largest share last
    last = order[np.flatnonzero(np.diff(places[order], append=-1))]
    last = last[shares[last] > 0]
    if len(shares) and not len(last):
        return None
    largest = csr_array((shares[last], (rows[last], columns[last])), shape=present.shape)
    kept = csr_array(largest.multiply(present.astype(np.float32)))
    kept.eliminate_zeros()
    return kept
