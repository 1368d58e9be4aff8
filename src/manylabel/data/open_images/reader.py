"""Open Images: millions of pictures of which a few labels each are known, present or verified absent.

https://storage.googleapis.com/openimages/web/index.html
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from manylabel.data.dataset import ImageDataset
from manylabel.data.label_list import read_label_list
from manylabel.data.layout import are_on_disk, existing, picture_folder
from manylabel.data.open_images.image_level_labels import ImageLevelLabels, label_names_in, read_image_level_labels
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

__all__ = ["open_images"]

FOLDERS = (".", "annotations", "labels", "metadata")
SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
ANNOTATIONS = re.compile(rf"(?:oidv\d+-)?({'|'.join(SPLITS)})-annotations-(human|machine)-imagelabels\.csv")
DESCRIPTIONS = re.compile(r"(?:oidv\d+-)?class-descriptions\.csv")
HEADER = "LabelName"  # newer lists of classes begin with it, older ones have no header
TRAINABLE = re.compile(r"(?:oidv\d+-)?classes-trainable\.txt")


def open_images(
    path: str | Path,
    *,
    split: str | None = None,
    images: str | Path | None = None,
    labels: Sequence[str] | str | Path | None = None,
    annotations: Literal["human", "machine"] = "human",
    min_confidence: float | None = None,
    downloaded_only: bool = False,
) -> ImageDataset:
    """Read the image-level labels of Open Images.

    A label with confidence 1 is present, with 0 verified absent, and every label without a row is unknown. Where two
    rows of a picture contradict each other, that label is unknown too. A picture without a row of these labels is left
    out.

    Args:
        path: The folder with the annotation files under their official names, such as
            ``oidv6-train-annotations-human-imagelabels.csv``; a folder ``annotations``, ``labels`` or ``metadata``
            inside it is searched too. ``class-descriptions.csv`` gives the labels' display names.
        split: ``train``, ``validation`` (or ``val``) or ``test``; by default every split whose file is there.
        images: The folder of the pictures, `path` by default: ``{split}/{ImageID}.jpg`` inside it, or
            ``{ImageID}.jpg`` where it has no folder of the split's name.
        labels: The labels and their order, as identifiers such as ``/m/01yrx`` (names, names joined by ``|``, or a
            file); by default those of ``classes-trainable.txt`` where it is there, else of the class descriptions,
            else all that occur, sorted. Rows of other labels are left out.
        annotations: Labels verified by people, or proposed by a model.
        min_confidence: From where on a confidence between 0 and 1, as a model gives it, counts as present; below it
            the label stays unknown.
        downloaded_only: Whether to leave out pictures that are not on disk.

    Returns:
        The pictures of each split, sorted by their identifiers.

    Raises:
        DataError: A file is missing or holds something else; the message says what is there.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = ["ImageID,Source,LabelName,Confidence", "00a1,verification,/m/1,1", "00a1,verification,/m/2,0"]
        >>> _ = (folder / "test-annotations-human-imagelabels.csv").write_text(chr(10).join(rows))
        >>> dataset = open_images(folder)
        >>> dataset.pictures.name(0), dataset.labels.names, dataset.targets.absent.toarray().tolist()
        ('test/00a1.jpg', ('/m/1', '/m/2'), [[False, True]])
    """
    if min_confidence is not None and not 0 < min_confidence <= 1:
        raise ConfigError(f"min_confidence must be above 0 and at most 1, got {min_confidence}")
    path = existing(path)
    listing = _list_files(path)
    files = _annotation_files(listing, annotations)
    space = _label_space(path, listing, files, labels)
    root = path if images is None else picture_folder(images, beside=path)
    flat = images is not None and not any((root / name).is_dir() for name in SPLITS)
    parts = {
        name: read_image_level_labels(file, space, min_confidence=min_confidence)
        for name, file in _of_split(files, split).items()
    }
    names = pl.concat([_file_names(part.names, folder="" if flat else f"{name}/") for name, part in parts.items()])
    if not len(names):
        given = ", ".join(space.names[:3])
        raise DataError(
            f"no row has any of the {len(space)} labels ({given}, ...); they must be identifiers like /m/01yrx"
        )
    sizes = [len(part.names) for part in parts.values()]
    members = np.split(np.arange(len(names)), np.cumsum(sizes)[:-1])
    dataset = ImageDataset(
        Files(root, names),
        _targets(list(parts.values()), num_labels=len(space)),
        space,
        name="Open Images",
        splits=dict(zip(parts, members, strict=True)),
    )
    return dataset.subset(are_on_disk(root, names)) if downloaded_only else dataset


def _list_files(path: Path) -> list[Path]:
    """Return the files where annotations may be; the pictures' folders, with their millions, are not listed."""
    folders = [path / folder for folder in FOLDERS if (path / folder).is_dir()]
    return sorted(file for folder in folders for file in folder.iterdir() if file.is_file())


