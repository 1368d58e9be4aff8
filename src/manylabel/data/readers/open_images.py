"""Open Images: millions of images with a few known labels each, present or verified absent.

https://storage.googleapis.com/openimages/web/index.html

A row of an annotation file is an image (``ImageID``), a label (``LabelName``) and its ``Confidence``. Files are
streamed and names replaced by numbers at once, which takes a fraction of the memory.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

__all__ = ["open_images"]

SCHEMA = {"ImageID": pl.String, "LabelName": pl.String, "Confidence": pl.Float64}
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

    A label with confidence 1 is present, with 0 verified absent, and without a row unknown, as are labels with
    contradictory rows. Images without a row of these labels are ignored.

    Args:
        path: The folder with the annotation files under their official names, such as
            ``oidv6-train-annotations-human-imagelabels.csv``; a folder ``annotations``, ``labels`` or ``metadata``
            inside it is searched too. ``class-descriptions.csv`` gives the labels' display names.
        split: ``train``, ``validation`` (or ``val``) or ``test`` (default: every split with a file).
        images: Folder of the images, as ``{split}/{ImageID}.jpg``, or ``{ImageID}.jpg`` if it has no folders of
            splits (default: `path`).
        labels: The labels and their order, as identifiers such as ``/m/01yrx`` (names, names joined by ``|``, or a
            file); others are ignored. Default: those of ``classes-trainable.txt`` if it exists, else of the class
            descriptions, else all that occur, sorted.
        annotations: Labels verified by people, or proposed by a model.
        min_confidence: Smallest confidence of a model that counts as present; below it a label is unknown.
        downloaded_only: Whether to leave out images that are not on disk.

    Returns:
        The images of each split, sorted by identifier.

    Raises:
        DataError: A file is missing or invalid.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = ["ImageID,Source,LabelName,Confidence", "00a1,verification,/m/1,1", "00a1,verification,/m/2,0"]
        >>> _ = (folder / "test-annotations-human-imagelabels.csv").write_text(chr(10).join(rows))
        >>> dataset = open_images(folder)
        >>> dataset.images.name(0), dataset.labels.names, dataset.targets.absent.toarray().tolist()
        ('test/00a1.jpg', ('/m/1', '/m/2'), [[False, True]])
    """
    if min_confidence is not None and not 0 < min_confidence <= 1:
        raise ConfigError(f"min_confidence must be above 0 and at most 1, got {min_confidence}")
    path = layout.existing(path)
    folders = [path / folder for folder in FOLDERS if (path / folder).is_dir()]  # not those of millions of images
    listing = sorted(file for folder in folders for file in folder.iterdir() if file.is_file())
    files = _annotation_files(listing, annotations)
    space = _label_space(path, listing, files, labels)
    wanted = layout.choose_splits(files, None if split is None else SPLITS.get(split, split), of="Open Images")
    root = path if images is None else layout.image_folder(images, beside=path)
    is_flat = images is not None and not any((root / name).is_dir() for name in SPLITS)
    parts = {
        name: _read(file, space, root, "" if is_flat else f"{name}/", min_confidence) for name, file in wanted.items()
    }
    dataset = ImageDataset.join(parts, name="Open Images")
    if not len(dataset):
        given = ", ".join(space.names[:3])
        raise DataError(
            f"no row has any of the {len(space)} labels ({given}, ...); they must be identifiers like /m/01yrx"
        )
    if downloaded_only:
        names = pl.Series([dataset.images.name(index) for index in range(len(dataset))])
        dataset = dataset.subset(layout.are_on_disk(root, names))
    return dataset


def _read(file: Path, space: LabelSpace, root: Path, prefix: str, min_confidence: float | None) -> ImageDataset:
    """Read the images of one split, sorted; a label both present and absent is unknown."""
    confidence = pl.col("Confidence")
    rows = _collect(
        file,
        pl.col("ImageID").cast(pl.Categorical),
        label=pl.col("LabelName").cast(pl.Enum(space.names), strict=False).to_physical(),
        present=confidence >= (1.0 if min_confidence is None else min_confidence),
        absent=confidence == 0,
        is_shade=~confidence.is_in([0.0, 1.0]).fill_null(False),
    )
    if min_confidence is None and rows["is_shade"].any():
        raise DataError(
            f"{file} has labels with a confidence that is neither 0 nor 1, as a model predicts; "
            "give the smallest that counts as present, for example min_confidence=0.8"
        )
    rows = rows.drop("is_shade").drop_nulls().filter(pl.col("present") | pl.col("absent"))
    ids = rows["ImageID"].unique().cast(pl.String).sort()
    images, labels = rows["ImageID"].cast(pl.Enum(ids)).to_physical().to_numpy(), rows["label"].to_numpy()
    present, absent = (
        boolean_matrix(images[chosen], labels[chosen], shape=(len(ids), len(space)))
        for chosen in (rows["present"].to_numpy(), rows["absent"].to_numpy())
    )
    both = present.multiply(absent)
    targets = Targets(present > both, absent=absent > both) if both.nnz else Targets(present, absent=absent)
    return ImageDataset(Files(root, prefix + ids + ".jpg"), targets, space)


def _collect(file: Path, *columns: pl.Expr, **named: pl.Expr) -> pl.DataFrame:
    try:
        return pl.scan_csv(file, schema_overrides=SCHEMA).select(*columns, **named).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"cannot read {file}: {reason}; it needs a header with the columns {', '.join(SCHEMA)}, and numbers from "
            "0 to 1 as confidence"
        ) from error


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


def _label_space(
    path: Path, listing: list[Path], files: dict[str, Path], labels: Sequence[str] | str | Path | None
) -> LabelSpace:
    """Return the labels, the same for every split."""
    trainable = [file for file in listing if TRAINABLE.fullmatch(file.name)]
    described = _display_names([file for file in listing if DESCRIPTIONS.fullmatch(file.name)])
    if labels is not None or trainable:
        names = layout.read_label_list(trainable[0] if labels is None else labels, folder=path)
    elif described:
        names = sorted(described)
    else:
        found = [_collect(file, pl.col("LabelName").drop_nulls().unique())["LabelName"] for file in files.values()]
        names = sorted(set(pl.concat(found)))
    names = [name for name in names if name != HEADER]
    return LabelSpace(names, display_names={name: described[name] for name in names if name in described})


def _display_names(files: list[Path]) -> dict[str, str]:
    if not files:
        return {}
    table = pl.read_csv(files[0], has_header=False, infer_schema=False, new_columns=["label", "display"])
    return dict(table.filter(pl.col("label") != HEADER).drop_nulls().iter_rows())
