"""Hugging Face datasets, from the hub or from disk; images stay encoded until accessed.

Needs the extra ``huggingface``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import choose_splits, existing
from manylabel.data.sources import LazyBytes
from manylabel.errors import DataError, list_choices
from manylabel.system import require
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace


def hugging_face(
    name_or_path: str | Path, *, split: str | None = None, image: str = "image", label: str | None = None
) -> ImageDataset:
    """Read a Hugging Face dataset.

    Args:
        name_or_path: A name on the hub, a folder written by ``save_to_disk``, or a folder of data files.
        split: Name of the split (default: all).
        image: Column of images.
        label: Column of labels: a ClassLabel (single-label, -1 for unknown), a list of ClassLabels, or a list of
            strings (default: the only such column).

    Returns:
        The dataset; images are named by split and position.

    Raises:
        DataError: The dataset, split or column is missing or of another type.
        MissingExtraError: The package ``datasets`` is not installed.

    Examples:
        >>> import datasets, io, tempfile
        >>> from PIL import Image
        >>> buffer = io.BytesIO()
        >>> Image.new("RGB", (8, 8)).save(buffer, "png")
        >>> rows = {"image": [{"bytes": buffer.getvalue(), "path": None}], "tags": [["cat", "sofa"]]}
        >>> folder = tempfile.mkdtemp()
        >>> datasets.disable_progress_bars()
        >>> datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image()).save_to_disk(folder)
        >>> hugging_face(folder).labels.names
        ('cat', 'sofa')
    """
    tables = _open(name_or_path)
    wanted = choose_splits(tables, split, of=name_or_path)
    features = next(iter(tables.values())).features
    _check_images(features, image)
    column = _find_labels(features, label)
    labels = LabelSpace(_label_names(tables, column))
    parts = {name: _read(table, name, image, column, labels) for name, table in wanted.items()}
    return ImageDataset.join(parts, name=" ".join(filter(None, (Path(name_or_path).name, split))))


def _open(name_or_path: str | Path) -> dict[str, Any]:
    """Return the table of each split; a table saved alone is called ``train``, as on the hub."""
    datasets = require("datasets", extra="huggingface")
    path = Path(name_or_path)
    if path.is_absolute() or str(name_or_path).startswith(".") or len(path.parts) > 2:
        existing(path)  # no name on the hub looks like this
    saved = (path / "dataset_dict.json").exists() or (path / "state.json").exists()
    try:
        opened = datasets.load_from_disk(str(path)) if saved else datasets.load_dataset(str(name_or_path))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"cannot open dataset {str(name_or_path)!r}: {error}; pass a hub name or a folder") from error
    return dict(opened) if isinstance(opened, Mapping) else {str(opened.split or "train"): opened}


def _check_images(features: Mapping[str, Any], image: str) -> None:
    """Refuse a column that does not hold images."""
    kind = require("datasets", extra="huggingface").Image
    if not isinstance(features.get(image), kind):
        there = [name for name, feature in features.items() if isinstance(feature, kind)]
        raise DataError(f"no image column {image!r}; set image=COLUMN; {list_choices(image, there)}")


def _content(feature: Any) -> tuple[Any, bool]:  # noqa: ANN401 - the package is not typed
    """Return the feature of a column or of its list items, and whether it is a list."""
    inside = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
    return inside, inside is not feature


def _find_labels(features: Mapping[str, Any], label: str | None) -> str:
    """Return the column of labels: the one given, or the only candidate."""
    there = []
    for name, feature in features.items():
        content, is_list = _content(feature)
        if hasattr(content, "names") or (is_list and getattr(content, "dtype", None) == "string"):
            there.append(name)
    if label is None and len(there) == 1:
        return there[0]
    if label in there:
        return str(label)
    given = "several columns could be the labels" if label is None and there else f"no label column {label!r}"
    kinds = "a ClassLabel, a list of ClassLabels or a list of strings"
    raise DataError(f"{given}; set label=COLUMN to {kinds}; {list_choices(label or '', there)}")


def _label_names(tables: Mapping[str, Any], column: str) -> list[str]:
    """Return the names of the classes or, for strings, all strings of all splits."""
    content, _ = _content(next(iter(tables.values())).features[column])
    if hasattr(content, "names"):
        return list(content.names)
    texts = [_column(table, column).explode().drop_nulls().unique() for table in tables.values()]
    return sorted({text for series in texts for text in series})


def _column(table: Any, column: str) -> pl.Series:  # noqa: ANN401 - the package is not typed
    return pl.DataFrame(table.select_columns([column]).with_format("arrow")[:])[column]


def _read(table: Any, split: str, image: str, column: str, labels: LabelSpace) -> ImageDataset:  # noqa: ANN401 - the package is not typed
    """Read one split."""
    datasets = require("datasets", extra="huggingface")
    _, is_list = _content(table.features[column])
    encoded = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    return ImageDataset(
        images=LazyBytes([f"{split}/{row}" for row in range(len(table))], load=_EncodedColumn(encoded, image)),
        targets=_targets(_column(table, column), labels),
        labels=labels,
        single_label=not is_list,
    )


def _targets(values: pl.Series, labels: LabelSpace) -> Targets:
    """Return the targets of a column of classes, lists of classes or lists of strings; null is unknown."""
    is_list = values.dtype == pl.List
    lengths = values.list.len().fill_null(0) if is_list else pl.repeat(1, len(values), eager=True)
    rows = np.repeat(np.arange(len(values)), lengths.to_numpy())
    flat = values.drop_nulls().explode() if is_list else values
    if flat.dtype == pl.String:
        flat = flat.cast(pl.Enum(labels.names)).to_physical()
    classes = flat.cast(pl.Int64).fill_null(-1).to_numpy()
    present = boolean_matrix(rows[classes >= 0], classes[classes >= 0], shape=(len(values), len(labels)))
    return Targets(present).forget(values.is_null().to_numpy() if is_list else classes < 0)


@dataclass(frozen=True)
class _EncodedColumn:
    """Loader of the encoded image of a row; a table on disk is pickled as its path."""

    table: Any
    column: str

    def __call__(self, position: int) -> bytes:
        image = self.table[position][self.column]
        return bytes(image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes())
