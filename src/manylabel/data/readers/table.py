"""Tables (CSV, TSV, Parquet, JSON Lines or a DataFrame) with a column of images, and labels as tags or columns."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout, table_labels
from manylabel.data.readers.layout import Blank
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.image_files import relative_path
from manylabel.images import IMAGE_ENDINGS
from manylabel.label_text import PROTECTED, SEPARATOR, TAG_COLUMNS, protect_cell, split_labels, unprotect_cell
from manylabel.storage import refuse_existing, replacing

TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt")
PARQUET_ENDINGS = (".parquet", ".pq")
JSON_LINES_ENDINGS = (".jsonl", ".ndjson")
DELIMITERS = (",", ";", "\t")
SAMPLE_BYTES = 1 << 20  # enough for a header line of some ten thousand columns
IMAGE_NAMES = {
    *("image", "images", "img", "picture", "pictures", "photo", "path", "file", "filename", "filepath"),
    *("image_path", "image_file", "image_name", "image_filename", "img_path", "img_name", "file_name", "file_path"),
}
LABEL_NAMES = {"label", "labels", "tag", "tags", "class", "classes", "category", "categories", "keywords"}
LOOKS_LIKE_IMAGE = rf"(?i)\.({'|'.join(ending[1:] for ending in sorted(IMAGE_ENDINGS))})\s*$"
WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    ".csv": pl.DataFrame.write_csv,
    ".parquet": pl.DataFrame.write_parquet,
    ".jsonl": pl.DataFrame.write_ndjson,
}


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
    layout.check_choices(blank=(blank, Blank))
    if isinstance(path, pl.DataFrame):
        frame, base, name = path, Path(), "table"
    else:
        frame, base, name = read_table(path), Path(path).parent, Path(path).name
    if frame.is_empty():
        raise DataError("the table has no rows; add some")
    image_column = find_image_column(frame, image_column)
    if split_column is None:
        split_column = next((column for column in frame.columns if column.lower() == "split"), None)
    else:
        _pick_column(frame, split_column, "split_column")
    names = _image_names(frame[image_column])
    firsts = names.arg_unique().sort()  # the first row of each image, [N]
    positions = names.replace_strict(names[firsts], np.arange(len(firsts)), return_dtype=pl.Int64).to_numpy()  # [R]
    given = None if labels is None else layout.read_label_list(labels, folder=base)
    rest = frame.drop([column for column in (image_column, split_column) if column is not None])
    tags = _find_tags(rest, label_column, separator, given)
    notes, is_blank = tuple[str, ...](), np.zeros(len(firsts), dtype=bool)
    if tags is None:
        targets, space = table_labels.read_label_columns(rest.select(given or rest.columns), names, positions)
    else:
        cells = table_labels.split_tags(rest[tags], separator)
        targets, space, is_blank = table_labels.read_tags(cells, positions, labels=given)
        notes = tuple(table_labels.describe_rows(cells, names, positions))
    root = layout.find_images(names, beside=base) if images is None else layout.image_folder(images, beside=base)
    splits = {} if split_column is None else _splits(frame[split_column], names, positions)
    dataset = ImageDataset(Files(root, names[firsts]), targets, space, name=name, splits=splits, notes=notes)
    dataset = layout.treat_blanks(dataset, is_blank, blank)
    return dataset if split is None else dataset.split(split)


def _image_names(column: pl.Series) -> pl.Series:
    if column.dtype != pl.String:
        raise DataError(
            f"column {column.name!r} should hold image names, but has type {column.dtype}; set image_column=NAME to a "
            "column of file names (images inside a Parquet file: see the reader of Hugging Face datasets)"
        )
    names = column.str.strip_chars()
    blank = names.is_null() | (names == "")
    if blank.any():
        raise DataError(
            f"column {column.name!r} has no image in row {(blank.arg_max() or 0) + 1}; fill it in or drop the row"
        )
    return names


def _find_tags(
    frame: pl.DataFrame, label_column: str | None, separator: str | None, labels: Sequence[str] | None
) -> str | None:
    """Return the column of tags; None if there is a column for each label, which is then checked."""
    if frame.width == 0:
        raise DataError("the table has no column of labels, only images; to read images alone, use files:PATH")
    are_columns = label_column is None and labels is not None and set(labels) <= set(frame.columns)
    tags = None if are_columns else _find_tag_column(frame, label_column)
    if tags is None and separator is not None:
        choices = list_choices("", frame.columns)
        raise DataError(f"separator={separator!r} needs a column of tags; set label_column=NAME; {choices}")
    for label in (labels or []) if tags is None else []:
        _pick_column(frame, label, "labels")
    return tags


def _splits(column: pl.Series, names: pl.Series, images: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the images of each split; an image in two splits, a leak, is an error."""
    rows = pl.DataFrame({"split": column.cast(pl.String).str.strip_chars(), "name": names, "image": images})
    members = rows.filter(pl.col("split") != "").unique(["split", "image"], maintain_order=True)
    doubled = members.filter(pl.col("image").is_duplicated())
    if doubled.height:
        name = doubled["name"][0]
        where = " and ".join(map(repr, doubled.filter(pl.col("name") == name)["split"]))
        raise DataError(f"image {name!r} is in the splits {where}; keep it in one, otherwise the splits leak")
    groups = members.sort("image").group_by("split", maintain_order=True).agg("image")
    return {name: np.asarray(chosen, dtype=np.int64) for name, chosen in groups.iter_rows()}


