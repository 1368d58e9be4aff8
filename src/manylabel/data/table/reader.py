"""Your own table: a CSV, TSV, Parquet or JSON Lines file with a column of pictures and the labels beside it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.label_list import read_label_list
from manylabel.data.layout import picture_folder
from manylabel.data.sources import Files
from manylabel.data.table.columns import find_image_column, find_split_column, find_tag_column, pick_column
from manylabel.data.table.file import read_table
from manylabel.data.table.labels import read_joined_tags, read_label_columns
from manylabel.errors import DataError, list_choices
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = ["table"]


def table(
    path: str | Path,
    *,
    images: str | Path | None = None,
    split: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    separator: str | None = None,
    labels: Sequence[str] | str | Path | None = None,
) -> ImageDataset:
    r"""Read pictures and labels from a table.

    The labels are either tags joined in one column (a picture lacks every tag that is not listed), or one column for
    each label with 1 (present), 0 (absent), and blank or -1 (unknown). A picture in several rows counts once: tags add
    up, and columns fill each other's blanks.

    Args:
        path: A CSV, TSV, Parquet or JSON Lines file; what stands between the columns of a text is found out.
        images: The folder that the pictures' names are relative to, itself relative to where you are or to the table;
            by default the table's own.
        split: Only the pictures of this split.
        image_column: The column of pictures; by default the one called image, path, file_name or the like, else the
            only one whose values look like names of pictures.
        label_column: The column of tags; by default the one called labels, tags or the like, the only one of lists,
            or the only one left. Where there is none of these, every other column is a label.
        split_column: The column that names each picture's split; by default the one called split, if there is one.
            A picture with a blank there is in no split.
        separator: What stands between tags; by default the first of ``|``, ``;`` and ``,`` that occurs, and a space
            only where that makes no more different tags than there are different cells; ``""`` makes each cell one tag.
        labels: The labels and their order (names, names joined by ``|``, or a file with one in each line); other tags
            or columns are left out. By default all tags, sorted, or all columns, in their order. If all of them are
            columns, these are read, whatever other columns there are.

    Returns:
        The pictures in the order of the table, with a split for each name in the split column.

    Raises:
        DataError: The table, a column or a value is not as it should be; the message says which and what there is.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("image,cat,dog\na.jpg,1,0\nb.jpg,,1\n")
        >>> dataset = table(file)
        >>> dataset.labels.names, dataset.targets.dense()[1].tolist()
        (('cat', 'dog'), [[True, True], [False, True]])
    """
    path = Path(path)
    frame = read_table(path)
    image_column = find_image_column(frame, image_column)
    split_column = find_split_column(frame, split_column)
    names = _picture_names(frame[image_column])
    first_rows, pictures = _number_pictures(names)
    targets, space = _read_labels(
        frame.drop([column for column in (image_column, split_column) if column is not None]),
        names,
        pictures,
        label_column=label_column,
        separator=separator,
        labels=None if labels is None else read_label_list(labels, folder=path.parent),
    )
    dataset = ImageDataset(
        Files(path.parent if images is None else picture_folder(images, beside=path.parent), names[first_rows]),
        targets,
        space,
        name=path.stem,
        splits={} if split_column is None else _splits(frame[split_column], names, pictures),
    )
    return dataset if split is None else dataset.split(split)


def _picture_names(column: pl.Series) -> pl.Series:
    if column.dtype != pl.String:
        raise DataError(
            f"column {column.name!r} should name pictures but holds {column.dtype}; give image_column=NAME of a column "
            "of file names (pictures inside a Parquet file: see the reader of Hugging Face datasets)"
        )
    names = column.str.strip_chars()
    blank = names.is_null() | (names == "")
    if blank.any():
        raise DataError(f"column {column.name!r} names no picture in row {(blank.arg_max() or 0) + 1}; fill or drop it")
    return names


def _number_pictures(names: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row in which each picture comes first ``[N]``, and the picture of each row ``[R]``."""
    rows = pl.DataFrame({"name": names}).with_row_index("row")
    firsts = rows.unique("name", keep="first", maintain_order=True).with_row_index("picture")
    numbered = rows.join(firsts.select("name", "picture"), on="name", how="left", maintain_order="left")
    return firsts["row"].to_numpy().astype(np.int64), numbered["picture"].to_numpy().astype(np.int64)


def _read_labels(
    frame: pl.DataFrame,
    names: pl.Series,
    pictures: NDArray[np.int64],
    *,
    label_column: str | None,
    separator: str | None,
    labels: Sequence[str] | None,
) -> tuple[Targets, LabelSpace]:
    if frame.width == 0:
        raise DataError("the table has no column of labels beside the pictures; for pictures alone use files:PATH")
    are_columns = label_column is None and labels is not None and set(labels) <= set(frame.columns)
    tags = None if are_columns else find_tag_column(frame, label_column)
    if tags is not None:
        return read_joined_tags(frame[tags], pictures, separator=separator, labels=labels)
    if separator is not None:
        choices = list_choices("", frame.columns)
        raise DataError(f"separator={separator!r} needs a column of tags; give label_column=NAME, {choices}")
    for label in labels or []:
        pick_column(frame, label, "labels")
    return read_label_columns(frame if labels is None else frame.select(labels), names, pictures)


def _splits(column: pl.Series, names: pl.Series, pictures: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the pictures of each split; a picture may be in one only, or the splits would leak."""
    rows = pl.DataFrame({"split": column.cast(pl.String).str.strip_chars(), "name": names, "picture": pictures})
    members = rows.filter(pl.col("split") != "").unique(["split", "picture"], maintain_order=True)
    doubled = members.filter(pl.col("picture").is_duplicated())
    if doubled.height:
        name = doubled["name"][0]
        where = " and ".join(map(repr, doubled.filter(pl.col("name") == name)["split"]))
        raise DataError(f"picture {name!r} is in the splits {where}; leave it in one, or the splits leak")
    groups = members.sort("picture").group_by("split", maintain_order=True).agg("picture")
    return {name: np.asarray(chosen, dtype=np.int64) for name, chosen in groups.iter_rows()}
