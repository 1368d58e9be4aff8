"""Pictures on disk: the folder they are in, and which of a list have been downloaded."""

import os
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.layout import existing

__all__ = ["are_on_disk", "picture_folder"]


def picture_folder(images: str | Path, *, beside: Path) -> Path:
    """Return the folder that `images` names, relative to where you are or to the data set's own folder.

    Args:
        images: What the user gave.
        beside: The data set's own folder.

    Raises:
        DataError: There is no such folder; the message lists those there are.

    Example:
        >>> picture_folder("manylabel", beside=Path("src")).as_posix()
        'src/manylabel'
    """
    return Path(images) if Path(images).is_dir() else existing(beside / images)


def are_on_disk(root: str | Path, names: pl.Series) -> NDArray[np.bool_]:
    """Tell which files are there; each folder is listed once, which is much faster than asking for every file.

    Args:
        root: The folder that the names are relative to.
        names: File names with ``/`` between folders.

    Returns:
        One truth value for each name.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.jpg").touch()
        >>> are_on_disk(folder, pl.Series(["a.jpg", "b.jpg", "c/d.jpg"])).tolist()
        [True, False, False]
    """
    folders = names.str.extract(r"^(.*/)[^/]*$").fill_null("").unique()
    there = [f"{folder}{name}" for folder in folders if (Path(root) / folder).is_dir() for name in _files(root, folder)]
    return names.is_in(pl.Series(there, dtype=pl.String).implode()).to_numpy()


def _files(root: str | Path, folder: str) -> list[str]:
    with os.scandir(Path(root) / folder) as entries:
        return [entry.name for entry in entries]
