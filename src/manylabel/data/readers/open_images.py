"""Open Images: millions of images with a few known labels each, present or verified absent.

https://storage.googleapis.com/openimages/web/index.html

A row of an annotation file is an image (``ImageID``), a label (``LabelName``) and its ``Confidence``. Files are
read in blocks and names replaced by numbers at once, which takes a fraction of the memory.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

SCHEMA = {"ImageID": pl.String, "LabelName": pl.String, "Confidence": pl.Float64}
BLOCK_BYTES = 1 << 23  # a memory-mapped file would count, whole, as memory in use; larger blocks are no faster
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
        raise DataError(f"no row has any of the {len(space)} labels ({given}, ...); use identifiers like /m/01yrx")
    if downloaded_only:
        names = pl.Series([dataset.images.name(index) for index in range(len(dataset))])
        dataset = dataset.subset(layout.are_on_disk(root, names))
    return dataset


def _read(file: Path, space: LabelSpace, root: Path, prefix: str, min_confidence: float | None) -> ImageDataset:
    """Read the images of one split, sorted; a label both present and absent is unknown."""
    ids, images, rows = _read_rows(file, space, min_confidence)
    labels, is_there = rows["label"].to_numpy(), rows["present"].to_numpy()
    present, absent = (
        boolean_matrix(images[chosen], labels[chosen], shape=(len(ids), len(space))) for chosen in (is_there, ~is_there)
    )
    both = present.multiply(absent)
    targets = Targets(present > both, absent=absent > both) if both.nnz else Targets(present, absent=absent)
    return ImageDataset(Files(root, prefix + ids + ".jpg"), targets, space)


def _read_rows(
    file: Path, space: LabelSpace, min_confidence: float | None
) -> tuple[pl.Series, NDArray[np.int32], pl.DataFrame]:
    """Return the sorted images, the image of each row, and the rows, with the number of a label and its presence."""
    confidence = pl.col("Confidence")
    label = pl.col("LabelName").cast(pl.Enum(space.names), strict=False).to_physical().cast(pl.Int32)
    is_present = confidence >= (1.0 if min_confidence is None else min_confidence)
    rows, runs, num_runs = [], [], 0
    for block in _blocks(file, list(SCHEMA)):
        if min_confidence is None and not block["Confidence"].is_in([0.0, 1.0]).fill_null(False).all():
            raise DataError(
                f"{file} has confidences that are neither 0 nor 1, as predicted by a model; "
                "set the smallest one that counts as present, for example min_confidence=0.8"
            )
        kept = block.filter(is_present | (confidence == 0)).select("ImageID", label=label, present=is_present)
        kept = kept.drop_nulls()
        rows.append(kept.select("label", "present", run=pl.col("ImageID").rle_id() + num_runs))
        runs.append(kept["ImageID"].rle().struct.field("value"))  # rows of an image are mostly consecutive
        num_runs += len(runs[-1])
    table, names = pl.concat(rows, rechunk=True), pl.concat(runs)
    _, firsts, positions = np.unique(names.rank("dense").to_numpy(), return_index=True, return_inverse=True)
    return names.gather(firsts), positions.astype(np.int32)[table["run"].to_numpy()], table


def _blocks(file: Path, columns: list[str]) -> Iterator[pl.DataFrame]:
    """Read a file in blocks of whole lines; no field contains a line break."""
    with file.open("rb") as stream:
        header, rest = stream.readline(), b""
        while block := stream.read(BLOCK_BYTES):
            lines, line_end, tail = block.rpartition(b"\n")
            if line_end:
                yield _parse(b"".join((header, rest, lines)), file, columns)
                rest = b""
            rest += tail
        yield _parse(header + rest, file, columns)


def _parse(text: bytes, file: Path, columns: list[str]) -> pl.DataFrame:
    try:
        return pl.read_csv(text, columns=columns, schema_overrides=SCHEMA)
    except (pl.exceptions.PolarsError, ValueError) as error:
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
            raise DataError(f"{found[split]} and {file} both hold the {split} split; remove one of them")
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
        blocks = chain(*(_blocks(file, ["LabelName"]) for file in files.values()))
        names = sorted(set().union(*(block["LabelName"].drop_nulls().unique() for block in blocks)))
    names = [name for name in names if name != HEADER]
    return LabelSpace(names, display_names={name: described[name] for name in names if name in described})


def _display_names(files: list[Path]) -> dict[str, str]:
    if not files:
        return {}
    table = pl.read_csv(files[0], has_header=False, infer_schema=False, new_columns=["label", "display"])
    return dict(table.filter(pl.col("label") != HEADER).drop_nulls().iter_rows())
