"""The dataset that every reader returns: images, sparse targets, label names and named splits.

Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor
from torch.utils.data import Dataset

from manylabel.data.sources import ImageSource, JoinedSource
from manylabel.errors import ConfigError, DataError, ImageError, list_choices
from manylabel.images import decode
from manylabel.page import Thumbnail, plural, some
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace, position_of

logger = logging.getLogger(__name__)

NUM_THUMBNAILS = 12  # in a notebook
MOST_NAMES = 8  # in a caption


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(Dataset[tuple[Any, Tensor]]):
    """Images with labels, decoded on access only; a torch `Dataset`.

    ``dataset[i]`` is the image and its targets ``[L]``: 1 (present), 0 (absent) or -1 (unknown). ``dataset[a:b]`` is a
    dataset. An unreadable image raises `ImageError`; `ImageLoader` skips it instead.

    Args:
        images: The encoded images.
        targets: Present, absent and unknown labels, ``[N, L]``.
        labels: The label names.
        name: Name of the dataset in reports.
        splits: Image positions of each named split that the reader found.
        areas: ``[N, L]``, the fraction of the image that a label's largest object covers, where the data provide it.
        single_label: Whether every image has exactly one label by construction, as softmax requires.
        incomplete: Whether a label that is not present may be missing from the tags; see `for_training`.
        transform: Applied to the decoded RGB image by ``dataset[i]`` (default: none).
        notes: Findings of the reader, one sentence each, for `check` to report.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> dataset = ImageDataset(
        ...     Files("photos", ["a.jpg", "b.jpg"]),
        ...     Targets.from_lists([["cat"], ["cat", "dog"]], labels=["cat", "dog"]),
        ...     LabelSpace(["cat", "dog"]),
        ...     name="pets",
        ...     splits={"train": np.array([0]), "val": np.array([1])},
        ... )
        >>> dataset
        ImageDataset('pets': 2 images, 2 labels, 1.50 per image; train 1, val 1)
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
    incomplete: bool = False
    transform: Callable[[Any], Any] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expected = (len(self.images), len(self.labels))
        for what, matrix in (("targets", self.targets), ("areas", self.areas)):
            if matrix is not None and matrix.shape != expected:
                raise ConfigError(f"{what} must be [images, labels] = {list(expected)}, got {list(matrix.shape)}")

    def __len__(self) -> int:
        return len(self.images)

    @overload
    def __getitem__(self, index: int) -> tuple[Any, Tensor]: ...

    @overload
    def __getitem__(self, index: slice) -> ImageDataset: ...

    def __getitem__(self, index: int | slice) -> tuple[Any, Tensor] | ImageDataset:
        if isinstance(index, slice):
            return self.subset(np.arange(len(self))[index])
        position = position_of(index, len(self))
        at_least = getattr(self.transform, "at_least", None)
        image = decode(self.images[position], name=self.images.name(position), at_least=at_least)
        values, known = (torch.from_numpy(array[0]) for array in self.targets.dense([position]))
        return image if self.transform is None else self.transform(image), torch.where(known, values, -1.0)

    def with_transform(self, transform: Callable[[Any], Any] | None) -> ImageDataset:
        """Return the dataset with another transform of ``dataset[i]``.

        Args:
            transform: Turns an RGB image into anything, such as a torchvision transform or `eval_transform`.

        Examples:
            >>> from manylabel.data import eval_transform, scenes
            >>> from manylabel.types import InputSpec
            >>> dataset = scenes(4).with_transform(eval_transform(InputSpec(size=(32, 32))))
            >>> images, targets = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
            >>> images.shape
            torch.Size([4, 3, 32, 32])
        """
        return replace(self, transform=transform)

    def __repr__(self) -> str:
        return f"ImageDataset({self.name!r}: {self._summary()})"

    def _summary(self) -> str:
        splits = ", ".join(f"{name} {len(members):,}" for name, members in self.splits.items())
        mean = f", {self.targets.present.nnz / len(self):.2f} per image" if len(self) and len(self.labels) else ""
        counts = f"{plural(len(self), 'image')}, {plural(len(self.labels), 'label')}"
        return f"{counts}{mean}" + (f"; {splits}" if splits else "")

    def labels_of(self, index: int) -> list[str]:
        """Return the names of an image's present labels."""
        position = position_of(index, len(self))
        columns = self.targets.present.indices[slice(*self.targets.present.indptr[[position, position + 1]])]
        return [self.labels[int(column)] for column in columns]

    def describe(self, index: int) -> str:
        """Return the display names of an image's present labels; of many, the first."""
        return some(list(map(self.labels.display, self.labels_of(index))), at_most=MOST_NAMES)

    def _repr_html_(self) -> str:
        chosen = np.unique(np.linspace(0, len(self) - 1, min(NUM_THUMBNAILS, len(self))).astype(int)).tolist()
        style = "display:inline-block;margin:4px;max-width:224px;vertical-align:top;font-size:12px"
        figures = "".join(self.thumbnail(index).html(style=style) for index in chosen)
        return f"<p><b>{escape(self.name)}</b>: {escape(self._summary())}</p><div>{figures}</div>"

    def thumbnail(self, index: int, *, caption: str | None = None) -> Thumbnail:
        """Return a thumbnail of an image; an empty one if it cannot be read.

        Args:
            index: Position of the image.
            caption: Caption (default: its labels).
        """
        caption = self.describe(index) if caption is None else caption
        try:
            return Thumbnail.of(decode(self.images[index], at_least=(112, 112)), caption)
        except (ImageError, OSError):
            return Thumbnail(b"", caption)

    def for_training(self) -> ImageDataset:
        """Return the dataset as a training loss should see it: if tags are incomplete, absent labels are unknown.

        Examples:
            >>> from manylabel.data import load
            >>> data = load([("a.jpg", ["cat"]), ("b.jpg", ["dog"])], images=".", tags="incomplete")
            >>> data.targets.known.tolist(), data.for_training().targets.known.tolist()
            ([2, 2], [1, 1])
        """
        return replace(self, targets=self.targets.forget_absent()) if self.incomplete else self

    def subset(self, indices: ArrayLike) -> ImageDataset:
        """Return some of the images, in the order given; splits are reduced accordingly.

        Args:
            indices: Positions, or a boolean mask over the images.

        Raises:
            IndexError: There is no such image, or the mask is not as long as the dataset.
        """
        chosen = np.asarray(indices)
        if chosen.dtype == bool and len(chosen) != len(self):
            raise IndexError(f"a mask must have one value for each of {len(self)} images, got {len(chosen)}")
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        for beyond in chosen[(chosen < -len(self)) | (chosen >= len(self))]:
            position_of(int(beyond), len(self))
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
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
        labels = self.labels.subset(names)
        return replace(self._with_labels(labels, {name: name for name in labels}), single_label=False)

    def _with_labels(self, labels: LabelSpace, new_names: Mapping[str, str]) -> ImageDataset:
        """Return the same images with other labels; those of the same new name are merged, those without one dropped.

        A merged label is present where any of them is, unknown where none is present and one unknown.
        """
        columns = np.array([labels.index(new_names[name]) if name in new_names else -1 for name in self.labels])
        kept = np.flatnonzero(columns >= 0)
        change = boolean_matrix(kept, columns[kept], shape=(len(self.labels), len(labels)))
        present = csr_array(self.targets.present @ change)
        present.sort_indices()
        listed = {"unknown": self.targets.unknown, "absent": self.targets.absent}
        rest = {what: csr_array((old @ change) > present) for what, old in listed.items() if old is not None}
        areas = None
        if self.areas is not None:
            objects = self.areas[:, kept].tocoo()
            areas = largest_areas(objects.row, columns[kept][objects.col], objects.data, present=present)
        return replace(self, labels=labels, targets=Targets(present, **rest), areas=areas)

    def align_labels(self, labels: LabelSpace) -> ImageDataset:
        """Return the same images with the labels of another dataset, such as the training set.

        A label that only the other dataset has is absent here, or unknown if this dataset has unknown labels; one that
        only this dataset has is dropped. Both are logged.

        Raises:
            DataError: There is no label in common.

        Examples:
            >>> from manylabel.data import scenes
            >>> scenes(2).select_labels(["cat", "sun"]).align_labels(LabelSpace(["boat", "cat"])).targets.shape
            (2, 2)
        """
        missing = [name for name in labels if name not in self.labels]
        extra = [name for name in self.labels if name not in labels]
        if len(missing) == len(labels):
            raise DataError(f"{self.name} has none of the {len(labels)} labels; {list_choices('', self.labels)}")
        part = self._with_labels(labels, {name: name for name in self.labels if name in labels})
        targets = part.targets
        is_partial = targets.unknown is not None or targets.absent is not None
        if targets.unknown is not None:
            is_missing = np.isin(np.arange(len(labels)), list(map(labels.index, missing)))
            unknown = csr_array(targets.unknown + csr_array(np.tile(is_missing, (len(self), 1))))
            targets = Targets(targets.present, unknown=unknown)
        for what, names in (
            (f"lacks {plural(len(missing), 'label')}, {'unknown' if is_partial else 'absent'} in it", missing),
            (f"has {plural(len(extra), 'other label')}, ignored here", extra),
        ):
            if names:
                logger.warning("%s %s: %s", self.name, what, some(names, at_most=10))
        return replace(part, targets=targets, single_label=False)

    def rename_labels(self, names: Mapping[str, str]) -> ImageDataset:
        """Return the dataset with other label names; labels that get the same name are merged.

        A merged label is present where any of them is, unknown where none is present and one unknown.

        Args:
            names: The new name of some labels.

        Raises:
            LabelError: There is no label of an old name.

        Examples:
            >>> from manylabel.data import scenes
            >>> scenes(2).rename_labels({"apple": "fruit", "ball": "toy", "balloon": "toy"}).labels.names[:3]
            ('fruit', 'toy', 'bird')
        """
        for name in names:
            self.labels.index(name)
        new = {name: names.get(name, name) for name in self.labels}
        display, descriptions = (
            {name: text for name, text in texts.items() if name not in names}
            for texts in (self.labels.display_names, self.labels.descriptions)
        )
        labels = LabelSpace(list(dict.fromkeys(new.values())), display_names=display, descriptions=descriptions)
        return self._with_labels(labels, new)

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
        if len(datasets) == 1:
            return replace(first, name=name, splits={split: np.arange(len(first)) for split in parts})
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
            incomplete=any(part.incomplete for part in datasets),
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
