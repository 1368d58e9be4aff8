"""Files of scores: CSV, Parquet and npz, to evaluate models of other libraries and to compare runs later.

A table is long, with the columns image, label and score, or wide, with a column of images and one for each label.
An npz file holds the arrays ``scores`` ``[N, L]``, ``images`` and ``labels``, and optionally ``thresholds``,
``single_label`` (whether the model predicts exactly one label per image), and ``bad_images`` with ``bad_reasons``
(images without scores, and why).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PureWindowsPath
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

SCORE_ENDINGS = (".csv", ".npz", ".parquet")

_TEXTS = ("images", "labels", "bad_images", "bad_reasons")  # arrays of npz files


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Content of a file; missing scores ``[N, L]`` are NaN."""

    path: Path
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

    Images are matched by name, by file name, or by file name without extension, whichever finds most.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.npz`` file, as this module describes.
        dataset: The images and targets.
        name: Name of the model in reports (default: that of the file).
        common_labels: Whether to evaluate only the labels that both have (default: the file must have all).
        max_missing_fraction: Fraction of the dataset's images that may lack scores; they are skipped and listed.

    Returns:
        Scores and targets, in the dataset's order of images and labels.

    Raises:
        DataError: The file cannot be understood, or too many images have no scores.
        LabelError: The file lacks a label of the dataset.
        ConfigError: The scores are not probabilities.

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
    found = read_score_table(path)
    return match_scores(
        found,
        dataset,
        name=name or found.path.name,
        common_labels=common_labels,
        max_missing_fraction=max_missing_fraction,
    )


def read_score_table(path: str | Path) -> ScoreTable:
    """Read a file of scores, without a dataset.

    Raises:
        DataError: The file cannot be understood.
    """
    path = existing(path)
    return _read_npz(path) if path.suffix.lower() == ".npz" else _read_frame(read_table(path), path)


def match_scores(
    found: ScoreTable,
    dataset: ImageDataset,
    *,
    name: str,
    common_labels: bool = False,
    max_missing_fraction: float = 0.01,
) -> ScoredImages:
    """Combine the content of a file with the targets of a dataset; see `read_scores`."""
    path = found.path
    dataset, columns, notes = match_labels(found.labels, dataset, model=name, common_labels=common_labels)
    wanted = [dataset.images.name(index) for index in range(len(dataset))]
    rows = _match_images(found.images, wanted)
    default = f"it has no scores in {path.name}"
    bad = tuple(BadImage(int(i), wanted[i], found.reasons.get(wanted[i], default)) for i in np.flatnonzero(rows < 0))
    if len(bad) > most_bad(len(wanted), max_missing_fraction):
        raise DataError(
            f"{path} has no scores for {len(bad)} of the {len(wanted)} images of {dataset.name}, such as "
            f"{bad[0].name!r}; its own have names such as {found.images[0] if found.images else 'nothing'!r}. "
            "Use the names of the dataset, or a dataset of the images that have scores"
        )
    indices = np.flatnonzero(rows >= 0)
    scores = found.scores[rows[indices]][:, columns]
    missing = np.argwhere(np.isnan(scores))
    if len(missing):
        row, column = missing[0]
        raise DataError(
            f"{path} lacks {len(missing)} of {scores.size} scores, such as that of image {wanted[indices[row]]!r} and "
            f"label {dataset.labels[column]!r}; write every score, 0 where a label is certainly absent"
        )
    single_label = found.single_label
    if single_label is None:
        single_label = dataset.single_label and found.thresholds is None
    return replace(
        ScoredImages.from_dataset(dataset, indices, torch.from_numpy(scores)),
        thresholds=None if found.thresholds is None else tuple(found.thresholds[column] for column in columns),
        single_label=single_label,
        model=name,
        bad=bad,
        notes=tuple(notes),
    )


