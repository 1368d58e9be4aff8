"""Labels of a table in its two layouts: tags in one column, or one column per label.

Letters in shape comments: N images, R rows of the table, L labels.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.errors import DataError
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

PRESENT, ABSENT, UNKNOWN = 1, 0, -1
FLAGS = {
    **dict.fromkeys(("1", "1.0", "true"), PRESENT),
    **dict.fromkeys(("0", "0.0", "false"), ABSENT),
    **dict.fromkeys(("-1", "-1.0", "", "nan"), UNKNOWN),
}
SEPARATORS = ("|", ";", ",")


def detect_separator(cells: pl.Series) -> str | None:
    """Return the separator of the tags in a column, or None if each cell is one tag.

    It is the first of ``|``, ``;`` and ``,`` that any cell contains, else a space, but only if splitting at spaces
    makes no more distinct tags than there are distinct cells: ``haze primary``, ``clear primary``, ``clear`` are
    split, ``traffic light``, ``fire hydrant`` are not.

    Examples:
        >>> detect_separator(pl.Series(["cat;dog, small", "cat"]))
        ';'
        >>> detect_separator(pl.Series(["traffic light", "fire hydrant"])) is None
        True
    """
    cells = cells.drop_nulls().str.strip_chars().unique()
    for separator in SEPARATORS:
        if cells.str.contains(separator, literal=True).any():
            return separator
    tags = cells.str.split(" ").explode().unique()
    return " " if cells.str.contains(" ", literal=True).any() and len(tags) <= len(cells) else None


def split_tags(cells: pl.Series, separator: str | None = None) -> pl.Series:
    """Return the list of tags in each row, stripped; some may be blank or null.

    Args:
        cells: The tags of each row ``[R]``: joined in a text, or a list.
        separator: Separator of tags (default: detected).

    Raises:
        DataError: The cells hold something else.

    Examples:
        >>> split_tags(pl.Series(["dog| cat", "", None])).to_list()
        [['dog', 'cat'], [''], None]
    """
    if isinstance(cells.dtype, pl.List):
        if cells.dtype.inner.is_nested():
            raise DataError(f"column {cells.name!r} holds {cells.dtype}; tags must be strings or lists of strings")
        return cells.cast(pl.List(pl.String))
    texts = cells.cast(pl.String)
    separator = detect_separator(texts) if separator is None else separator
    lists = texts.str.split(separator) if separator else texts.reshape((-1, 1)).arr.to_list()
    return lists.list.eval(pl.element().str.strip_chars())


def read_tags(
    cells: pl.Series, images: NDArray[np.int64], *, labels: Sequence[str] | None
) -> tuple[Targets, LabelSpace, NDArray[np.bool_]]:
    """Read lists of tags; rows of one image add up.

    Args:
        cells: The tags of each row ``[R]``.
        images: The image of each row ``[R]``, numbered from 0.
        labels: The labels and their order; other tags are ignored (default: all tags, sorted).

    Returns:
        The targets, in which everything not listed is absent; the labels; and whether each image is without tags.

    Raises:
        DataError: No row has a tag.

    Examples:
        >>> targets, space, _ = read_tags(pl.Series([["dog", "cat"], []]), np.array([0, 1]), labels=None)
        >>> space.names, targets.present.toarray().tolist()
        (('cat', 'dog'), [[True, True], [False, False]])
    """
    rows = pl.DataFrame({"image": images, "tag": cells}).explode("tag").filter(pl.col("tag") != "")
    names = rows["tag"].unique().sort().to_list() if labels is None else list(labels)
    if not names:
        raise DataError(f"column {cells.name!r} has no tag in any row; is it the column of labels?")
    space = LabelSpace(names)
    positions = pl.DataFrame({"tag": space.names, "label": np.arange(len(space))})
    known = rows.join(positions, on="tag", how="inner")
    shape = (int(images.max()) + 1, len(space))
    is_blank = ~np.isin(np.arange(shape[0]), rows["image"].to_numpy())
    return Targets(boolean_matrix(known["image"].to_numpy(), known["label"].to_numpy(), shape=shape)), space, is_blank


def describe_rows(cells: pl.Series, names: pl.Series, images: NDArray[np.int64]) -> list[str]:
    """Return a sentence about images in several rows, and one about those whose rows have different tags.

    Args:
        cells: The tags of each row ``[R]``.
        names: The image's name in each row ``[R]``.
        images: The image of each row ``[R]``, numbered from 0.

    Examples:
        >>> describe_rows(pl.Series([["cat"], ["dog"]]), pl.Series(["a.jpg", "a.jpg"]), np.array([0, 0]))[0]
        "1 image is in several rows, which were merged: 'a.jpg'"
    """
    rows = pl.DataFrame({"image": images, "name": names, "tags": cells}).filter(pl.col("image").is_duplicated())
    tags = [tuple(sorted(set(filter(None, cell or [])))) for cell in rows["tags"].to_list()]
    merged = (
        rows.with_columns(tags=pl.Series(list(map(repr, tags)), dtype=pl.String))
        .group_by("image", maintain_order=True)
        .agg(pl.first("name"), kinds=pl.n_unique("tags"))
    )
    odd = merged.filter(pl.col("kinds") > 1)
    return [
        f"{_images_are(found.height)} in several rows, which {what}: {', '.join(map(repr, found['name'].head(5)))}"
        f"{', ...' if found.height > 5 else ''}"
        for what, found in (("were merged", merged), ("have different tags (all were added)", odd))
        if found.height
    ]


def _images_are(count: int) -> str:
    return "1 image is" if count == 1 else f"{count:,} images are"


def are_flags(column: pl.Series) -> bool:
    """Return whether a column holds only 0, 1, -1, true, false and blanks.

    Examples:
        >>> are_flags(pl.Series(["1", "0.0", None])), are_flags(pl.Series(["cat"]))
        (True, False)
    """
    return (
        not isinstance(column.dtype, (pl.List, pl.Struct)) and _flags(column.to_frame()).to_series().null_count() == 0
    )


def read_label_columns(frame: pl.DataFrame, names: pl.Series, images: NDArray[np.int64]) -> tuple[Targets, LabelSpace]:
    """Read one column per label: 1 or true is present, 0 or false is absent, -1 or blank is unknown.

    Rows of one image fill each other's blanks; a 1 and a 0 for the same label are an error.

    Args:
        frame: The columns of labels, ``[R, L]``.
        names: The image's name in each row ``[R]``, for messages.
        images: The image of each row ``[R]``, numbered from 0.

    Returns:
        The targets and the labels.

    Raises:
        DataError: A value is invalid; the message gives column, row and value.

    Examples:
        >>> frame = pl.DataFrame({"cat": ["1", "0"], "dog": ["", "1"]})
        >>> targets, space = read_label_columns(frame, pl.Series(["a.jpg", "b.jpg"]), np.array([0, 1]))
        >>> targets.unknown.toarray().tolist()
        [[False, True], [False, False]]
    """
    flags = _flags(frame)
    _refuse_other_values(frame, flags, names)
    space = LabelSpace(frame.columns)
    values = flags.to_numpy()  # [R, L]
    shape = (int(images.max()) + 1, len(space))
    present, absent = (
        boolean_matrix(images[rows], columns, shape=shape)
        for rows, columns in (np.nonzero(values == PRESENT), np.nonzero(values == ABSENT))
    )
    both = present.multiply(absent).tocoo()
    if both.nnz:
        image, label = int(both.row[0]), space[int(both.col[0])]
        where = np.flatnonzero(images == image)
        raise DataError(
            f"image {names[int(where[0])]!r} has both 1 and 0 in column {label!r} "
            f"(rows {', '.join(str(row + 1) for row in where[:5])}); keep only the correct row"
        )
    if present.nnz + absent.nnz == shape[0] * shape[1]:
        return Targets(present), space
    rows, columns = np.nonzero(~(present + absent).toarray())
    return Targets(present, unknown=boolean_matrix(rows, columns, shape=shape)), space


def _flags(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert every value to a flag, anything else to null."""
    texts = pl.all().cast(pl.String).fill_null("").str.strip_chars().str.to_lowercase()
    return frame.select(texts.replace_strict(FLAGS, default=None, return_dtype=pl.Int8))


def _refuse_other_values(frame: pl.DataFrame, flags: pl.DataFrame, names: pl.Series) -> None:
    invalid = [name for name, count in zip(flags.columns, flags.null_count().row(0), strict=True) if count]
    if not invalid:
        return
    column, others = invalid[0], ", ".join(map(repr, invalid[1:6]))
    row = int(flags[column].is_null().arg_max() or 0)
    raise DataError(
        f"column {column!r} has {frame[column][row]!r} in row {row + 1} ({names[row]})"
        f"{f' (also invalid: {others})' if others else ''}; a label column holds 1, 0, and blank or -1 for unknown: "
        "list the label columns (labels=cat|dog), or set the column of tags (label_column=NAME)"
    )
