"""Files of scores: CSV, Parquet and npz, to evaluate models of other libraries and to compare runs later.

A table is long, with the columns image, label and score, or wide, with a column of images and one for each label.
An npz file holds the arrays ``scores`` ``[N, L]``, ``images`` and ``labels``, and optionally ``thresholds``,
``single_label``: whether the model predicts exactly one label per image, and ``bad_images`` with ``bad_reasons``: those
without scores, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from manylabel.data import ImageDataset
from manylabel.data.loading import most_bad
from manylabel.data.readers.layout import existing
from manylabel.data.readers.table import find_image_column, read_table
from manylabel.errors import DataError, list_choices
from manylabel.evaluation.scores import ScoredImages, match_labels
from manylabel.label_text import protect_cell
from manylabel.storage import replacing
from manylabel.types import BadImage

__all__ = ["SCORE_ENDINGS", "read_scores", "save_scores"]

SCORE_ENDINGS = (".csv", ".npz", ".parquet")


@dataclass(frozen=True, eq=False)
class _ScoreTable:
    """The content of a file: scores ``[N, L]``, NaN where there is none."""

    images: list[str]
    labels: list[str]
    scores: NDArray[np.float32]
    thresholds: tuple[float, ...] | None = None
    single_label: bool | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # why images have no scores


def read_scores(
    path: str | Path,
    dataset: ImageDataset,
    *,
    name: str | None = None,
    common_labels: bool = False,
    max_missing_fraction: float = 0.01,
) -> ScoredImages:
    r"""Read scores from a file and combine them with the targets of a dataset.

    Images are matched by name; where that finds too few, by file name without folders, or also without its ending.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.npz`` file, as this module describes.
        dataset: The images and targets.
        name: Name of the model in reports (default: that of the file).
        common_labels: Whether to evaluate only the labels that both have (default: the file must have all).
        max_missing_fraction: Fraction of the dataset's images that may lack scores; they are left out and listed.

    Returns:
        Scores and targets, in the dataset's order of images and labels.

    Raises:
        DataError: The file cannot be understood, or too many images have no scores.
        LabelError: The file lacks a label of the dataset.
        ConfigError: The scores are no probabilities.

    Examples:
        >>> import tempfile
        >>> from manylabel.data import scenes
        >>> dataset = scenes(2)
        >>> file = Path(tempfile.mkdtemp()) / "scores.csv"
        >>> names = [dataset.images.name(0), dataset.images.name(1)]
        >>> rows = [f"{name},{label},0.5\n" for name in names for label in dataset.labels]
        >>> _ = file.write_text("image,label,score\n" + "".join(rows))
        >>> read_scores(file, dataset).scores.shape == (2, len(dataset.labels))
        True
    """
    path = existing(path)
    name = name or path.name
    found = _read_npz(path) if path.suffix.lower() == ".npz" else _read_frame(read_table(path), path)
    match = match_labels(found.labels, dataset.labels, model=name, common_labels=common_labels)
    if len(match.names) < len(dataset.labels):
        dataset = dataset.select_labels(match.names)
    wanted = [dataset.images.name(index) for index in range(len(dataset))]
    rows = _match_images(found.images, wanted)
    missing, unsaid = np.flatnonzero(rows < 0), f"it has no scores in {path.name}"
    bad = tuple(BadImage(int(i), wanted[i], found.reasons.get(wanted[i], unsaid)) for i in missing)
    if len(bad) > most_bad(len(wanted), max_missing_fraction):
        raise DataError(
            f"{path} has no scores for {len(bad)} of the {len(wanted)} images of {dataset.name}, such as "
            f"{bad[0].name!r}; its own are named like {found.images[0] if found.images else 'nothing'!r}. "
            "Write the names that the dataset uses"
        )
    indices = np.flatnonzero(rows >= 0)
    scores = found.scores[rows[indices]][:, match.columns]
    _refuse_missing(scores, [wanted[index] for index in indices], match.names, path)
    return ScoredImages.from_dataset(
        dataset,
        indices,
        torch.from_numpy(scores),
        thresholds=None if found.thresholds is None else tuple(found.thresholds[column] for column in match.columns),
        single_label=_names_one(found, dataset),
        model=name,
        bad=bad,
        notes=match.notes,
    )


def _names_one(found: _ScoreTable, dataset: ImageDataset) -> bool:
    """Return whether the model predicts one label per image (default: as the dataset has it)."""
    if found.single_label is None:
        return dataset.single_label and found.thresholds is None
    return found.single_label


def save_scores(scored: ScoredImages, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write scores to a file that `read_scores` reads.

    Tables are wide; only npz keeps thresholds, and why images are bad.

    Args:
        scored: The scores.
        path: The file; ``.csv``, ``.parquet`` or ``.npz``.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.

    Raises:
        DataError: The ending is another, or a label is named like the column of images.
        OutputExistsError: The file exists and `overwrite` is false.

    Examples:
        >>> import tempfile
        >>> scored = ScoredImages.from_arrays([[0.5, 0.25]], [[1, 0]], labels=["cat", "dog"], names=["a.jpg"])
        >>> save_scores(scored, Path(tempfile.mkdtemp()) / "scores.csv").read_text().split()
        ['image,cat,dog', 'a.jpg,0.5,0.25']
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in SCORE_ENDINGS:
        raise DataError(f"cannot write scores to {path.name}; {list_choices(ending, SCORE_ENDINGS)}")
    if ending != ".npz" and "image" in scored.labels:
        raise DataError("a table of scores needs the column 'image', but a label is called so; write .npz instead")
    with replacing(path, overwrite=overwrite) as temporary:
        if ending == ".npz":
            _write_npz(scored, temporary)
        else:
            is_text = ending == ".csv"
            to_text = protect_cell if is_text else str  # no label may be a formula for a spreadsheet
            frame = pl.DataFrame(scored.scores.numpy(), schema=list(map(to_text, scored.labels)))
            frame.insert_column(0, pl.Series("image", map(to_text, scored.names), dtype=pl.String))
            (frame.write_csv if is_text else frame.write_parquet)(temporary)
    return path


def _write_npz(scored: ScoredImages, path: Path) -> None:
    arrays: dict[str, Any] = {
        "scores": scored.scores.numpy(),
        "images": np.array(scored.names, dtype=str),
        "labels": np.array(scored.labels.names, dtype=str),
        "single_label": np.array(scored.single_label),
    }
    if scored.thresholds is not None:
        arrays["thresholds"] = np.array(scored.thresholds)
    if scored.bad:
        arrays["bad_images"] = np.array([image.name for image in scored.bad], dtype=str)
        arrays["bad_reasons"] = np.array([image.reason for image in scored.bad], dtype=str)
    np.savez_compressed(path, **arrays)


def _read_npz(path: Path) -> _ScoreTable:
    """Read the arrays of an npz file; nothing in it is ever run."""
    try:
        # The file is opened here because numpy forgets to close one that turns out to be damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            content = {name: arrays[name] for name in arrays.files}
    except Exception as error:
        raise DataError(f"cannot read {path}: {error}; names must be arrays of text, np.array(names, str)") from error
    for wanted in ("scores", "images", "labels"):
        if wanted not in content:
            raise DataError(f"{path} has no array {wanted!r}; {list_choices(wanted, content)}")
    names = {what: _texts(content, what, path) for what in ("images", "labels", "bad_images", "bad_reasons")}
    scores = _floats(content, "scores", path)
    if scores.shape != (len(names["images"]), len(names["labels"])):
        expected = [len(names["images"]), len(names["labels"])]
        raise DataError(f"scores in {path} must be [images, labels] = {expected}, got {list(scores.shape)}")
    thresholds = _floats(content, "thresholds", path) if "thresholds" in content else None
    if thresholds is not None and (thresholds.shape != (len(names["labels"]),) or bool(np.isnan(thresholds).any())):
        count = len(names["labels"])
        raise DataError(f"thresholds in {path} must be {count} numbers, one for each label; got {thresholds.tolist()}")
    single_label = content.get("single_label")
    if single_label is not None and (single_label.shape != () or single_label.dtype != np.bool_):
        raise DataError(f"single_label in {path} must be true or false, got {single_label.tolist()!r}")
    return _ScoreTable(
        names["images"],
        names["labels"],
        scores,
        None if thresholds is None else tuple(thresholds.tolist()),
        None if single_label is None else bool(single_label),
        dict(zip(names["bad_images"], names["bad_reasons"], strict=False)),
    )


def _texts(content: Mapping[str, NDArray[Any]], what: str, path: Path) -> list[str]:
    """Return an array of names; empty where there is none."""
    array = content.get(what, np.zeros(0, dtype=str))
    if array.ndim != 1 or array.dtype.kind != "U":
        raise DataError(
            f"{what} in {path} must be a list of texts, got {array.dtype} {list(array.shape)}; "
            "write np.array(names, str)"
        )
    return [str(name) for name in array]


def _floats(content: Mapping[str, NDArray[Any]], what: str, path: Path) -> NDArray[np.float32]:
    """Return an array of numbers."""
    if content[what].dtype.kind not in "fiub":
        raise DataError(f"{what} in {path} must be numbers, got {content[what].dtype}")
    with np.errstate(over="ignore"):  # what becomes infinite is refused as no probability
        return content[what].astype(np.float32)


def _read_frame(frame: pl.DataFrame, path: Path) -> _ScoreTable:
    """Read a long or a wide table."""
    column = "image" if "image" in frame.columns else find_image_column(frame)
    wide = frame.drop(column)
    if set(wide.columns) == {"label", "score"}:
        return _read_long(frame.rename({column: "image"}), path)
    if not wide.columns:
        raise DataError(f"{path} has no column of scores next to {column!r}; give one for each label")
    images = frame[column].cast(pl.String).fill_null("").to_list()
    scores = np.stack([_numbers(wide[label], path) for label in wide.columns], axis=1)
    return _ScoreTable(images, wide.columns, scores)


def _read_long(frame: pl.DataFrame, path: Path) -> _ScoreTable:
    """Spread the rows of a long table over images and labels."""
    values = _numbers(frame["score"], path)
    names = {what: frame[what].cast(pl.String).fill_null("") for what in ("image", "label")}
    unique = {what: column.unique(maintain_order=True) for what, column in names.items()}
    rows, columns = (
        names[what].replace_strict(unique[what], np.arange(len(unique[what])), return_dtype=pl.Int64).to_numpy()
        for what in names
    )
    places = rows * len(unique["label"]) + columns
    if len(np.unique(places)) < len(places):
        ordered = np.sort(places)
        row, column = divmod(int(ordered[:-1][ordered[1:] == ordered[:-1]][0]), len(unique["label"]))
        where = f"image {unique['image'][row]!r} and label {unique['label'][column]!r}"
        raise DataError(f"{path} has two scores for {where}; keep one")
    scores = np.full((len(unique["image"]), len(unique["label"])), np.nan, dtype=np.float32)
    scores[rows, columns] = values
    return _ScoreTable(unique["image"].to_list(), unique["label"].to_list(), scores)


def _numbers(column: pl.Series, path: Path) -> NDArray[np.float32]:
    """Return a column as numbers, NaN where it is empty."""
    stripped = column.str.strip_chars() if column.dtype == pl.String else column
    numbers = stripped.cast(pl.Float32, strict=False)
    wrong = column.filter(numbers.is_null() & column.is_not_null())
    if len(wrong):
        raise DataError(f"scores must be numbers such as 0.25, got {wrong[0]!r} in column {column.name!r} of {path}")
    return numbers.fill_null(float("nan")).to_numpy()


def _match_images(offered: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Return where each wanted image is among those offered, -1 for those that are not, by the key that finds most.

    Raises:
        DataError: An image is offered twice.
    """
    if len(set(offered)) < len(offered):
        doubled = Counter(offered).most_common(1)[0][0]
        raise DataError(f"image {doubled!r} stands twice in the scores; keep one")
    best = np.full(len(wanted), -1)
    for key in (str, _file_name, _stem):
        places = {key(name): row for row, name in enumerate(offered)}
        asked = [key(name) for name in wanted]
        if len(places) == len(offered) and len(set(asked)) == len(asked):
            rows = np.array([places.get(name, -1) for name in asked], dtype=np.int64)
            best = max(best, rows, key=lambda found: int((found >= 0).sum()))
    return best


def _file_name(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _stem(name: str) -> str:
    return Path(_file_name(name)).stem


def _refuse_missing(scores: NDArray[np.float32], images: Sequence[str], labels: Sequence[str], path: Path) -> None:
    """Refuse an image that has scores for some of its labels only."""
    missing = np.argwhere(np.isnan(scores))
    if len(missing):
        row, column = missing[0]
        raise DataError(
            f"{path} lacks {len(missing)} of {scores.size} scores, such as that of image {images[row]!r} and "
            f"label {labels[column]!r}; write every score, 0 where a label is certainly absent"
        )
