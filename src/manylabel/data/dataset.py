"""The dataset that every reader returns: images, sparse targets, label names and named splits.

Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from manylabel.data.sources import ImageSource, JoinedSource
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = [
    "ImageDataset",
    "largest_areas",
]


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images with labels, decoded on access only.

    Args:
        images: The encoded images.
        targets: Present, absent and unknown labels, ``[N, L]``.
        labels: The label names.
        name: Name of the dataset in reports.
        splits: Image positions of each named split that the reader found.
        areas: ``[N, L]``, the fraction of the image that a label's largest object covers, where the data provide it.
        single_label: Whether every image has exactly one label by construction, as softmax requires.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> dataset = ImageDataset(
        ...     Files("photos", ["a.jpg", "b.jpg"]),
        ...     Targets.from_lists([[0], [0, 1]], num_labels=2),
        ...     LabelSpace(["cat", "dog"]),
        ...     name="pets",
        ...     splits={"train": np.array([0]), "val": np.array([1])},
        ... )
        >>> dataset.split("val").images.name(0)
        'b.jpg'
    """

    images: ImageSource
    targets: Targets
    labels: LabelSpace
    name: str = "images"
    splits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    areas: csr_array | None = None
    single_label: bool = False

    def __post_init__(self) -> None:
        expected = (len(self.images), len(self.labels))
        for what, matrix in (("targets", self.targets), ("areas", self.areas)):
            if matrix is not None and matrix.shape != expected:
                raise ConfigError(f"{what} must be [images, labels] = {list(expected)}, got {list(matrix.shape)}")

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: ArrayLike) -> ImageDataset:
        """Return some of the images, in the order given; splits are reduced accordingly.

        Args:
            indices: Positions, or a boolean mask over the images.
        """
        chosen = np.asarray(indices)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        return replace(
            self,
            images=self.images.take(chosen),
            targets=self.targets[chosen],
            areas=None if self.areas is None else self.areas[chosen],
            splits={name: np.flatnonzero(np.isin(chosen, members)) for name, members in self.splits.items()},
        )

    def splits_like(self, beginning: str) -> list[str]:
        """Return the names of non-empty splits with this prefix, ignoring case.

        Examples:
            >>> from manylabel.data import scenes
            >>> scenes(10).splits_like("Val")
            ['val']
        """
        found = (name for name, members in self.splits.items() if len(members))
        return [name for name in found if name.lower().startswith(beginning.lower())]

    def split(self, name: str) -> ImageDataset:
        """Return the images of one named split.

        Raises:
            DataError: There is no such split; the message lists the existing ones.
        """
        if name not in self.splits:
            raise DataError(f"{self.name} has no split {name!r}; {list_choices(name, self.splits)}")
        part = self.subset(self.splits[name])
        return replace(part, splits={name: np.arange(len(part))})

    def select_labels(self, names: Sequence[str]) -> ImageDataset:
        """Return the same images with a subset of the labels, in the order given."""
        positions = [self.labels.index(name) for name in names]
        return replace(
            self,
            labels=self.labels.subset(names),
            targets=self.targets.of_labels(positions),
            areas=None if self.areas is None else self.areas[:, positions],
            single_label=False,
        )

    @classmethod
    def join(cls, parts: Mapping[str, ImageDataset], *, name: str) -> ImageDataset:
        """Concatenate datasets of the same labels; each becomes a split.

        Raises:
            DataError: The labels differ.
        """
        datasets = list(parts.values())
        first = datasets[0]
        for split, part in parts.items():
            if part.labels.names != first.labels.names:
                odd = sorted(set(part.labels) ^ set(first.labels))
                raise DataError(
                    f"cannot join split {split!r}: its labels differ ({', '.join(odd[:5]) or 'their order'})"
                )
        ends = np.cumsum([len(part) for part in datasets])
        spans = zip(parts, [0, *ends[:-1]], ends, strict=True)
        areas = [part.areas for part in datasets]
        return cls(
            images=JoinedSource([part.images for part in datasets]),
            targets=Targets.stack([part.targets for part in datasets]),
            labels=first.labels,
            name=name,
            splits={split: np.arange(start, end) for split, start, end in spans},
            areas=None if any(area is None for area in areas) else vstack(areas, "csr"),
            single_label=all(part.single_label for part in datasets),
        )


def largest_areas(rows: ArrayLike, columns: ArrayLike, areas: ArrayLike, *, present: csr_array) -> csr_array | None:
    """Return the fraction of each image that the largest object of each present label covers.

    Args:
        rows: The image of each object.
        columns: The label of each object.
        areas: The fraction of the image that each object covers; 0 or NaN where unknown.
        present: Boolean matrix ``[N, L]``; objects of other labels are ignored.

    Returns:
        A float32 matrix ``[N, L]`` in 0..1, or None when no object has a known area.

    Examples:
        >>> present = csr_array(np.array([[True, False], [True, True]]))
        >>> largest_areas([0, 0, 1], [0, 0, 1], [0.25, 0.5, 0.125], present=present).toarray().tolist()
        [[0.5, 0.0], [0.0, 0.125]]
    """
    rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    areas = np.minimum(np.nan_to_num(np.asarray(areas, dtype=np.float32)), 1)
    positions = rows * present.shape[1] + columns
    order = np.lexsort((areas, positions))  # by position, the largest area last
    last = order[np.flatnonzero(np.diff(positions[order], append=-1))]
    last = last[areas[last] > 0]
    if len(areas) and not len(last):
        return None
    largest = csr_array((areas[last], (rows[last], columns[last])), shape=present.shape)
    result = csr_array(largest.multiply(present.astype(np.float32)))
    result.eliminate_zeros()
    return result
