"""Tools of the readers: files and folders, with errors that list what exists; lists of labels; blank tags."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from manylabel.data.dataset import ImageDataset, largest_areas
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.image_files import image_names
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

Blank = Literal["negative", "unknown", "drop"]  # meaning of an image without tags
Empty = Literal["drop", "keep"]  # treatment of images without any label
Part = TypeVar("Part")

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "photos", "pictures", "data")


def existing(path: str | Path) -> Path:
    """Return the path if it exists.

    Raises:
        DataError: It does not; the message lists its neighbours.

    Examples:
        >>> existing("src/manylabel/dta")
        Traceback (most recent call last):
        manylabel.errors.DataError: src/manylabel/dta does not exist; did you mean 'data'? Available: ...
    """
    path = Path(path)
    if path.exists():
        return path
    nearest = next((parent for parent in path.parents if parent.is_dir()), Path())
    missing = path.relative_to(nearest).parts[0]
    beside = sorted(entry.name for entry in nearest.iterdir() if not entry.name.startswith("."))
    raise DataError(f"{path} does not exist; {list_choices(missing, beside)} (in {nearest})")


def wrong_format(path: Path, name: str, lacks: str) -> DataError:
    """Return the error for a path that is not in a format; it lists the content of the folder.

    Args:
        path: The path given.
        name: Name of the format.
        lacks: What was not found.
    """
    names = [each.name for each in path.iterdir()] if path.is_dir() else []
    inside = list_choices("", names, title="found") if path.is_dir() else "it is a file"
    return DataError(f"{path} is not {name}: {lacks}; {inside}")


def choose_splits(splits: Mapping[str, Part], split: str | None, *, of: object) -> dict[str, Part]:
    """Return all splits, or the one given.

    Args:
        splits: Anything by the name of its split.
        split: Name of the split, None for all.
        of: The dataset, for the message.

    Raises:
        DataError: There is no such split; the message lists the existing ones.

    Examples:
        >>> choose_splits({"train": 1, "val": 2}, "val", of="VOC")
        {'val': 2}
    """
    if split is None:
        return dict(splits)
    if split not in splits:
        raise DataError(f"{of} has no split {split!r}; {list_choices(split, splits)}")
    return {split: splits[split]}


def from_objects(
    images: Files, labels: LabelSpace, *, rows: ArrayLike, columns: ArrayLike, areas: ArrayLike
) -> ImageDataset:
    """Return a dataset in which a label is present where it has an object.

    Args:
        images: The images.
        labels: The labels.
        rows: The image of each object.
        columns: The label of each object.
        areas: The fraction of the image that each object covers; 0 or NaN where unknown.
    """
    present = boolean_matrix(rows, columns, shape=(len(images), len(labels)))
    largest = largest_areas(rows, columns, areas, present=present)
    return ImageDataset(images, Targets(present), labels, areas=largest)


def read_lines(file: Path) -> list[str]:
    """Return the lines of a text file, stripped, without blank ones."""
    return _stripped(file.read_text(encoding="utf-8-sig").splitlines())


def _stripped(texts: Iterable[str]) -> list[str]:
    return [text.strip() for text in texts if text.strip()]


def subfolders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def list_images(folder: Path) -> list[str]:
    """Return the images below a folder, sorted; see `manylabel.image_files.image_names`.

    Raises:
        DataError: A name is not valid Unicode, and no report could show it.
    """
    names = sorted(image_names(folder))
    for name in names:
        if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError(f"a file name in {folder} is not valid Unicode: {name!a}; rename the file")
    return names


def image_folder(images: str | Path, *, beside: Path) -> Path:
    """Return a folder of images, relative to the current folder or to that of the dataset.

    Args:
        images: The folder, as given by the user.
        beside: The dataset's own folder.

    Raises:
        DataError: There is no such folder; the message lists the existing ones.

    Examples:
        >>> image_folder("manylabel", beside=Path("src")).as_posix()
        'src/manylabel'
    """
    return Path(images) if Path(images).is_dir() else existing(beside / images)


def check_choices(**options: tuple[str, Any]) -> None:
    """Refuse an option whose value is not one of its choices.

    Args:
        options: The value of each option, and the `Literal` of its choices.

    Raises:
        ConfigError: A value is none of them.

    Examples:
        >>> check_choices(blank=("keep", Blank))
        Traceback (most recent call last):
        manylabel.errors.ConfigError: blank cannot be 'keep'; available: drop, negative, unknown
    """
    for name, (value, kind) in options.items():
        if value not in get_args(kind):
            raise ConfigError(f"{name} cannot be {value!r}; {list_choices(str(value), get_args(kind))}")


def find_images(names: pl.Series, *, beside: Path) -> Path:
    """Return the folder in which images of a table are found, looking into the obvious ones.

    Args:
        names: File names, relative to an unknown folder, or absolute.
        beside: The folder of the table.

    Raises:
        DataError: None of a sample of the images is found; the message lists the folders tried.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> (root / "photos").mkdir()
        >>> (root / "photos" / "a.jpg").touch()
        >>> find_images(pl.Series(["a.jpg"]), beside=root).name
        'photos'
    """
    sample = names.gather_every(max(len(names) // 20, 1)).to_list()
    above = beside.absolute().parent
    places = [beside, *(beside / name for name in IMAGE_FOLDERS), above, *(above / name for name in IMAGE_FOLDERS)]
    folders = list(dict.fromkeys([*places, Path()]))
    found = {folder: sum(os.path.isfile(folder / name) for name in sample) for folder in folders}  # noqa: PTH113 - is_file fails for a long name
    best = max(found, key=lambda folder: found[folder])
    if found[best]:
        return best
    tried = ", ".join(str(folder) for folder in folders if folder.is_dir())
    raise DataError(
        f"none of the images was found, such as {sample[0]!r}; looked in {tried}; set images=FOLDER to the folder that "
        "the names are relative to"
    )


def treat_blanks(dataset: ImageDataset, is_blank: NDArray[np.bool_], blank: Blank) -> ImageDataset:
    """Drop images without tags, make all their labels unknown, or leave them as negatives.

    Args:
        dataset: The images, those without tags being negatives.
        is_blank: Whether each image is without tags, ``[N]``.
        blank: ``"negative"``, ``"unknown"`` or ``"drop"``.
    """
    if not is_blank.any() or blank == "negative":
        return dataset
    if blank == "drop":
        return dataset.subset(~is_blank)
    return replace(dataset, targets=dataset.targets.forget(is_blank))


def are_on_disk(root: str | Path, names: pl.Series) -> NDArray[np.bool_]:
    """Return whether each file exists; each folder is listed once, which is much faster than testing every file.

    Args:
        root: Base folder of the names.
        names: File names with ``/`` between folders.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.jpg").touch()
        >>> are_on_disk(folder, pl.Series(["a.jpg", "b.jpg", "c/d.jpg"])).tolist()
        [True, False, False]
    """
    folders = names.str.extract(r"^(.*/)[^/]*$").fill_null("").unique()
    listed = ((each, Path(root) / each) for each in folders)
    there = [f"{each}{name}" for each, folder in listed if folder.is_dir() for name in os.listdir(folder)]  # noqa: PTH208 - a Path for each of a million names takes seconds
    return names.is_in(pl.Series(there, dtype=pl.String).implode()).to_numpy()


def read_label_list(labels: Sequence[str] | str | Path, *, folder: str | Path = ".") -> list[str]:
    """Return the names in a list of labels, in order, stripped, without blank ones.

    Args:
        labels: The names; or the name of a file with one label per line (of a ``.csv`` file, its first column); or
            names joined by ``|``.
        folder: Another folder to look for the file, besides the current one.

    Raises:
        DataError: The list is empty, or the file is missing or cannot be read.

    Examples:
        >>> read_label_list("cat|traffic light")
        ['cat', 'traffic light']
        >>> read_label_list(["dog", "cat"])
        ['dog', 'cat']
        >>> len(read_label_list("|".join(f"label {number}" for number in range(100))))  # too long to name a file
        100
    """
    if isinstance(labels, (str, Path)):
        candidates = (Path(labels), Path(folder) / labels)
        file = next((file for file in candidates if os.path.isfile(file)), None)  # noqa: PTH113 - is_file fails for a long list
        if file is None and Path(labels).suffix in {".txt", ".csv"}:
            places = "" if Path(folder) == Path() else f", neither here nor in {folder}"
            raise DataError(f"there is no file of labels {str(labels)!r}{places}; check its name, or list the labels")
        labels = str(labels).split("|") if file is None else _names_in(file)
    names = _stripped(labels)
    if not names:
        raise DataError("the list of labels is empty; name at least one label or omit the list")
    return names


def _names_in(file: Path) -> list[str]:
    try:
        if file.suffix != ".csv":
            return read_lines(file)
        table = pl.read_csv(file, has_header=False, infer_schema=False, truncate_ragged_lines=True)
        return table.to_series(0).fill_null("").to_list()
    except pl.exceptions.NoDataError:
        return []
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the labels in {file}: {parser_advice(error)}") from error


def parser_advice(error: Exception) -> str:
    """Return what to do about an error of a parser.

    Examples:
        >>> parser_advice(ValueError("found more fields than defined"))
        'a row has more fields than the header; put quotes around fields with a delimiter inside'
    """
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "utf-8" in words.lower():
        return "it is not UTF-8 text; save it again as UTF-8 (in Excel: CSV UTF-8)"
    if "more fields" in words:
        return "a row has more fields than the header; put quotes around fields with a delimiter inside"
    return f"{words}; check the quotes and delimiters of that row"
