"""Files of image-level labels in the form of Open Images, read a block at a time into numbers.

A row says of a picture (``ImageID``) and a label (``LabelName``) with which ``Confidence`` it is there. A name takes
dozens of bytes, its number four: so a file of any size needs little more memory than what is kept of it.

Letters in shape comments: N pictures, R rows, L labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.errors import DataError
from manylabel.types import LabelSpace

__all__ = ["ImageLevelLabels", "label_names_in", "read_image_level_labels"]

SCHEMA = {"ImageID": pl.String, "LabelName": pl.String, "Confidence": pl.Float64}
BLOCK_BYTES = 1 << 23  # a memory-mapped file would count, whole, as memory in use; larger blocks are no faster


@dataclass(frozen=True, eq=False)
class ImageLevelLabels:
    """What a file says: of which picture, which label, whether present or verified absent.

    Args:
        names: The pictures' identifiers, sorted, ``[N]``.
        pictures: Positions in `names`, ``[R]``.
        labels: Positions in the label space, ``[R]``.
        present: Whether the label is there, ``[R]``.
    """

    names: pl.Series
    pictures: NDArray[np.int32]
    labels: NDArray[np.int32]
    present: NDArray[np.bool_]


def read_image_level_labels(
    file: str | Path, space: LabelSpace, *, min_confidence: float | None = None
) -> ImageLevelLabels:
    r"""Read the rows of some labels.

    Args:
        file: A CSV file with the columns ``ImageID``, ``LabelName`` and ``Confidence``.
        space: The labels; rows of others are left out.
        min_confidence: From where on a confidence below 1 counts as present; below it, but for 0, a row is left out.

    Returns:
        The rows that say that a label is present or absent.

    Raises:
        DataError: A column is missing, or a confidence is neither 0 nor 1 and `min_confidence` is not given.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("ImageID,LabelName,Confidence\nb,/m/1,1\na,/m/1,0\na,/m/2,1\n")
        >>> found = read_image_level_labels(file, LabelSpace(["/m/1"]))
        >>> found.names.to_list(), found.pictures.tolist(), found.present.tolist()
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
        pictures=positions.take(table["run"].to_numpy()),
        labels=table["label"].to_numpy(),
        present=table["present"].to_numpy(),
    )


def _number(runs: pl.Series) -> tuple[pl.Series, NDArray[np.int32]]:
    """Return the names in order, and the position among them of each run of rows of one picture.

    The rows of a picture mostly stand together, so there are far fewer runs than rows; where they do not, it is
    slower but right.
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
    """Read the file in blocks of whole lines; no field of this form can hold a line break."""
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
            f"{file} has labels with a confidence that is neither 0 nor 1, such as {shades[0]}, as a model gives them; "
            "say from where on they count as present, for example min_confidence=0.8"
        )
