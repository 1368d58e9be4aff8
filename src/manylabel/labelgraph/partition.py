"""Partitions of labels by a normalised cut of their graph, or at random as a control.

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022, section 3.2:
``"co"`` groups labels that co-occur in images, ``"dis"`` labels that do not. The cut is relaxed to
eigenvectors (Eq. 2).

Letters in shape comments: L labels, K dimensions.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import combinations, pairwise
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from manylabel.errors import ConfigError, LabelError, list_choices
from manylabel.labelgraph.graph import LabelGraph
from manylabel.types import LabelSpace

PartitionKind = Literal["co", "dis", "random"]

# Up to here all eigenvectors at once are quicker than Lanczos iterations; also where nearly all of them are wanted.
_DENSE_LABELS = 1000
_DENSE_SHARE = 0.25


@dataclass(frozen=True)
class Partition:
    """Partition of labels into non-empty subsets.

    Args:
        subsets: The labels of each subset, in the order of the label space; the largest subset first.
        kind: Criterion of the partition.
        seed: Seed of k-means or of the random division.
        stability: Mean adjusted Rand index between the partitions of several seeds: 1 if they are identical, 0 for
            chance level.

    Raises:
        LabelError: A label is in two subsets, or a subset is empty.

    Examples:
        >>> partition = Partition((("cup", "table"), ("boat",)), kind="co", seed=0, stability=1.0)
        >>> partition.sizes, partition.singletons
        ((2, 1), ('boat',))
        >>> partition.positions(LabelSpace(["boat", "cup", "table"]))
        (array([1, 2]), array([0]))
    """

    subsets: tuple[tuple[str, ...], ...]
    kind: PartitionKind
    seed: int = 0
    stability: float = 1.0

    def __post_init__(self) -> None:
        names = [name for subset in self.subsets for name in subset]
        if not all(self.subsets) or len(set(names)) != len(names):
            raise LabelError("every label must be in one subset only, none empty; make them with partition_labels")

    def __len__(self) -> int:
        return len(self.subsets)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of labels in each subset."""
        return tuple(map(len, self.subsets))

    @property
    def singletons(self) -> tuple[str, ...]:
        """Labels that are alone in their subset."""
        return tuple(subset[0] for subset in self.subsets if len(subset) == 1)

    def positions(self, labels: LabelSpace) -> tuple[NDArray[np.int64], ...]:
        """Return the positions of each subset's labels in a label space: columns of its logits or targets."""
        return tuple(np.array([labels.index(name) for name in subset], dtype=np.int64) for subset in self.subsets)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return {
            "kind": self.kind,
            "seed": self.seed,
            "stability": self.stability,
            "sizes": list(self.sizes),
            "singletons": list(self.singletons),
            "subsets": [list(subset) for subset in self.subsets],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Partition":
        """Restore a partition from `to_dict`.

        Raises:
            LabelError: A value is missing or has the wrong type, or a label is in several subsets.
        """
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise LabelError(f"this is not a partition of labels: {error}") from error


def partition_labels(
    graph: LabelGraph,
    num_subsets: int = 5,
    *,
    kind: PartitionKind = "co",
    seed: int = 0,
    num_restarts: int | None = None,
    num_seeds: int = 10,
) -> Partition:
    """Partition labels into subsets.

    The labels are embedded by `spectral_embedding` and clustered by k-means. Details that the paper leaves open:

    - Labels without links, such as those without images, are not part of a cut. They are assigned at the end, one by
      one, to the smallest subset.
    - A graph with at least as many connected components as subsets is not cut: whole components are assigned, the
      largest first, to the smallest subset.
    - With fewer distinct points than subsets, k-means leaves subsets empty; labels of the largest ones fill them.

    Args:
        graph: The labels and their links.
        num_subsets: Number of subsets, 1 to L; k in the paper.
        kind: ``"co"`` cuts the graph P+, ``"dis"`` the graph P-, ``"random"`` divides evenly at random.
        seed: Seed of k-means or of the random division.
        num_restarts: Number of restarts of k-means; the tightest result wins (default: 50; 5 for more than 1,000
            labels).
        num_seeds: Number of seeds for the stability; the first one determines the result.

    Raises:
        ConfigError: There is no such kind, there are more subsets than labels, or a number is too small.

    Examples:
        >>> from manylabel.targets import Targets
        >>> targets = Targets.from_lists([[0, 1], [2, 3], [1, 0], [3, 2], [1, 2]], num_labels=4)
        >>> graph = LabelGraph.from_targets(targets, LabelSpace(["cup", "table", "boat", "sea"]))
        >>> partition_labels(graph, 2).subsets
        (('cup', 'table'), ('boat', 'sea'))
        >>> partition_labels(graph, 2, kind="dis").subsets
        (('cup', 'boat'), ('table', 'sea'))
    """
    size = len(graph.labels)
    if num_restarts is None:
        num_restarts = 50 if size <= 1000 else 5
    if kind not in get_args(PartitionKind):
        raise ConfigError(f"no kind of partition {kind!r}; {list_choices(str(kind), get_args(PartitionKind))}")
    if not 1 <= num_subsets <= size:
        raise ConfigError(
            f"the number of subsets must be between 1 and the number of labels ({size}), got {num_subsets}"
        )
    for what, value, least in (("seed", seed, 0), ("num_restarts", num_restarts, 1), ("num_seeds", num_seeds, 1)):
        if value < least:
            raise ConfigError(f"{what} must be at least {least}, got {value}")
    seeds = [int(state) for state in np.random.SeedSequence(seed).generate_state(num_seeds)]
    if kind == "random":
        results = [np.random.default_rng(state).permutation(size) % num_subsets for state in seeds]
    else:
        results = _cut(Affinity(graph.affinity, kind == "dis"), num_subsets, seeds, num_restarts)
    subsets = _subsets(results[0], graph.labels)
    return Partition(subsets, kind=kind, seed=seed, stability=_mean_agreement(results))


def _cut(affinity: "Affinity", num_subsets: int, seeds: list[int], num_restarts: int) -> list[NDArray[np.int64]]:
    """Return the subset of each label ``[L]``, once per seed."""
    linked = np.flatnonzero(affinity.degrees)
    linked_graph = affinity.among(linked)
    parts = linked_graph.components if len(linked) else linked
    num_parts = int(parts.max(initial=-1)) + 1
    if num_subsets == 1 or num_subsets >= len(linked):
        found = [np.arange(len(linked)) % num_subsets]
    elif num_parts >= num_subsets:
        found = [_deal(np.bincount(parts), np.zeros(num_subsets, dtype=np.int64))[parts]]
    else:
        positions = spectral_embedding(linked_graph, num_subsets, seed=seeds[0])
        found = [_cluster(positions, num_subsets, seed, num_restarts) for seed in seeds]
    return [_with_loose(subset_of, linked, num_subsets, len(affinity)) for subset_of in found]


def _cluster(positions: NDArray[np.float64], num_subsets: int, seed: int, num_restarts: int) -> NDArray[np.int64]:
    """Return the cluster of each row by k-means; no cluster is empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # coinciding points, handled below
        means = KMeans(num_subsets, n_init=num_restarts, random_state=seed).fit(positions)
    subset_of = np.array(means.labels_, dtype=np.int64)
    distances = np.linalg.norm(positions - means.cluster_centers_[subset_of], axis=1)
    for empty in np.setdiff1d(np.arange(num_subsets), subset_of):
        members = np.flatnonzero(subset_of == np.bincount(subset_of).argmax())
        subset_of[members[distances[members].argmax()]] = empty
    return subset_of


def _with_loose(subset_of: NDArray[np.int64], linked: NDArray[np.int64], count: int, size: int) -> NDArray[np.int64]:
    """Return the subset of every label; labels without links go to the smallest subsets."""
    everyone = np.empty(size, dtype=np.int64)
    everyone[linked] = subset_of
    loose = np.setdiff1d(np.arange(size), linked)
    everyone[loose] = _deal(np.ones(len(loose), dtype=np.int64), np.bincount(subset_of, minlength=count))
    return everyone


def _deal(weights: NDArray[np.int64], loads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a subset for each piece: the heaviest piece first, each to the subset that is lightest then."""
    heap = [(int(load), subset) for subset, load in enumerate(loads)]
    heapify(heap)
    subset_of = np.empty(len(weights), dtype=np.int64)
    for piece in np.argsort(-weights, kind="stable"):
        load, subset = heap[0]
        subset_of[piece] = subset
        heapreplace(heap, (load + int(weights[piece]), subset))
    return subset_of


def _subsets(subset_of: NDArray[np.int64], labels: LabelSpace) -> tuple[tuple[str, ...], ...]:
    """Return the labels of each subset: the largest first, of equal ones that with the earliest label."""
    order = np.argsort(subset_of, kind="stable")
    ends = [0, *np.cumsum(np.bincount(subset_of)).tolist()]
    members = [order[start:end] for start, end in pairwise(ends)]
    members.sort(key=lambda positions: (-len(positions), positions[0]))
    return tuple(tuple(labels[position] for position in positions) for positions in members)


def _mean_agreement(results: list[NDArray[np.int64]]) -> float:
    """Return the mean adjusted Rand index of all pairs; 1 when there is nothing to compare."""
    agreements = [adjusted_rand_score(one, other) for one, other in combinations(results, 2)]
    return float(np.mean(agreements)) if agreements else 1.0


@dataclass(frozen=True, eq=False)
class Affinity:
    """P+ or P- as an operator, without a dense matrix: products with P- follow from those with P+.

    Args:
        together: P+, ``[L, L]``, symmetric, with an empty diagonal.
        complement: Represent P- = 1 - P+, also with an empty diagonal.

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
        """Return the dense matrix."""
        return self.times(np.eye(len(self)))

    def among(self, positions: NDArray[np.int64]) -> "Affinity":
        """Return the affinity of some of the labels."""
        return Affinity(self.together[positions][:, positions], self.complement)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """The sum of each label's affinities, ``[L]``; 0 where a label is linked to no other."""
        degrees = self.times(np.ones(len(self)))
        return np.where(degrees > 1e-10, degrees, 0.0) if self.complement else degrees

    @cached_property
    def components(self) -> NDArray[np.int64]:
        """Connected component of each label, ``[L]``."""
        if not self.complement:
            return np.asarray(connected_components(self.together, directed=False)[1], dtype=np.int64)
        always_together = csr_array(self.together >= 1)
        if connected_components(always_together, directed=False)[0] > 1:
            return np.zeros(len(self), dtype=np.int64)  # the complement of a graph in parts is connected
        return np.asarray(connected_components(self.dense() > 0, directed=False)[1], dtype=np.int64)


def spectral_embedding(affinity: Affinity, dimensions: int, *, seed: int = 0) -> NDArray[np.float64]:
    """Embed labels for k-means to find a normalised cut of their graph.

    The columns are the eigenvectors F of Eq. 2 with the smallest eigenvalues, each row divided by the root of the
    label's degree, as in scikit-learn; only this reproduces the partition that the authors released for COCO.

    Args:
        affinity: The graph; every label must have a link.
        dimensions: Number of eigenvectors; at least the number of connected components, at most L.
        seed: Seed of the start vector of the iterations for large graphs.

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
    """Return the eigenvectors: one per connected component in closed form, the others by Lanczos iterations.

    The Laplacian has eigenvalue 0 once per component, and Lanczos iterations miss such multiples; so these eigenvectors
    are set directly, and their eigenvalues in the matrix shifted from 1 to -2, where all others are at least -1.
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
