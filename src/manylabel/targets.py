"""Sparse multi-label targets with present, absent and unknown labels.

Letters in shape comments: N images of a dataset, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from manylabel.errors import ConfigError, LabelError
from manylabel.types import LabelSpace


@dataclass(frozen=True, eq=False, repr=False)
class Targets:
    """Present, absent and unknown labels of each image, stored sparsely to fit millions of images.

    `present` lists the positives. Of all other labels, either `unknown` lists the unannotated ones (the rest are
    absent), or `absent` lists the verified negatives (the rest are unknown, as in Open Images). With neither, every
    label that is not present is absent.

    Args:
        present: Boolean matrix ``[N, L]``.
        unknown: Boolean matrix ``[N, L]``, disjoint from `present`.
        absent: Boolean matrix ``[N, L]``, disjoint from `present`; mutually exclusive with `unknown`.

    Examples:
        >>> targets = Targets.from_lists([[0, 2], [1]], num_labels=3, unknown=[[], [0]])
        >>> values, known = targets.dense()
        >>> values.tolist()
        [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
        >>> known.tolist()
        [[True, True, True], [False, True, True]]
    """

    present: csr_array
    unknown: csr_array | None = None
    absent: csr_array | None = None

    def __post_init__(self) -> None:
        if self.unknown is not None and self.absent is not None:
            raise ConfigError("pass the unknown or the absent labels, not both: one follows from the other")
        rest = self._listed
        if rest is None:
            return
        if rest.shape != self.present.shape:
            raise ConfigError(f"the matrices must have the same shape, got {self.present.shape} and {rest.shape}")
        if self.present.multiply(rest).nnz:
            raise ConfigError("a label of an image is both present and unknown or absent; choose one")

    @classmethod
    def from_lists(
        cls,
        present: Sequence[Sequence[int]] | Sequence[Sequence[str]],
        *,
        num_labels: int | None = None,
        labels: LabelSpace | Sequence[str] = (),
        unknown: Sequence[Sequence[int]] | Sequence[Sequence[str]] | None = None,
        absent: Sequence[Sequence[int]] | Sequence[Sequence[str]] | None = None,
    ) -> Targets:
        """Create targets from a list of labels per image.

        Args:
            present: The present labels of each image, by position or by name.
            num_labels: Number of labels (default: that of `labels`).
            labels: The label names, needed where labels are given by name.
            unknown: The unknown labels of each image, likewise.
            absent: The absent labels of each image, likewise.

        Raises:
            LabelError: A label is not one of `labels`, or an image has a text instead of a list.

        Examples:
            >>> Targets.from_lists([["cat"], []], labels=["dog", "cat"]).dense()[0].tolist()
            [[0.0, 1.0], [0.0, 0.0]]
        """
        space = labels if isinstance(labels, LabelSpace) else LabelSpace(labels)
        width = len(space) if num_labels is None else num_labels

        def matrix(rows: Sequence[Sequence[int]] | Sequence[Sequence[str]]) -> csr_array:
            if any(isinstance(row, str) for row in rows):
                raise LabelError("the labels of each image must be a list, such as [['cat', 'dog'], []], got a string")
            lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
            flat = (space.index(each) if isinstance(each, str) else each for row in rows for each in row)
            columns = np.fromiter(flat, dtype=np.int32, count=int(lengths.sum()))
            return boolean_matrix(np.repeat(np.arange(len(rows)), lengths), columns, shape=(len(rows), width))

        return cls(
            matrix(present),
            unknown=None if unknown is None else matrix(unknown),
            absent=None if absent is None else matrix(absent),
        )

    @classmethod
    def from_dense(cls, values: ArrayLike) -> Targets:
        """Create targets from an array or tensor ``[N, L]``: 1 is present, 0 absent, -1 or NaN unknown.

        Raises:
            ConfigError: It is no matrix, or has another value.

        Examples:
            >>> Targets.from_dense([[1, 0], [0, -1]]).known.tolist()
            [2, 1]
        """
        matrix = np.asarray(values, dtype=np.float32)
        if matrix.ndim != 2:
            raise ConfigError(f"targets must be a matrix [images, labels], got the shape {list(matrix.shape)}")
        unknown = np.isnan(matrix) | (matrix == -1)
        wrong = matrix[~unknown & (matrix != 0) & (matrix != 1)]
        if len(wrong):
            raise ConfigError(f"targets must be 1 (present), 0 (absent), -1 or NaN (unknown), got {wrong[0]:g}")
        return cls(csr_array(matrix == 1), unknown=csr_array(unknown) if unknown.any() else None)

    def __repr__(self) -> str:
        rest = (
            "" if self._listed is None else f", {self._listed.nnz:,} {'absent' if self.unknown is None else 'unknown'}"
        )
        return f"Targets({self.shape[0]:,} images, {self.shape[1]:,} labels, {self.present.nnz:,} present{rest})"

    @property
    def _listed(self) -> csr_array | None:
        return self.unknown if self.absent is None else self.absent

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of images and labels."""
        return (int(self.present.shape[0]), int(self.present.shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, images: ArrayLike | slice) -> Targets:
        """Return the targets of some images, in the order given."""
        return self._map(lambda matrix: matrix[images])

    def of_labels(self, positions: ArrayLike) -> Targets:
        """Return the targets of some labels, in the order given."""
        return self._map(lambda matrix: matrix[:, positions])

    def _map(self, change: Callable[[csr_array], csr_array]) -> Targets:
        return Targets(
            change(self.present),
            unknown=None if self.unknown is None else change(self.unknown),
            absent=None if self.absent is None else change(self.absent),
        )

    def forget(self, images: NDArray[np.bool_]) -> Targets:
        """Return the targets with every label of some images unknown, unless present.

        Args:
            images: Whether to forget each image, ``[N]``.

        Examples:
            >>> Targets.from_lists([[0], []], num_labels=2).forget(np.array([False, True])).known.tolist()
            [1, 1]
        """
        if self.absent is not None or not images.any():
            return self  # what is not listed as absent is unknown already
        rows = np.repeat(np.flatnonzero(images), self.shape[1])
        columns = np.tile(np.arange(self.shape[1]), int(images.sum()))
        unknown = boolean_matrix(rows, columns, shape=self.shape)
        unknown = unknown if self.unknown is None else csr_array(unknown + self.unknown)
        return Targets(self.present, unknown=csr_array(unknown > self.present))

    def forget_absent(self) -> Targets:
        """Return the targets with every label unknown that is not present.

        Examples:
            >>> Targets.from_lists([[0], []], num_labels=2).forget_absent().known.tolist()
            [1, 0]
        """
        return Targets(self.present, absent=csr_array(self.shape, dtype=bool))

    def with_values(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> Targets:
        """Return the targets with some labels of some images changed.

        Args:
            rows: Positions of the images.
            columns: Positions of the labels, as many.
            values: 1 (present), 0 (absent) or -1 (unknown), as many.

        Examples:
            >>> Targets.from_lists([[0], [1]], num_labels=2).with_values([0, 0], [0, 1], [0, 1]).dense()[0].tolist()
            [[0.0, 1.0], [0.0, 1.0]]
        """
        rows, columns, values = (np.asarray(given, dtype=np.int64) for given in (rows, columns, values))
        touched = boolean_matrix(rows, columns, shape=self.shape)

        def changed(matrix: csr_array | None, value: int) -> csr_array:
            new = boolean_matrix(rows[values == value], columns[values == value], shape=self.shape)
            return new if matrix is None else csr_array(csr_array(matrix > touched) + new)

        present = changed(self.present, 1)
        if self.absent is not None:
            return Targets(present, absent=changed(self.absent, 0))
        lists_unknown = self.unknown is not None or bool((values == -1).any())
        return Targets(present, unknown=changed(self.unknown, -1) if lists_unknown else None)

    def dense(self, images: ArrayLike | slice = slice(None)) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return ``(values, known)`` of some images as arrays ``[n, L]``; unknown values are 0."""
        present = self.present[images].toarray()
        if self.absent is not None:
            known = present | self.absent[images].toarray()
        elif self.unknown is not None:
            known = ~self.unknown[images].toarray()
        else:
            known = np.ones_like(present)
        return present.astype(np.float32), known

    @property
    def positives(self) -> NDArray[np.int64]:
        """Number of images that have each label, ``[L]``."""
        return np.asarray(self.present.sum(axis=0), dtype=np.int64)

    @property
    def known(self) -> NDArray[np.int64]:
        """Number of images in which each label is known, ``[L]``."""
        if self.absent is not None:
            return self.positives + np.asarray(self.absent.sum(axis=0), dtype=np.int64)
        everything = np.full(self.shape[1], len(self), dtype=np.int64)
        return everything if self.unknown is None else everything - np.asarray(self.unknown.sum(axis=0), dtype=np.int64)

    @property
    def positive_unlabeled(self) -> bool:
        """True if labels are unknown and none is known to be absent, as in learning from positive and unlabeled data.

        Examples:
            >>> Targets.from_dense([[1, -1]]).positive_unlabeled, Targets.from_dense([[1, -1, 0]]).positive_unlabeled
            (True, False)
        """
        num_known, num_present = int(self.known.sum()), int(self.positives.sum())
        return num_known == num_present < math.prod(self.shape)

    @property
    def labels_per_image(self) -> NDArray[np.int64]:
        """Number of present labels of each image, ``[N]``."""
        return np.asarray(np.diff(self.present.indptr), dtype=np.int64)

    @classmethod
    def stack(cls, parts: Sequence[Targets]) -> Targets:
        """Concatenate targets of the same labels."""
        if any(part.absent is not None for part in parts):
            mixed = [part for part in parts if part.absent is None]
            if mixed:
                raise ConfigError("cannot stack targets that list unknown labels on targets that list absent ones")
            return cls(vstack([p.present for p in parts], "csr"), absent=vstack([p.absent for p in parts], "csr"))
        present = vstack([part.present for part in parts], "csr")
        if all(part.unknown is None for part in parts):
            return cls(present)
        unknown = [csr_array(part.shape, dtype=bool) if part.unknown is None else part.unknown for part in parts]
        return cls(present, unknown=vstack(unknown, "csr"))


def boolean_matrix(rows: ArrayLike, columns: ArrayLike, *, shape: tuple[int, int]) -> csr_array:
    """Return a sparse boolean matrix that is true at the given positions, which may repeat.

    Examples:
        >>> boolean_matrix([0, 0, 1], [2, 2, 0], shape=(2, 3)).toarray().astype(int).tolist()
        [[0, 0, 1], [1, 0, 0]]
    """
    rows = np.asarray(rows, dtype=np.int32)  # scipy preserves the integer width: half the memory
    columns = np.asarray(columns, dtype=np.int32)
    matrix = csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix
