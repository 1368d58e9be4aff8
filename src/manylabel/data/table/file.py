"""Tables on disk: CSV, TSV, Parquet and JSON Lines, read into columns without guessing at types."""

import csv
from collections import Counter
from io import StringIO
from pathlib import Path

import polars as pl

from manylabel.data.layout import IMAGE_ENDINGS, existing
from manylabel.data.parsing import parser_advice
from manylabel.errors import DataError
from manylabel.label_text import TAG_COLUMNS, split_labels, unprotect_cell

__all__ = ["read_table"]

TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt")
PARQUET_ENDINGS = (".parquet", ".pq")
JSON_LINES_ENDINGS = (".jsonl", ".ndjson")
DELIMITERS = (",", ";", "\t")
SAMPLE_BYTES = 1 << 20  # enough for a header line of some ten thousand columns


def read_table(path: str | Path) -> pl.DataFrame:
    r"""Read a table; the file's ending says how, and the header line of a text says what stands between its columns.

    The columns of a text table stay text, so that ``007`` stays ``007``. A byte-order mark, Windows line ends, quoted
    fields with delimiters and line breaks inside, and empty lines are all fine. A column without a name, such as the
    row numbers that pandas writes, is left out.

    Args:
        path: A ``.csv``, ``.tsv``, ``.tab``, ``.txt``, ``.parquet``, ``.pq``, ``.jsonl`` or ``.ndjson`` file.

    Returns:
        The columns, with spaces around their names removed.

    Raises:
        DataError: There is no such file, or it cannot be read; the message says where and what to do.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("image;tags\na.jpg;cat,dog\n")
        >>> read_table(file).rows()
        [('a.jpg', 'cat,dog')]
    """
    path = existing(path)
    if not _is_table(path):
        known = ", ".join((*TEXT_ENDINGS, *PARQUET_ENDINGS, *JSON_LINES_ENDINGS))
        raise DataError(f"cannot tell what kind of table {path.name} is; save it as one that ends in {known}")
    try:
        frame = _read(path)
    except (pl.exceptions.PolarsError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {parser_advice(error)}") from error
    if frame.width == 0 or frame.height == 0:
        raise DataError(f"{path} has no rows below its header; it needs one for each picture")
    return frame


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in (*TEXT_ENDINGS, *PARQUET_ENDINGS, *JSON_LINES_ENDINGS)


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
    frame.columns = [header[position] for position in named]
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    return _unescaped(frame) if tuple(frame.columns) == TAG_COLUMNS else frame


def _unescaped(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table that `manylabel predict --out` wrote with its names and labels as they were."""
    names, tags = frame["picture"].fill_null(""), frame["tags"].fill_null("")
    return pl.DataFrame(
        {
            "picture": pl.Series(map(unprotect_cell, names), dtype=pl.String),
            "tags": pl.Series(map(split_labels, tags), dtype=pl.List(pl.String)),
        }
    )


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the delimiter that cuts the header line into the most columns, and the columns' names."""
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    text = sample.decode("utf-8-sig", errors="ignore" if len(sample) == SAMPLE_BYTES else "strict")
    if not text.strip():
        raise DataError(f"{path} is empty; it needs a header line such as image,labels and a row for each picture")
    headers = {mark: next(csv.reader(StringIO(text, newline=""), delimiter=mark)) for mark in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda mark: len(headers[mark]))
    header = [name.strip() for name in headers[delimiter]]
    pictures = [name for name in header if name.lower().endswith(tuple(IMAGE_ENDINGS))]
    if pictures:
        raise DataError(
            f"the first line of {path} names a picture ({pictures[0]!r}), not columns; "
            "put a header line above it, such as image,labels"
        )
    doubled = [name for name, count in Counter(header).items() if name and count > 1]
    if doubled:
        raise DataError(f"{path} has two columns called {doubled[0]!r}; rename or drop one")
    return delimiter, header