def _annotation_files(listing: list[Path], annotations: str) -> dict[str, Path]:
    """Return the annotation file of each split."""
    found: dict[str, Path] = {}
    for file in listing:
        match = ANNOTATIONS.fullmatch(file.name)
        if match is None or match[2] != annotations:
            continue
        split = SPLITS[match[1]]
        if split in found:
            raise DataError(f"{found[split]} and {file} both hold the {split} split; keep one of them there")
        found[split] = file
    if not found:
        expected = f"train-annotations-{annotations}-imagelabels.csv"
        choices = list_choices(expected, [file.name for file in listing])
        raise DataError(f"there is no file of {annotations} labels such as {expected}; {choices}")
    return {split: found[split] for split in dict.fromkeys(SPLITS.values()) if split in found}


def _of_split(files: dict[str, Path], split: str | None) -> dict[str, Path]:
    if split is None:
        return files
    name = SPLITS.get(split, split)
    if name not in files:
        raise DataError(f"Open Images has no split {split!r} here; {list_choices(split, files)}")
    return {name: files[name]}


def _label_space(
    path: Path, listing: list[Path], files: dict[str, Path], labels: Sequence[str] | str | Path | None
) -> LabelSpace:
    """Return the labels, the same for every split."""
    trainable = [file for file in listing if TRAINABLE.fullmatch(file.name)]
    described = _display_names([file for file in listing if DESCRIPTIONS.fullmatch(file.name)])
    if labels is not None or trainable:
        names = read_label_list(trainable[0] if labels is None else labels, folder=path)
    else:
        names = sorted(described or set().union(*map(label_names_in, files.values())))
    names = [name for name in names if name != HEADER]
    return LabelSpace(names, display_names={name: described[name] for name in names if name in described})


def _display_names(files: list[Path]) -> dict[str, str]:
    if not files:
        return {}
    table = pl.read_csv(files[0], has_header=False, infer_schema=False, new_columns=["label", "display"])
    return dict(table.filter(pl.col("label") != HEADER).drop_nulls().iter_rows())


def _file_names(pictures: pl.Series, *, folder: str) -> pl.Series:
    return pl.select(pl.concat_str(pl.lit(folder), pictures, pl.lit(".jpg"))).to_series()


def _targets(parts: list[ImageLevelLabels], *, num_labels: int) -> Targets:
    """Stack the splits; what is said to be both present and absent becomes unknown."""
    starts = np.cumsum([0, *(len(part.names) for part in parts)])
    pictures = np.concatenate([part.pictures + np.int32(start) for part, start in zip(parts, starts, strict=False)])
    labels = np.concatenate([part.labels for part in parts])
    present = np.concatenate([part.present for part in parts])
    yes, no = (
        boolean_matrix(pictures[chosen], labels[chosen], shape=(int(starts[-1]), num_labels))
        for chosen in (present, ~present)
    )
    both = yes.multiply(no)
    return Targets(yes > both, absent=no > both) if both.nnz else Targets(yes, absent=no)