def read_table(path: str | Path, *, may_be_empty: bool = False) -> pl.DataFrame:
    r"""Read a table by its file extension; the delimiter of a text file is detected from its header line.

    The columns of a text table remain text: ``007`` stays ``007``. Byte-order marks, Windows line ends, quoted fields
    with delimiters and line breaks, and empty lines are supported. Columns without a name, such as the row numbers
    that pandas writes, are ignored, and so is the apostrophe that protects a cell from being a formula (``'=1``).

    Args:
        path: A ``.csv``, ``.tsv``, ``.tab``, ``.txt``, ``.parquet``, ``.pq``, ``.jsonl`` or ``.ndjson`` file.
        may_be_empty: Whether a table may have no rows.

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
    path = layout.existing(path)
    known = (*TEXT_ENDINGS, *PARQUET_ENDINGS, *JSON_LINES_ENDINGS)
    if path.suffix.lower() not in known:
        raise DataError(f"{path.name} is not a table; its extension must be one of {', '.join(known)}")
    try:
        frame = _read(path)
    except (pl.exceptions.PolarsError, UnicodeDecodeError, csv.Error) as error:
        is_parquet = path.suffix.lower() in PARQUET_ENDINGS
        advice = f"{error}; write it again" if is_parquet else layout.parser_advice(error)
        raise DataError(f"cannot read {path}: {advice}") from error
    if frame.width == 0 or (frame.height == 0 and not may_be_empty):
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
    if tuple(frame.columns) != TAG_COLUMNS:
        return frame
    tags = pl.Series("tags", map(split_labels, frame["tags"].fill_null("")), dtype=pl.List(pl.String))
    return frame.select("image").with_columns(tags)  # a table that `manylabel predict --out` wrote


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the delimiter that splits the header line into the most columns, and the columns' names."""
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    text = sample.decode("utf-8-sig", errors="ignore" if len(sample) == SAMPLE_BYTES else "strict")
    if not text.strip():
        raise DataError(f"{path} is empty; it needs a header line such as image,labels and a row for each image")
    if "\0" in text:
        raise DataError(f"{path} is not UTF-8 text: it has NUL bytes; save it again as UTF-8 (in Excel: CSV UTF-8)")
    if "\n" not in text and "\r" in text:
        raise DataError(f"{path} has the line ends of old Macs (CR); save it again, in Excel as CSV UTF-8")
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


def find_image_column(frame: pl.DataFrame, given: str | None = None) -> str:
    """Return the column of images: the one given, else one with such a name, else the only one of image files.

    Raises:
        DataError: None or several qualify; the message lists the columns.

    Examples:
        >>> find_image_column(pl.DataFrame({"what": ["cat"], "where": ["a.jpg"]}))
        'where'
    """
    if given is not None:
        return _pick_column(frame, given, "image_column")
    named = [column for column in frame.columns if _plain(column) in IMAGE_NAMES]
    if len(named) == 1:
        return named[0]
    head = frame.select(pl.col(pl.String)).head(1000)
    cells = {column: head[column].drop_nulls() for column in head.columns if not named or column in named}
    alike = [column for column, texts in cells.items() if len(texts) and texts.str.contains(LOOKS_LIKE_IMAGE).all()]
    if len(alike) == 1:
        return alike[0]
    found = f"{' and '.join(map(repr, alike))} look like it" if alike else "none looks like it"
    choices = list_choices("", frame.columns)
    raise DataError(f"cannot tell which column names the images: {found}; set image_column=NAME; {choices}")


