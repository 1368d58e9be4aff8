"""Open Images: millions of images with a few known labels each, present or verified absent.

https://storage.googleapis.com/openimages/web/index.html

A row of an annotation file is an image (``ImageID``), a label (``LabelName``) and its ``Confidence``. Files are read in
blocks and names replaced by numbers at once, which takes a fraction of the memory.

Letters in shape comments: N images, R rows, L labels.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import are_on_disk, existing, image_folder, read_label_list
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

__all__ = [
    "open_images",
]

SCHEMA = {"ImageID": pl.String, "LabelName": pl.String, "Confidence": pl.Float64}
BLOCK_BYTES = 1 << 23  # a memory-mapped file would count, whole, as memory in use; larger blocks are no faster


@dataclass(frozen=True, eq=False)
class ImageLevelLabels:
    """Rows of an annotation file.

    Args:
        names: Identifiers of the images, sorted, ``[N]``.
        images: Positions in `names`, ``[R]``.
        labels: Positions in the label space, ``[R]``.
        present: Whether the label is present or verified absent, ``[R]``.
    """

    names: pl.Series
    images: NDArray[np.int32]
    labels: NDArray[np.int32]
    present: NDArray[np.bool_]


def read_image_level_labels(
    file: str | Path, space: LabelSpace, *, min_confidence: float | None = None
) -> ImageLevelLabels:
    r"""Read the rows of some labels.

    Args:
        file: A CSV file with the columns ``ImageID``, ``LabelName`` and ``Confidence``.
        space: The labels; rows of others are ignored.
        min_confidence: Smallest confidence that counts as present (default: 1); lower ones, except 0, are ignored.

    Raises:
        DataError: A column is missing, or a confidence is neither 0 nor 1 and `min_confidence` is not given.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("ImageID,LabelName,Confidence\nb,/m/1,1\na,/m/1,0\na,/m/2,1\n")
        >>> found = read_image_level_labels(file, LabelSpace(["/m/1"]))
        >>> found.names.to_list(), found.images.tolist(), found.present.tolist()
        (['a', 'b'], [1, 0], [True, False])
    """
    labels = pl.Enum(space.names)
    limit = 1.0 if min_confidence is None else min_confidence
    rows, runs, num_runs = [], [], 0
    for block in _blocks(Path(file), list(SCHEMA)):
        if min_confidence is None:
            _refuse_shades(block["Confidence"], Path(file))
        kept = block.filter((pl.col("Confidence") >= limit) | (pl.col("Confidence") == 0)).select(
            "ImageID",
            label=pl.col("LabelName").cast(labels, strict=False).to_physical().cast(pl.Int32),
            present=pl.col("Confidence") > 0,
        )
        kept = kept.drop_nulls()
        rows.append(kept.select("label", "present", run=pl.col("ImageID").rle_id() + num_runs))
        runs.append(kept["ImageID"].rle().struct.field("value"))
        num_runs += len(runs[-1])
    table = pl.concat(rows, rechunk=True)
    names, positions = _number(pl.concat(runs))
    return ImageLevelLabels(
        names=names,
        images=positions.take(table["run"].to_numpy()),
        labels=table["label"].to_numpy(),
        present=table["present"].to_numpy(),
    )


def _number(runs: pl.Series) -> tuple[pl.Series, NDArray[np.int32]]:
    """Return the sorted names, and the position among them of each run of rows of one image.

    The rows of an image are mostly consecutive, so there are far fewer runs than rows.
    """
    _, firsts, positions = np.unique(runs.rank("dense").to_numpy(), return_index=True, return_inverse=True)
    return runs.gather(firsts), positions.astype(np.int32)


def label_names_in(file: str | Path) -> set[str]:
    r"""Return the labels that occur in a file.

    Args:
        file: A CSV file with a column ``LabelName``.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("ImageID,LabelName,Confidence\na,/m/1,1\nb,/m/1,0\n")
        >>> label_names_in(file)
        {'/m/1'}
    """
    return set().union(*(block["LabelName"].drop_nulls().unique() for block in _blocks(Path(file), ["LabelName"])))


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


def _refuse_shades(confidence: pl.Series, file: Path) -> None:
    shades = confidence.filter(confidence.is_null() | ~confidence.is_in([0.0, 1.0]))
    if len(shades):
        raise DataError(
            f"{file} has labels with a confidence that is neither 0 nor 1, such as {shades[0]}, as a model predicts; "
            "give the smallest that counts as present, for example min_confidence=0.8"
        )


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
    path = existing(path)
    listing = _list_files(path)
    files = _annotation_files(listing, annotations)
    space = _label_space(path, listing, files, labels)
    root = path if images is None else image_folder(images, beside=path)
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
    """Return the files of the annotation folders; image folders, with millions of files, are not listed."""
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


def _file_names(images: pl.Series, *, folder: str) -> pl.Series:
    return pl.select(pl.concat_str(pl.lit(folder), images, pl.lit(".jpg"))).to_series()


def _targets(parts: list[ImageLevelLabels], *, num_labels: int) -> Targets:
    """Stack the splits; a label both present and absent is unknown."""
    starts = np.cumsum([0, *(len(part.names) for part in parts)])
    images = np.concatenate([part.images + np.int32(start) for part, start in zip(parts, starts, strict=False)])
    labels = np.concatenate([part.labels for part in parts])
    present = np.concatenate([part.present for part in parts])
    yes, no = (
        boolean_matrix(images[chosen], labels[chosen], shape=(int(starts[-1]), num_labels))
        for chosen in (present, ~present)
    )
    both = yes.multiply(no)
    return Targets(yes > both, absent=no > both) if both.nnz else Targets(yes, absent=no)
