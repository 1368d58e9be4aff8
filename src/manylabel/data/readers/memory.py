"""Datasets from Python objects: lists of paths and tags, data frames, arrays and tensors."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.folder import files
from manylabel.data.readers.table import table
from manylabel.data.sources import Files, ImageSource, LazyBytes
from manylabel.errors import DataError
from manylabel.targets import Targets
from manylabel.types import LabelSpace


def open_objects(data: Any) -> tuple[Callable[..., ImageDataset], object]:  # noqa: ANN401 - anything a user may have
    """Return the reader of some Python objects, and its first argument.

    Raises:
        DataError: They are none of the supported forms; the message lists these.

    Examples:
        >>> open_objects([("a.jpg", ["cat", "dog"])])[1].rows()
        [('a.jpg', ['cat', 'dog'])]
    """
    if isinstance(data, pl.LazyFrame):
        return table, data.collect()
    if isinstance(data, pl.DataFrame):
        return table, data
    if hasattr(data, "columns") and hasattr(data, "itertuples"):  # pandas, which need not be installed
        if twice := sorted({str(name) for name in data.columns[data.columns.duplicated()]}):
            raise DataError(f"the DataFrame has several columns called {', '.join(twice)}; rename or drop them")
        return table, pl.DataFrame({str(name): _cells(data[name]) for name in data.columns}, strict=False)
    if isinstance(data, tuple) and len(data) == 2 and np.ndim(data[1]) == 2 and not isinstance(data[1], (list, tuple)):
        return arrays, data
    items = list(data) if isinstance(data, Iterable) and not isinstance(data, Mapping) else []
    if items and all(isinstance(item, (str, Path)) for item in items):
        return files, items
    if items and all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
        return table, pl.DataFrame({"image": [str(path) for path, _ in items], "tags": _tag_column(items)})
    given = "an empty list" if isinstance(data, list) and not data else f"{type(data).__name__} {str(data)[:60]!r}"
    raise DataError(
        f"cannot read a dataset from {given}; pass a path, a spec such as "
        "csv:labels.csv, a list of (path, tags), a DataFrame, a pair (images, targets) or an ImageDataset"
    )


def _tag_column(items: Sequence[tuple[object, Any]]) -> pl.Series:
    """Return tags as lists; or unchanged if all are strings, such as ``cat|dog``, which are split as in a table."""
    tags = [tags for _, tags in items]
    if all(each is None or isinstance(each, str) for each in tags):
        return pl.Series(tags, dtype=pl.String)
    lists = [list(each) if isinstance(each, Iterable) and not isinstance(each, str) else [each] for each in tags]
    for (path, given), names in zip(items, lists, strict=True):
        if given is not None and not all(isinstance(name, str) for name in names):
            raise DataError(f"tags must be a list of names such as ['cat', 'dog'], got {given!r} for {str(path)!r}")
    return pl.Series([None if names == [None] else names for names in lists], dtype=pl.List(str))


def arrays(data: tuple[Any, ArrayLike], *, labels: Sequence[str] | None = None) -> ImageDataset:
    """Read images and dense targets from memory.

    Args:
        data: The images, as paths or as an array or tensor ``[N, 3, H, W]`` or ``[N, H, W, 3]`` of bytes (0 to 255)
            or floats (0 to 1); and the targets ``[N, L]``, 1 (present), 0 (absent), and -1 or NaN (unknown).
        labels: The label names (default: ``label 0``, ``label 1``, ...).

    Raises:
        DataError: The images have another form.

    Examples:
        >>> dataset = arrays((np.zeros((2, 3, 8, 8), dtype=np.uint8), np.array([[1, 0], [0, -1]])))
        >>> dataset.labels.names, len(dataset)
        (('label 0', 'label 1'), 2)
    """
    images, values = data
    targets = Targets.from_dense(values)
    names = [f"label {position}" for position in range(targets.shape[1])] if labels is None else labels
    source: ImageSource
    if hasattr(images, "shape") and len(images.shape) > 1:
        pixels = np.asarray(images)
        if pixels.ndim != 4 or 3 not in (pixels.shape[1], pixels.shape[3]):
            raise DataError(f"images must be [N, 3, H, W] or [N, H, W, 3], got {list(images.shape)}")
        pixels = np.moveaxis(pixels, 1, 3) if pixels.shape[1] == 3 else pixels
        source = LazyBytes([str(number) for number in range(len(pixels))], load=_Encoded(pixels))
    else:
        source = Files(Path(), [str(path) for path in images])
    return ImageDataset(source, targets, LabelSpace(names), name="arrays")


@dataclass(frozen=True)
class _Encoded:
    """Encodes the image at a position as PNG."""

    pixels: NDArray[Any]  # [N, H, W, 3]

    def __call__(self, position: int) -> bytes:
        image = self.pixels[position]
        if image.dtype != np.uint8:
            image = (255 * np.clip(image, 0, 1) + 0.5).astype(np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(image).save(encoded, "PNG", compress_level=1)
        return encoded.getvalue()


def _cells(column: Any) -> list[Any]:  # noqa: ANN401 - a Series of pandas, which need not be installed
    """Return the values of a column of pandas in the types of polars; missing ones are None."""
    values = column.astype(object).where(column.notna(), None)
    return [
        str(value) if isinstance(value, Path) else list(value) if isinstance(value, (tuple, set, np.ndarray)) else value
        for value in values
    ]
