"""What a check of a data set finds, as plain facts.

Letters in shape comments: N pictures, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from manylabel.types import BadImage

__all__ = ["CheckReport", "DuplicateGroup", "LabelCount", "Leak", "LeakKind"]

LeakKind = Literal["exact", "near", "name"]

_MOST_PAIRS_IN_JSON = 5_000  # all pairs of a hundred labels; of thousands, those that matter


@dataclass(frozen=True)
class LabelCount:
    """Of how many pictures a label is known to be there, known not to be there, and unknown."""

    name: str
    display_name: str
    positives: int
    negatives: int
    unknown: int


@dataclass(frozen=True)
class DuplicateGroup:
    """Pictures that are the same.

    Args:
        indices: Their positions in the data set.
        names: Their names.
        is_exact: Whether all are the same file, byte for byte; else they look the same.
        labels_differ: Whether some label is known to be there in one and not to be there in another.
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    is_exact: bool
    labels_differ: bool


@dataclass(frozen=True)
class Leak:
    """Pictures of one split that another split has too.

    Args:
        split: The smaller of the two splits.
        other: The larger one.
        kind: ``"exact"``: the same file or picture; ``"near"``: one that looks the same; ``"name"``: another picture,
            with the same file name.
        indices: The pictures of `split` that are in both.
        share: What part of `split` they are.
    """

    split: str
    other: str
    kind: LeakKind
    indices: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What a check of a data set found.

    Args:
        name: The data set.
        num_pictures: How many pictures it has.
        splits: The number of pictures of each split.
        labels: What is known of each label.
        labels_per_picture: At position k, how many pictures have exactly k labels.
        unknown_share: The part of all pictures x labels that is unknown.
        cooccurrence: ``[L, L]``, the number of pictures that have both labels; on the diagonal, that have the label.
        sizes: ``[N, 2]``, height and width; 0 where the picture cannot be read.
        bad: The pictures that cannot be read.
        duplicates: Groups of pictures that are the same, or nearly.
        leaks: Pictures that are in two splits.
        unseen: For each of several splits, the labels that no picture of it has, though others have.
        always_together: Groups of labels that have exactly the same pictures.
        only_with: Pairs of labels of which the first never comes without the second.
        unlabelled: The pictures that have no label.
        problems: What would break training or make its results worthless, one sentence each.
        warnings: What one should know before training, one sentence each.
    """

    name: str
    num_pictures: int
    splits: Mapping[str, int]
    labels: tuple[LabelCount, ...]
    labels_per_picture: tuple[int, ...]
    unknown_share: float
    cooccurrence: csr_array
    sizes: NDArray[np.int32]
    bad: tuple[BadImage, ...]
    duplicates: tuple[DuplicateGroup, ...]
    leaks: tuple[Leak, ...]
    unseen: Mapping[str, tuple[str, ...]]
    always_together: tuple[tuple[str, ...], ...]
    only_with: tuple[tuple[str, str], ...]
    unlabelled: tuple[int, ...]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that would break training."""
        return not self.problems

    @property
    def mean_labels(self) -> float:
        """Labels per picture, on average."""
        return sum(label.positives for label in self.labels) / max(self.num_pictures, 1)

    @property
    def readable_sizes(self) -> NDArray[np.int32]:
        """Height and width of the pictures that can be read, ``[n, 2]``."""
        return self.sizes[self.sizes[:, 0] > 0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON; of very many labels, the most frequent pairs."""
        return {
            "name": self.name,
            "is_sound": self.is_sound,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "num_pictures": self.num_pictures,
            "num_labels": len(self.labels),
            "splits": dict(self.splits),
            "unknown_share": self.unknown_share,
            "labels": [asdict(label) for label in self.labels],
            "labels_per_picture": {"mean": self.mean_labels, "histogram": list(self.labels_per_picture)},
            "sizes": _summaries(self.readable_sizes),
            "bad": [asdict(picture) for picture in self.bad],
            "duplicates": [asdict(group) for group in self.duplicates],
            "leaks": [asdict(leak) for leak in self.leaks],
            "unseen": {split: list(names) for split, names in self.unseen.items()},
            "always_together": [list(names) for names in self.always_together],
            "only_with": [list(pair) for pair in self.only_with],
            "unlabelled": list(self.unlabelled),
            "cooccurrence": self._pairs(_MOST_PAIRS_IN_JSON),
        }

    def _pairs(self, at_most: int) -> list[dict[str, Any]]:
        """Return the pairs of labels that share most pictures."""
        above = triu(self.cooccurrence, k=1, format="coo")
        order = np.argsort(-above.data, kind="stable")[:at_most]
        triples = zip(above.row[order], above.col[order], above.data[order].tolist(), strict=True)
        return [
            {"labels": [self.labels[one].name, self.labels[other].name], "pictures": pictures}
            for one, other, pictures in triples
        ]


def _summaries(sizes: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """Return the smallest, middle and largest height, width and proportion."""
    if not len(sizes):
        return {}
    height, width = sizes.T
    measures = {"height": height, "width": width, "width_to_height": width / height}
    return {
        name: {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}
        for name, values in measures.items()
    }
