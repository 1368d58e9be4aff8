"""Co-occurrence of labels: counts, conditional rates S and the affinities of Eq. 1.

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022. The paper
writes P- = I - P+; only with all ones instead of the identity is this a graph, so P- = 1 - P+ here.

Letters in shape comments: L labels.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from manylabel.errors import ConfigError
from manylabel.targets import Targets
from manylabel.types import LabelSpace


class Neighbour(NamedTuple):
    """A label that co-occurs with another one.

    Attributes:
        name: The neighbour.
        images: Number of images that show both.
        rate: Of the images that show the label, the fraction that shows the neighbour too; S in the paper.
        affinity: Strength of the link, 0 to 1, symmetric; P+ in the paper.
    """

    name: str
    images: int
    rate: float
    affinity: float


@dataclass(frozen=True, eq=False)
class LabelGraph:
    """Graph of labels, linked by their co-occurrence in images; sparse, so 10,000 labels fit.

    The diagonal of all matrices is empty. Images count for a pair only if both labels are known. A pair that is never
    known together has no link, like a pair that never co-occurs.

    Args:
        labels: The labels' names.
        counts: ``[L]``, number of images that show each label; n in the paper.
        pairs: ``[L, L]``, number of images that show both labels; e in the paper.
        rates: ``[L, L]``, of the images of the row's label, the fraction with the column's label; S in the paper.
        affinity: ``[L, L]``, symmetric; P+ in Eq. 1. P- is 1 - P+.
        tau: Temperature applied to the rates.

    Examples:
        >>> targets = Targets.from_lists([[0, 1], [0, 1], [0], [2]], num_labels=3)
        >>> graph = LabelGraph.from_targets(targets, LabelSpace(["table", "cup", "boat"]), tau=1)
        >>> graph.rates.toarray().round(2).tolist()
        [[0.0, 0.67, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        >>> graph.affinity.toarray().round(2).tolist()
        [[0.0, 0.83, 0.0], [0.83, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    labels: LabelSpace
    counts: NDArray[np.int64]
    pairs: csr_array
    rates: csr_array
    affinity: csr_array
    tau: float

    @classmethod
    def from_targets(cls, targets: Targets, labels: LabelSpace, *, tau: float = 2.0) -> "LabelGraph":
        """Count co-occurrences of labels and link them by Eq. 1.

        Args:
            targets: Present, absent and unknown labels.
            labels: The labels' names.
            tau: Temperature (a root) applied to the rates: 1 leaves them unchanged, larger values favour rare pairs.
                The paper states 3; 2 reproduces the partition it released for COCO.

        Raises:
            ConfigError: There is no label, the labels are not those of the targets, or `tau` is too small.
        """
        if not len(labels) or targets.shape[1] != len(labels):
            raise ConfigError(
                f"a graph needs labels, and as many as the targets have ({targets.shape[1]}), got {len(labels)}"
            )
        if not (math.isfinite(tau) and tau >= 0.1):
            raise ConfigError(f"tau must be a number of at least 0.1, got {tau}; 2 is a good start")
        pairs = _count_pairs(targets)
        rates = csr_array((pairs.data / _count_known(targets, pairs), pairs.indices, pairs.indptr), shape=pairs.shape)
        roots = rates.power(1 / tau)
        affinity = csr_array((roots + roots.T) / 2)
        affinity.sort_indices()
        return cls(labels, targets.positives, pairs, rates, affinity, float(tau))

    def neighbours(self, name: str, *, at_most: int = 5) -> tuple[Neighbour, ...]:
        """Return the labels that are linked to a label, the strongest first.

        Args:
            name: The label.
            at_most: Number of neighbours to return.

        Raises:
            LabelError: There is no such label.

        Examples:
            >>> targets = Targets.from_lists([[0, 1], [0, 1], [0, 2]], num_labels=3)
            >>> graph = LabelGraph.from_targets(targets, LabelSpace(["table", "cup", "cat"]))
            >>> [neighbour.name for neighbour in graph.neighbours("table")]
            ['cup', 'cat']
        """
        row = self.labels.index(name)
        start, end = self.pairs.indptr[row : row + 2]  # the three matrices store the same positions
        positions = start + np.argsort(-self.affinity.data[start:end], kind="stable")[:at_most]
        columns = (self.pairs.indices, self.pairs.data, self.rates.data, self.affinity.data)
        found = zip(*(column[positions].tolist() for column in columns), strict=True)
        return tuple(Neighbour(self.labels[position], *numbers) for position, *numbers in found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON; of each label its five strongest neighbours."""
        return {
            "tau": self.tau,
            "labels": [
                {
                    "name": name,
                    "images": int(count),
                    "neighbours": [neighbour._asdict() for neighbour in self.neighbours(name)],
                }
                for name, count in zip(self.labels, self.counts, strict=True)
            ],
        }


def _count_pairs(targets: Targets) -> csr_array:
    """Return the number of images in which two labels are both present, without the diagonal."""
    present = targets.present.astype(np.int64)
    pairs = csr_array(present.T @ present)
    pairs = csr_array(pairs - diags_array(pairs.diagonal(), dtype=np.int64))
    pairs.eliminate_zeros()
    pairs.sort_indices()
    return pairs


def _count_known(targets: Targets, pairs: csr_array) -> NDArray[np.int64]:
    """Return, for each stored pair, the number of images of the row's label with a known column's label."""
    occurs = pairs.astype(bool).astype(np.int64)
    present = targets.present.astype(np.int64)
    if targets.absent is not None:
        known = (present.T @ (present + targets.absent.astype(np.int64))) * occurs
    else:
        known = occurs * targets.positives[:, None]
        if targets.unknown is not None:
            known = known - (present.T @ targets.unknown.astype(np.int64)) * occurs
    known = csr_array(known)  # stored just where pairs is: what is known is at least what is present
    known.sort_indices()
    return np.asarray(known.data)
