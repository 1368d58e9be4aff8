"""A list of labels as people give it: in Python, in a spec string, or in a file."""

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from manylabel.data.parsing import parser_advice
from manylabel.errors import DataError

__all__ = ["read_label_list"]


def read_label_list(labels: Sequence[str] | str | Path, *, folder: str | Path = ".") -> list[str]:
    """Return the names of a list of labels.

    Args:
        labels: The names; or one text, which is a file where there is one of that name, else names joined by ``|``.
            A file has one label in each line; of a ``.csv`` file, the first column counts.
        folder: Where else to look for the file, beside the current folder.

    Returns:
        The names in the order given, without surrounding spaces and without blank ones.

    Raises:
        DataError: No label is in the list, the file cannot be read, or the text looks like one that is not there.

    Examples:
        >>> read_label_list("cat|traffic light")
        ['cat', 'traffic light']
        >>> read_label_list(["dog", "cat"])
        ['dog', 'cat']
        >>> len(read_label_list("|".join(f"label {number}" for number in range(100))))  # too long to name a file
        100
    """
    if isinstance(labels, (str, Path)):
        places = (Path(labels), Path(folder) / labels)
        file = next((file for file in places if os.path.isfile(file)), None)  # noqa: PTH113 - is_file fails for a long list
        if file is None and Path(labels).suffix in {".txt", ".csv"}:
            raise DataError(f"there is no file of labels {str(labels)!r}, neither here nor in {folder}")
        labels = str(labels).split("|") if file is None else _names_in(file)
    names = [name.strip() for name in labels if name.strip()]
    if not names:
        raise DataError("the list of labels is empty; name at least one label or leave the list out")
    return names


def _names_in(file: Path) -> list[str]:
    try:
        return _read(file)
    except pl.exceptions.NoDataError:
        return []
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the labels in {file}: {parser_advice(error)}") from error


def _read(file: Path) -> list[str]:
    if file.suffix != ".csv":
        return file.read_text(encoding="utf-8-sig").splitlines()
    table = pl.read_csv(file, has_header=False, infer_schema=False, truncate_ragged_lines=True)
    return table.to_series(0).fill_null("").to_list()
