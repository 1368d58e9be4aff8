"""Tables (CSV, TSV, Parquet, JSON Lines or a DataFrame) with a column of images, and labels as tags or columns."""

import csv
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import (
    Blank,
    check_choices,
    existing,
    find_images,
    image_folder,
    parser_advice,
    read_label_list,
    treat_blanks,
)
from manylabel.data.readers.table_labels import are_flags, describe_rows, read_label_columns, read_tags, split_tags
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
from manylabel.images import IMAGE_ENDINGS
from manylabel.label_text import PROTECTED, TAG_COLUMNS, split_labels, unprotect_cell

__all__ = [
    "find_image_column",
    "read_table",
    "table",
]


def table(
    path: str | Path | pl.DataFrame,
    *,
    images: str | Path | None = None,
    split: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    separator: str | None = None,
    labels: Sequence[str] | str | Path | None = None,
    blank: Blank = "negative",
) -> ImageDataset:
    r"""Read images and labels from a table.

    The labels are either tags in one column (a tag that is not listed is absent), or one column per label with 1
    (present), 0 (absent), and blank or -1 (unknown). Rows of one image are merged: tags are combined, and blanks are
    filled from other rows.

    Args:
        path: A CSV, TSV, Parquet or JSON Lines file; or a polars DataFrame. The delimiter is detected.
        images: Base folder of the image names, relative to the current folder or to the table. Default: the first
            folder that has the images, of the table's own, its subfolders such as ``images`` and ``photos``, its parent
            and the current one.
        split: Name of the split (default: all).
        image_column: Column of images (default: a name such as image, path or file_name, else the only column whose
            values look like image files).
        label_column: Column of tags (default: a name such as labels or tags, else the only column of lists, else
            the only one left). Without such a column, every other column is a label.
        split_column: Column of splits (default: split, if there is one). An image with a blank cell is in no split.
        separator: Separator of tags (default: the first of ``|``, ``;`` and ``,`` that occurs, and a space only if
            that makes no more distinct tags than there are distinct cells); ``""`` makes each cell one tag.
        labels: The labels and their order (names, names joined by ``|``, or a file with one per line); other tags or
            columns are ignored. Default: all tags, sorted, or all columns, in order.
        blank: Meaning of a blank cell of tags: all labels are absent (``negative``) or unknown (``unknown``), or the
            image is dropped (``drop``).

    Returns:
        The images in the order of the table, with a split for each name in the split column.

    Raises:
        DataError: The file, a column or a value is missing or invalid; the message lists the alternatives.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("image,cat,dog\na.jpg,1,0\nb.jpg,,1\n")
        >>> dataset = table(file, images=".")
        >>> dataset.labels.names, dataset.targets.dense()[1].tolist()
        (('cat', 'dog'), [[True, True], [False, True]])
    """
    check_choices(blank=(blank, Blank))
    frame, base, name = (path, Path(), "table") if isinstance(path, pl.DataFrame) else _open(Path(path))
    if frame.is_empty():
        raise DataError(f"{'the table' if isinstance(path, pl.DataFrame) else path} has no rows; add some")
    image_column = find_image_column(frame, image_column)
    split_column = find_split_column(frame, split_column)
    names = _image_names(frame[image_column])
    first_rows, positions = _number_images(names)
    given = None if labels is None else read_label_list(labels, folder=base)
    rest = frame.drop([column for column in (image_column, split_column) if column is not None])
    tags = _find_tags(rest, label_column, separator, given)
    notes, is_blank = list[str](), np.zeros(len(first_rows), dtype=bool)
    if tags is None:
        targets, space = read_label_columns(rest if given is None else rest.select(given), names, positions)
    else:
        cells = split_tags(rest[tags], separator)
        targets, space, is_blank = read_tags(cells, positions, labels=given)
        notes += describe_rows(cells, names, positions)
    root = find_images(names, beside=base) if images is None else image_folder(images, beside=base)
    dataset = ImageDataset(
        Files(root, names[first_rows]),
        targets,
        space,
        name=name,
        splits={} if split_column is None else _splits(frame[split_column], names, positions),
        notes=tuple(notes),
    )
    dataset = treat_blanks(dataset, is_blank, blank)
    return dataset if split is None else dataset.split(split)


def _open(path: Path) -> tuple[pl.DataFrame, Path, str]:
    """Return a table, its folder and its name."""
    return read_table(path), path.parent, path.name


def _image_names(column: pl.Series) -> pl.Series:
    if column.dtype != pl.String:
        raise DataError(
            f"column {column.name!r} should name images but holds {column.dtype}; give image_column=NAME of a column "
            "of file names (images inside a Parquet file: see the reader of Hugging Face datasets)"
        )
    names = column.str.strip_chars()
    blank = names.is_null() | (names == "")
    if blank.any():
        raise DataError(f"column {column.name!r} names no image in row {(blank.arg_max() or 0) + 1}; fill or drop it")
    return names


