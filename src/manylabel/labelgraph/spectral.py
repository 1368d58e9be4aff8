"""Eq. 2: where the labels lie once a normalised cut of their graph is relaxed to eigenvectors.

Letters in shape comments: L labels, K dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

__all__ = ["Affinity", "spectral_embedding"]

# Up to here all eigenvectors at once are quicker than Lanczos iterations; also where nearly all of them are wanted.
_DENSE_LABELS = 1000
_DENSE_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Affinity:
    """P+ or P-, never dense unless asked: P- times a vector follows from P+ times the vector.

    Args:
        together: P+, ``[L, L]``, symmetric, with an empty diagonal.
        complement: Whether P- = 1 - P+ is meant; its diagonal is empty too.

    Examples:
        >>> Affinity(csr_array([[0, 0.75], [0.75, 0]]), complement=True).dense().tolist()
        [[0.0, 0.25], [0.25, 0.0]]
    """

    together: csr_array
    complement: bool = False

    def __len__(self) -> int:
        return int(self.together.shape[0])

    def times(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product with a vector ``[L]`` or with columns ``[L, n]``."""
        product = np.asarray(self.together @ vectors)
        return vectors.sum(axis=0) - vectors - product if self.complement else product

    def dense(self) -> NDArray[np.float64]:
        """Return the whole matrix."""
        return self.times(np.eye(len(self)))

    def among(self, positions: NDArray[np.int64]) -> Affinity:
        """Return the affinity of some of the labels."""
        return Affinity(self.together[positions][:, positions], self.complement)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """The sum of each label's affinities, ``[L]``; 0 where a label is linked to no other."""
        degrees = self.times(np.ones(len(self)))
        return (
            np.where(degrees > 1e-10, degrees, 0.0) if self.complement else degrees
        )  # what rounding leaves is no link

    @cached_property
    def components(self) -> NDArray[np.int64]:
        """The connected part of the graph that each label is in, ``[L]``."""
        if not self.complement:
            return np.asarray(connected_components(self.together, directed=False)[1], dtype=np.int64)
        always_together = csr_array(self.together >= 1)
        if connected_components(always_together, directed=False)[0] > 1:
            return np.zeros(len(self), dtype=np.int64)  # the complement of a graph in parts is connected
        return np.asarray(connected_components(self.dense() > 0, directed=False)[1], dtype=np.int64)


def spectral_embedding(affinity: Affinity, dimensions: int, *, seed: int = 0) -> NDArray[np.float64]:
    """Place labels so that k-means finds a normalised cut of their graph.

    The columns are the eigenvectors F of Eq. 2 with the smallest eigenvalues, each row divided by the root of the
    label's degree, as scikit-learn does and as the partition that the paper released for COCO needs.

    Args:
        affinity: The graph; every label must have a link.
        dimensions: How many eigenvectors; at least as many as the graph has connected parts, at most L.
        seed: Seeds the vector that the iterations for large graphs start from.

    Returns:
        ``[L, K]``.

    Examples:
        >>> path = Affinity(csr_array([[0, 1.0, 0], [1, 0, 1], [0, 1, 0]]))
        >>> abs(spectral_embedding(path, 2)).round(2).tolist()  # the first column tells connected parts apart
        [[0.5, 0.71], [0.5, 0.0], [0.5, 0.71]]
    """
    scale = 1 / np.sqrt(affinity.degrees)[:, None]
    if len(affinity) <= _DENSE_LABELS or dimensions > _DENSE_SHARE * len(affinity):
        vectors = _all_at_once(affinity, scale, dimensions)
    else:
        vectors = _by_iteration(affinity, scale, dimensions, seed)
    return np.asarray(vectors * scale)


def _all_at_once(affinity: Affinity, scale: NDArray[np.float64], dimensions: int) -> NDArray[np.float64]:
    size = len(affinity)
    similar = scale * affinity.dense() * scale.T  # I minus this is the normalised Laplacian
    _, vectors = eigh(similar, subset_by_index=(size - dimensions, size - 1))
    return np.asarray(vectors[:, ::-1])


def _by_iteration(affinity: Affinity, scale: NDArray[np.float64], dimensions: int, seed: int) -> NDArray[np.float64]:
    """Return the eigenvectors, one per connected part from its definition, the others by Lanczos iterations.

    Eigenvalue 0 of the Laplacian is as often there as the graph has parts, and iterations miss such copies; so they are
    written down, and in the matrix moved to the far end: from 1 to -2, where all others are at least -1.
    """
    size, parts = len(affinity), affinity.components
    first = csr_array((1 / scale[:, 0], (np.arange(size), parts)))
    first = first / np.sqrt(np.bincount(parts, weights=affinity.degrees))
    rest = dimensions - first.shape[1]
    if not rest:
        return np.asarray(first.toarray())

    def apply(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        vectors = vectors.reshape(size, -1)
        return np.asarray(scale * affinity.times(scale * vectors) - 3 * (first @ (first.T @ vectors)))

    similar = LinearOperator((size, size), matvec=apply, matmat=apply, dtype=np.float64)
    start = np.random.default_rng(seed).standard_normal(size)
    values, vectors = eigsh(similar, k=rest, which="LA", v0=start, ncv=min(size, 4 * rest + 40), tol=1e-6)
    return np.hstack([first.toarray(), vectors[:, np.argsort(-values)]])
