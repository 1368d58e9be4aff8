"""Finding things in a data set's folders, with errors that list what is there."""

import os
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.errors import DataError, list_choices
from manylabel.image_files import image_names
from manylabel.images import IMAGE_ENDINGS

__all__ = ["IMAGE_ENDINGS", "are_on_disk", "existing", "picture_folder", "picture_names", "subfolders"]


def existing(path: str | Path) -> Path:
    """Return the path if something is there.

    Raises:
        DataError: Nothing is there; the message lists what lies beside it.

    Examples:
        >>> existing("src/manylabel/dta")
        Traceback (most recent call last):
        manylabel.errors.DataError: src/manylabel/dta does not exist; did you mean 'data'? There is: ...
    """
    path = Path(path)
    if path.exists():
        return path
    nearest = next((parent for parent in path.parents if parent.is_dir()), Path())
    missing = path.relative_to(nearest).parts[0]
    beside = sorted(entry.name for entry in nearest.iterdir() if not entry.name.startswith("."))
    raise DataError(f"{path} does not exist; {list_choices(missing, beside)} (in {nearest})")


def subfolders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, hidden ones left out.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> for name in ("dog", "cat", ".cache"):
        ...     (root / name).mkdir()
        >>> subfolders(root)
        ['cat', 'dog']
    """
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def picture_names(folder: Path) -> list[str]:
    """Return the images below a folder, sorted; see `manylabel.image_files.image_names`.

    Raises:
        DataError: A name is not valid Unicode, so that no report could show it.
    """
    names = sorted(image_names(folder))
    for name in names:
        if not name.isascii() and _cannot_be_encoded(name):
            raise DataError(f"a file name in {folder} is not valid Unicode: {name!a}; rename the file")
    return names


def picture_folder(images: str | Path, *, beside: Path) -> Path:
    """Return the folder that `images` names, relative to where you are or to the data set's own folder.

    Args:
        images: What the user gave.
        beside: The data set's own folder.

    Raises:
        DataError: There is no such folder; the message lists those there are.

    Examples:
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

    Examples:
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


def _cannot_be_encoded(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False