def _number_images(names: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each image ``[N]``, and the image of each row ``[R]``."""
    rows = pl.DataFrame({"name": names}).with_row_index("row")
    firsts = rows.unique("name", keep="first", maintain_order=True).with_row_index("image")
    numbered = rows.join(firsts.select("name", "image"), on="name", how="left", maintain_order="left")
    return firsts["row"].to_numpy().astype(np.int64), numbered["image"].to_numpy().astype(np.int64)


def _find_tags(
    frame: pl.DataFrame, label_column: str | None, separator: str | None, labels: Sequence[str] | None
) -> str | None:
    """Return the column of tags; None if there is a column for each label, which is then checked."""
    if frame.width == 0:
        raise DataError("the table has no column of labels, only images; to read images alone, use files:PATH")
    are_columns = label_column is None and labels is not None and set(labels) <= set(frame.columns)
    tags = None if are_columns else find_tag_column(frame, label_column)
    if tags is None and separator is not None:
        choices = list_choices("", frame.columns)
        raise DataError(f"separator={separator!r} needs a column of tags; give label_column=NAME, {choices}")
    for label in (labels or []) if tags is None else []:
        pick_column(frame, label, "labels")
    return tags


def _splits(column: pl.Series, names: pl.Series, images: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the images of each split; an image in two splits, a leak, is an error."""
    rows = pl.DataFrame({"split": column.cast(pl.String).str.strip_chars(), "name": names, "image": images})
    members = rows.filter(pl.col("split") != "").unique(["split", "image"], maintain_order=True)
    doubled = members.filter(pl.col("image").is_duplicated())
    if doubled.height:
        name = doubled["name"][0]
        where = " and ".join(map(repr, doubled.filter(pl.col("name") == name)["split"]))
        raise DataError(f"image {name!r} is in the splits {where}; keep it in one, or the splits leak")
    groups = members.sort("image").group_by("split", maintain_order=True).agg("image")
    return {name: np.asarray(chosen, dtype=np.int64) for name, chosen in groups.iter_rows()}


TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt")
PARQUET_ENDINGS = (".parquet", ".pq")
JSON_LINES_ENDINGS = (".jsonl", ".ndjson")
DELIMITERS = (",", ";", "\t")
SAMPLE_BYTES = 1 << 20  # enough for a header line of some ten thousand columns


def read_table(path: str | Path) -> pl.DataFrame:
    r"""Read a table by its file extension; the delimiter of a text file is detected from its header line.

    The columns of a text table remain text: ``007`` stays ``007``. Byte-order marks, Windows line ends, quoted fields
    with delimiters and line breaks, and empty lines are supported. Columns without a name, such as the row numbers
    that pandas writes, are ignored, and so is the apostrophe that protects a cell from being a formula (``'=1``).

    Args:
        path: A ``.csv``, ``.tsv``, ``.tab``, ``.txt``, ``.parquet``, ``.pq``, ``.jsonl`` or ``.ndjson`` file.

    Returns:
        The columns, their names stripped.

    Raises:
        DataError: The file is missing or cannot be read.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("image;tags\na.jpg;cat,dog\n")
        >>> read_table(file).rows()
        [('a.jpg', 'cat,dog')]
    """
    path = existing(path)
    known = (*TEXT_ENDINGS, *PARQUET_ENDINGS, *JSON_LINES_ENDINGS)
    if path.suffix.lower() not in known:
        raise DataError(f"{path.name} is not a table; its extension must be one of {', '.join(known)}")
    try:
        frame = _read(path)
    except (pl.exceptions.PolarsError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {parser_advice(error)}") from error
    if frame.width == 0 or frame.height == 0:
        raise DataError(f"{path} has no rows below its header; it needs one for each image")
    return frame


def _read(path: Path) -> pl.DataFrame:
    if path.suffix.lower() in PARQUET_ENDINGS:
        frame = pl.read_parquet(path)
        coded = [name for name, kind in frame.schema.items() if isinstance(kind, (pl.Categorical, pl.Enum))]
        return frame.with_columns(pl.col(coded).cast(pl.String))
    if path.suffix.lower() in JSON_LINES_ENDINGS:
        return pl.read_ndjson(path, infer_schema_length=None)
    delimiter, header = _header(path)
    frame = pl.read_csv(path, separator=delimiter, infer_schema=False)
    named = [position for position, name in enumerate(header) if name]
    frame = frame[:, named]
    frame.columns = [unprotect_cell(header[position]) for position in named]
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    frame = frame.with_columns(pl.col(pl.String).str.replace(PROTECTED, "$1"))
    return _split_tags(frame) if tuple(frame.columns) == TAG_COLUMNS else frame


def _split_tags(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the images and the labels of a table that `manylabel predict --out` wrote."""
    tags = pl.Series("tags", map(split_labels, frame["tags"].fill_null("")), dtype=pl.List(pl.String))
    return frame.select("image").with_columns(tags)


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the delimiter that splits the header line into the most columns, and the columns' names."""
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    text = sample.decode("utf-8-sig", errors="ignore" if len(sample) == SAMPLE_BYTES else "strict")
    if not text.strip():
        raise DataError(f"{path} is empty; it needs a header line such as image,labels and a row for each image")
    headers = {mark: next(csv.reader(StringIO(text, newline=""), delimiter=mark)) for mark in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda mark: len(headers[mark]))
    header = [name.strip() for name in headers[delimiter]]
    images = [name for name in header if name.lower().endswith(tuple(IMAGE_ENDINGS))]
    if images:
        raise DataError(
            f"the first line of {path} names an image ({images[0]!r}), not columns; "
            "put a header line above it, such as image,labels"
        )
    doubled = [name for name, count in Counter(header).items() if name and count > 1]
    if doubled:
        raise DataError(f"{path} has two columns called {doubled[0]!r}; rename or drop one")
    return delimiter, header


IMAGE_NAMES = {
    *("image", "images", "img", "picture", "pictures", "photo", "path", "file", "filename", "filepath"),
    *("image_path", "image_file", "image_name", "image_filename", "img_path", "img_name", "file_name", "file_path"),
}
LABEL_NAMES = {"label", "labels", "tag", "tags", "class", "classes", "category", "categories", "keywords"}
LOOKS_LIKE_IMAGE = rf"(?i)\.({'|'.join(ending[1:] for ending in sorted(IMAGE_ENDINGS))})\s*$"


def pick_column(frame: pl.DataFrame, given: str, option: str) -> str:
    """Return the column given by an option.

    Raises:
        DataError: There is no such column; the message lists the existing ones.

    Examples:
        >>> pick_column(pl.DataFrame({"file": ["a.jpg"]}), "file", "image_column")
        'file'
    """
    if given not in frame.columns:
        raise DataError(f"{option}={given}: the table has no such column; {list_choices(given, frame.columns)}")
    return given


def find_image_column(frame: pl.DataFrame, given: str | None = None) -> str:
    """Return the column of images: the one given, else one with such a name, else the only one of image files.

    Raises:
        DataError: None or several qualify; the message lists the columns.

    Examples:
        >>> find_image_column(pl.DataFrame({"what": ["cat"], "where": ["a.jpg"]}))
        'where'
    """
    if given is not None:
        return pick_column(frame, given, "image_column")
    named = [column for column in frame.columns if _plain(column) in IMAGE_NAMES]
    if len(named) == 1:
        return named[0]
    head = frame.select(pl.col(pl.String)).head(1000)
    asked = [column for column in head.columns if not named or column in named]
    alike = [column for column in asked if _look_like_images(head[column])]
    if len(alike) == 1:
        return alike[0]
    found = f"{' and '.join(map(repr, alike))} look like it" if alike else "none looks like it"
    choices = list_choices("", frame.columns)
    raise DataError(f"cannot tell which column names the images: {found}; give image_column=NAME, {choices}")


def find_split_column(frame: pl.DataFrame, given: str | None = None) -> str | None:
    """Return the column of splits: the one given, else the one called split, if any.

    Examples:
        >>> find_split_column(pl.DataFrame({"image": ["a.jpg"], "Split": ["train"]}))
        'Split'
    """
    if given is not None:
        return pick_column(frame, given, "split_column")
    return next((column for column in frame.columns if column.lower() == "split"), None)


def find_tag_column(frame: pl.DataFrame, given: str | None = None) -> str | None:
    """Return the column of tags, or None if each label has its own column.

    It is the one given, else the one called labels, tags or the like, else the only one of lists, else the only one.

    Args:
        frame: The table without its columns of images and splits.
        given: Name given by the user.

    Raises:
        DataError: Several columns qualify; the message lists them.

    Examples:
        >>> find_tag_column(pl.DataFrame({"width": ["640"], "tags": ["cat|dog"]}))
        'tags'
        >>> find_tag_column(pl.DataFrame({"cat": ["1"], "dog": ["0"]})) is None
        True
    """
    if given is not None:
        return pick_column(frame, given, "label_column")
    candidates = (
        [column for column in frame.columns if _plain(column) in LABEL_NAMES],
        [column for column, kind in frame.schema.items() if isinstance(kind, pl.List)],
        [column for column in frame.columns if frame.width == 1 and not are_flags(frame[column])],
    )
    found = next((columns for columns in candidates if columns), [])
    if len(found) > 1:
        raise DataError(f"cannot tell which column holds the tags; give label_column=NAME, {list_choices('', found)}")
    return found[0] if found else None


def _plain(column: str) -> str:
    return column.lower().replace(" ", "_").replace("-", "_")


def _look_like_images(cells: pl.Series) -> bool:
    cells = cells.drop_nulls()
    return len(cells) > 0 and bool(cells.str.contains(LOOKS_LIKE_IMAGE).all())