def _find_tag_column(frame: pl.DataFrame, given: str | None) -> str | None:
    """Return the column of tags, or None if each label has its own column.

    It is the one given, else the one called labels, tags or the like, else the only one of lists, else the only one.
    """
    if given is not None:
        return _pick_column(frame, given, "label_column")
    candidates = (
        [column for column in frame.columns if _plain(column) in LABEL_NAMES],
        [column for column, kind in frame.schema.items() if isinstance(kind, pl.List)],
        [column for column in frame.columns if frame.width == 1 and not table_labels.are_flags(frame[column])],
    )
    found = next((columns for columns in candidates if columns), [])
    if len(found) > 1:
        raise DataError(f"cannot tell which column holds the tags; set label_column=NAME; {list_choices('', found)}")
    return found[0] if found else None


def _pick_column(frame: pl.DataFrame, given: str, option: str) -> str:
    if given not in frame.columns:
        raise DataError(f"{option}={given}: the table has no such column; {list_choices(given, frame.columns)}")
    return given


def _plain(column: str) -> str:
    return column.lower().replace(" ", "_").replace("-", "_")


def write_table(
    dataset: ImageDataset, out: str | Path, *, overwrite: bool = False, as_columns: bool | None = None
) -> Path:
    """Write a dataset as a table of tags, or with one column per label.

    Args:
        dataset: The dataset; its images must be files, and its splits become the column ``split``.
        out: The table to write: ``.csv``, ``.parquet`` or ``.jsonl``; image paths in it are relative to its folder.
        overwrite: Whether to replace an existing file.
        as_columns: Whether to write one column per label (default: where tags could not be read back or some labels
            are unknown).

    Returns:
        The path of the table.

    Raises:
        ConfigError: `out` has another ending.
        OutputExistsError: `out` exists.
        DataError: The images are not files.
    """
    out = Path(out)
    refuse_table(out, overwrite=overwrite)
    columns = {"image": pl.Series(list(_paths(dataset, out.absolute().parent)), dtype=pl.String)}
    is_text = out.suffix.lower() == ".csv"
    if as_columns is None:
        odd = "|" if (dataset.targets.labels_per_image > 1).any() else "|;, "  # how `table` would detect the separator
        are_partial = dataset.targets.unknown is not None or dataset.targets.absent is not None
        as_columns = are_partial or (is_text and any(set(odd) & set(name) for name in dataset.labels))
    if as_columns:
        for name in {"image", "split"} & set(dataset.labels):
            raise DataError(
                f"label {name!r} has the name of another column of the table; rename it (rename={name}:NEW)"
            )
        values, known = dataset.targets.dense()
        flags = pl.DataFrame(np.where(known, values, np.nan), schema=list(map(protect_cell, dataset.labels)))
        columns |= {name: flags[name].fill_nan(None).cast(pl.Int8) for name in flags.columns}
    else:
        tags = [dataset.labels_of(index) for index in range(len(dataset))]
        cells = [protect_cell(SEPARATOR.join(names)) for names in tags]
        columns["tags"] = pl.Series(cells, dtype=pl.String) if is_text else pl.Series(tags, dtype=pl.List(pl.String))
    if dataset.splits:
        split_of = np.full(len(dataset), None, dtype=object)
        for name, members in dataset.splits.items():
            split_of[members] = name
        columns["split"] = pl.Series(split_of.tolist(), dtype=pl.String)
    with replacing(out, overwrite=overwrite) as temporary:
        WRITERS[out.suffix.lower()](pl.DataFrame(columns), temporary)
    return out


def refuse_table(out: Path, *, overwrite: bool = False) -> None:
    """Refuse a path that `write_table` could not write to.

    Raises:
        ConfigError: It has another ending.
        OutputExistsError: It exists.
    """
    if out.suffix.lower() not in WRITERS:
        raise ConfigError(f"the table must end in {', '.join(WRITERS)}, got {out.name!r}")
    refuse_existing(out, overwrite=overwrite)


def _paths(dataset: ImageDataset, folder: Path) -> Iterator[str]:
    """Yield the path of each image, relative to a folder where that is possible."""
    for index in range(len(dataset)):
        image = dataset.images[index]
        if not isinstance(image, Path):
            raise DataError(f"the images of {dataset.name} are not files, which a table needs")
        yield relative_path(image, folder)
