"""Files of scores: CSV, Parquet and npz, so that models of other libraries can be judged and runs compared later.

A table is long, with the columns picture, label and score, or wide, with a column of pictures and one for each label.
An npz file holds the arrays ``scores`` ``[N, L]``, ``pictures`` and ``labels``, and if need be ``thresholds``,
``single_label``: whether the model names exactly one label of each picture, and ``bad_pictures`` with ``bad_reasons``:
those that have no scores, and why.
"""

from __future__ import annotations

import zipfile
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
from manylabel.storage import replacing
from manylabel.types import BadImage

__all__ = ["SCORE_ENDINGS", "read_scores", "save_scores"]

SCORE_ENDINGS = (".csv", ".npz", ".parquet")
_LONG = {"picture", "label", "score"}


@dataclass(frozen=True, eq=False)
class _ScoreTable:
    """What a file says: scores ``[N, L]``, NaN where there is none."""

    pictures: list[str]
    labels: list[str]
    scores: NDArray[np.float32]
    thresholds: tuple[float, ...] | None = None
    single_label: bool | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # why pictures have no scores


def read_scores(
    path: str | Path,
    dataset: ImageDataset,
    *,
    name: str | None = None,
    common_labels: bool = False,
    max_missing_share: float = 0.01,
) -> ScoredImages:
    r"""Read scores from a file and put them beside what a data set says.

    Pictures are matched by name; where that finds too few, by file name without folders, or also without its ending.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.npz`` file, as this module describes.
        dataset: The pictures, and what is true of them.
        name: What to call the model in reports; the file's name when left out.
        common_labels: Whether to judge only the labels that both have; otherwise all of the data set are needed.
        max_missing_share: The share of the data set's pictures that may lack scores, as `most_bad` counts; they are
            left out and listed.

    Returns:
        The scores beside the truth, in the data set's order of pictures and labels.

    Raises:
        DataError: The file cannot be understood, or too many pictures have no scores.
        LabelError: The file lacks a label of the data set.
        ConfigError: The scores are no probabilities.

    Examples:
        >>> import tempfile
        >>> from manylabel.data import scenes
        >>> dataset = scenes(2)
        >>> file = Path(tempfile.mkdtemp()) / "scores.csv"
        >>> names = [dataset.pictures.name(0), dataset.pictures.name(1)]
        >>> rows = [f"{name},{label},0.5\n" for name in names for label in dataset.labels]
        >>> _ = file.write_text("picture,label,score\n" + "".join(rows))
        >>> read_scores(file, dataset).scores.shape == (2, len(dataset.labels))
        True
    """
    path = existing(path)
    name = name or path.name
    found = _read_npz(path) if path.suffix.lower() == ".npz" else _read_frame(read_table(path), path)
    match = match_labels(found.labels, dataset.labels, model=name, common_labels=common_labels)
    if len(match.names) < len(dataset.labels):
        dataset = dataset.select_labels(match.names)
    wanted = [dataset.pictures.name(index) for index in range(len(dataset))]
    rows = _match_pictures(found.pictures, wanted)
    missing, unsaid = np.flatnonzero(rows < 0), f"it has no scores in {path.name}"
    bad = tuple(BadImage(int(i), wanted[i], found.reasons.get(wanted[i], unsaid)) for i in missing)
    if len(bad) > most_bad(len(wanted), max_missing_share):
        raise DataError(
            f"{path} has no scores for {len(bad)} of the {len(wanted)} pictures of {dataset.name}, such as "
            f"{bad[0].name!r}; it names its pictures like {found.pictures[0]!r}. Write the names that the data set uses"
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
    """Return whether the model names one label of each picture; where the file does not say so, as the data have it."""
    if found.single_label is None:
        return dataset.single_label and found.thresholds is None
    return found.single_label


def save_scores(scored: ScoredImages, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write scores to a file that `read_scores` reads.

    Tables are wide; only npz keeps what chooses tags, and why pictures are bad.

    Args:
        scored: The scores.
        path: Where; ``.csv``, ``.parquet`` or ``.npz``.
        overwrite: Whether a file that is there may be replaced.

    Returns:
        The path.

    Raises:
        DataError: The ending is another, or a label is called as the column of pictures.
        OutputExistsError: The file is there and `overwrite` is false.

    Examples:
        >>> import tempfile
        >>> scored = ScoredImages.from_arrays([[0.5, 0.25]], [[1, 0]], labels=["cat", "dog"], names=["a.jpg"])
        >>> save_scores(scored, Path(tempfile.mkdtemp()) / "scores.csv").read_text().split()
        ['picture,cat,dog', 'a.jpg,0.5,0.25']
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in SCORE_ENDINGS:
        raise DataError(f"cannot write scores to {path.name}; {list_choices(ending, SCORE_ENDINGS)}")
    if ending != ".npz" and "picture" in scored.labels:
        raise DataError("a table of scores needs the column 'picture', but a label is called so; write .npz instead")
    with replacing(path, overwrite=overwrite) as temporary:
        if ending == ".npz":
            _write_npz(scored, temporary)
        else:
            frame = pl.DataFrame(scored.scores.numpy(), schema=list(scored.labels))
            frame.insert_column(0, pl.Series("picture", scored.names, dtype=pl.String))
            (frame.write_csv if ending == ".csv" else frame.write_parquet)(temporary)
    return path


def _write_npz(scored: ScoredImages, path: Path) -> None:
    arrays: dict[str, Any] = {
        "scores": scored.scores.numpy(),
        "pictures": np.array(scored.names, dtype=str),
        "labels": np.array(scored.labels.names, dtype=str),
        "single_label": np.array(scored.single_label),
    }
    if scored.thresholds is not None:
        arrays["thresholds"] = np.array(scored.thresholds)
    if scored.bad:
        arrays["bad_pictures"] = np.array([picture.name for picture in scored.bad], dtype=str)
        arrays["bad_reasons"] = np.array([picture.reason for picture in scored.bad], dtype=str)
    np.savez_compressed(path, **arrays)


def _read_npz(path: Path) -> _ScoreTable:
    """Read the arrays of an npz file; nothing in it is ever run."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            content = {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"cannot read {path}: {error}; names must be arrays of text, np.array(names, str)") from error
    for wanted in ("scores", "pictures", "labels"):
        if wanted not in content:
            raise DataError(f"{path} has no array {wanted!r}; {list_choices(wanted, content)}")
    scores, pictures, labels = content["scores"], content["pictures"], content["labels"]
    if scores.shape != (len(pictures), len(labels)):
        expected = [len(pictures), len(labels)]
        raise DataError(f"scores in {path} must be [pictures, labels] = {expected}, got {list(scores.shape)}")
    thresholds = tuple(map(float, content["thresholds"])) if "thresholds" in content else None
    single_label = bool(content["single_label"]) if "single_label" in content else None
    bad = zip(content.get("bad_pictures", ()), content.get("bad_reasons", ()), strict=False)
    return _ScoreTable(
        list(map(str, pictures)),
        list(map(str, labels)),
        scores.astype(np.float32),
        thresholds,
        single_label,
        {str(name): str(reason) for name, reason in bad},
    )


def _read_frame(frame: pl.DataFrame, path: Path) -> _ScoreTable:
    """Read a long or a wide table."""
    if set(frame.columns) == _LONG:
        return _read_long(frame, path)
    column = "picture" if "picture" in frame.columns else find_image_column(frame)
    wide = frame.drop(column)
    if not wide.columns:
        raise DataError(f"{path} has no column of scores beside {column!r}; give one for each label")
    pictures = frame[column].cast(pl.String).fill_null("").to_list()
    scores = np.stack([_numbers(wide[label], path) for label in wide.columns], axis=1)
    return _ScoreTable(pictures, wide.columns, scores)


def _read_long(frame: pl.DataFrame, path: Path) -> _ScoreTable:
    """Spread the rows of a long table over pictures and labels."""
    values = _numbers(frame["score"], path)
    names = {what: frame[what].cast(pl.String).fill_null("") for what in ("picture", "label")}
    unique = {what: column.unique(maintain_order=True) for what, column in names.items()}
    rows, columns = (
        names[what].replace_strict(unique[what], np.arange(len(unique[what])), return_dtype=pl.Int64).to_numpy()
        for what in names
    )
    places = rows * len(unique["label"]) + columns
    if len(np.unique(places)) < len(places):
        ordered = np.sort(places)
        row, column = divmod(int(ordered[:-1][ordered[1:] == ordered[:-1]][0]), len(unique["label"]))
        where = f"picture {unique['picture'][row]!r} and label {unique['label'][column]!r}"
        raise DataError(f"{path} has two scores for {where}; keep one")
    scores = np.full((len(unique["picture"]), len(unique["label"])), np.nan, dtype=np.float32)
    scores[rows, columns] = values
    return _ScoreTable(unique["picture"].to_list(), unique["label"].to_list(), scores)


def _numbers(column: pl.Series, path: Path) -> NDArray[np.float32]:
    """Return a column as numbers, NaN where it is empty."""
    stripped = column.str.strip_chars() if column.dtype == pl.String else column
    numbers = stripped.cast(pl.Float32, strict=False)
    wrong = column.filter(numbers.is_null() & column.is_not_null())
    if len(wrong):
        raise DataError(f"scores must be numbers such as 0.25, got {wrong[0]!r} in column {column.name!r} of {path}")
    return numbers.fill_null(float("nan")).to_numpy()


def _match_pictures(offered: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Return where each wanted picture is among those offered, -1 for those that are not, by the key that finds most.

    Raises:
        DataError: A picture is offered twice.
    """
    if len(set(offered)) < len(offered):
        doubled = Counter(offered).most_common(1)[0][0]
        raise DataError(f"picture {doubled!r} stands twice in the scores; keep one")
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


def _refuse_missing(scores: NDArray[np.float32], pictures: Sequence[str], labels: Sequence[str], path: Path) -> None:
    """Refuse a picture that has scores for some of its labels only."""
    missing = np.argwhere(np.isnan(scores))
    if len(missing):
        row, column = missing[0]
        raise DataError(
            f"{path} lacks {len(missing)} of {scores.size} scores, such as that of picture {pictures[row]!r} and "
            f"label {labels[column]!r}; write every score, 0 where the model is sure that a label is absent"
        )