def save_scores(scored: ScoredImages, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write scores to a file that `read_scores` reads.

    Tables are wide; only npz files hold thresholds and the reasons of bad images.

    Args:
        scored: The scores.
        path: The file; ``.csv``, ``.parquet`` or ``.npz``.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.

    Raises:
        DataError: The file extension is unknown, or a label is named like the column of images.
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
        raise DataError("a table of scores needs the column 'image', but a label has this name; write .npz instead")
    with replacing(path, overwrite=overwrite) as temporary:
        if ending == ".npz":
            _write_npz(scored, temporary)
        else:
            is_text = ending == ".csv"
            to_text = protect_cell if is_text else str  # no label may become a spreadsheet formula
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


def _read_npz(path: Path) -> ScoreTable:
    """Read the arrays of an npz file, never code."""
    try:
        # Opened here: numpy does not close damaged files.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            content = {name: arrays[name] for name in arrays.files}
    except Exception as error:
        raise DataError(f"cannot read {path}: {error}; names must be arrays of text, np.array(names, str)") from error
    for wanted in ("scores", "images", "labels"):
        if wanted not in content:
            raise DataError(f"{path} has no array {wanted!r}; {list_choices(wanted, content)}")

    def wrong(what: str, expected: str, got: object) -> DataError:
        return DataError(f"{what} in {path} must be {expected}, got {got}")

    names = {what: content.get(what, np.zeros(0, dtype=str)) for what in _TEXTS}
    for what, array in names.items():
        if array.ndim != 1 or array.dtype.kind != "U":
            raise wrong(what, "a list of strings", f"{array.dtype} {list(array.shape)}; write np.array(names, str)")
    numbers = {what: content[what] for what in ("scores", "thresholds") if what in content}
    shape = len(names["images"]), len(names["labels"])
    for what, array in numbers.items():
        if array.dtype.kind not in "fiub":
            raise wrong(what, "numbers", array.dtype)
    scores, thresholds, single_label = numbers["scores"], numbers.get("thresholds"), content.get("single_label")
    if scores.shape != shape:
        raise wrong("scores", f"[images, labels] = {list(shape)}", list(scores.shape))
    if thresholds is not None and (thresholds.shape != shape[1:] or bool(np.isnan(thresholds).any())):
        raise wrong("thresholds", f"{shape[1]} numbers, one for each label", thresholds.tolist())
    if single_label is not None and (single_label.shape != () or single_label.dtype != np.bool_):
        raise wrong("single_label", "true or false", repr(single_label.tolist()))
    images, labels, bad_images, reasons = (array.tolist() for array in names.values())
    with np.errstate(over="ignore"):  # infinity is refused later
        return ScoreTable(
            path,
            images,
            labels,
            scores.astype(np.float32),
            None if thresholds is None else tuple(thresholds.tolist()),
            None if single_label is None else bool(single_label),
            dict(zip(bad_images, reasons, strict=False)),
        )


def _read_frame(frame: pl.DataFrame, path: Path) -> ScoreTable:
    """Read a long or a wide table."""
    column = "image" if "image" in frame.columns else find_image_column(frame)
    images, scores = frame[column].cast(pl.String).fill_null(""), frame.drop(column)
    if set(scores.columns) == {"label", "score"}:
        images, scores = _spread(images, scores, path)
    if not scores.columns:
        raise DataError(f"{path} has no column of scores next to {column!r}; add one for each label")
    numbers = np.stack([_numbers(scores[label], path) for label in scores.columns], axis=1)
    return ScoreTable(path, images.to_list(), scores.columns, numbers)


def _spread(images: pl.Series, scores: pl.DataFrame, path: Path) -> tuple[pl.Series, pl.DataFrame]:
    """Spread the rows of a long table over images and labels."""
    index = "\0"  # no label has this name
    labels = scores["label"].cast(pl.String).fill_null("")
    long = pl.DataFrame([images.alias(index), labels, scores["score"]])
    doubled = long.filter(long.select(index, "label").is_duplicated())
    if len(doubled):
        where = f"image {doubled[0, 0]!r} and label {doubled[0, 1]!r}"
        raise DataError(f"{path} has two scores for {where}; remove one")
    wide = long.pivot("label", index=index, values="score")
    return wide[index], wide.drop(index)


def _numbers(column: pl.Series, path: Path) -> NDArray[np.float32]:
    """Return a column as numbers, NaN for empty cells."""
    stripped = column.str.strip_chars() if column.dtype == pl.String else column
    numbers = stripped.cast(pl.Float32, strict=False)
    wrong = column.filter(numbers.is_null() & column.is_not_null())
    if len(wrong):
        raise DataError(f"scores must be numbers such as 0.25, got {wrong[0]!r} in column {column.name!r} of {path}")
    return numbers.fill_null(float("nan")).to_numpy()


def _match_images(offered: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Return the row of each wanted image among those offered, -1 if there is none, by the key that finds most.

    Raises:
        DataError: An image is offered twice.
    """
    if len(set(offered)) < len(offered):
        doubled = Counter(offered).most_common(1)[0][0]
        raise DataError(f"image {doubled!r} occurs twice in the scores; remove one")
    best = np.full(len(wanted), -1)
    keys_of: tuple[Callable[[str], str], ...] = (
        str,
        lambda name: PureWindowsPath(name).name,  # either slash separates folders
        lambda name: PureWindowsPath(name).stem,
    )
    for key_of in keys_of:
        rows_by_key = {key_of(name): row for row, name in enumerate(offered)}
        keys = [key_of(name) for name in wanted]
        if len(rows_by_key) == len(offered) and len(set(keys)) == len(keys):
            rows = np.array([rows_by_key.get(key, -1) for key in keys], dtype=np.int64)
            best = max(best, rows, key=lambda found: int((found >= 0).sum()))
    return best
