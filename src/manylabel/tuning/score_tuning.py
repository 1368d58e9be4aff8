"""Thresholds and calibration for files of scores of any program, saved as JSON and applied to further scores."""

from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import msgspec
import numpy as np
import torch
from numpy.typing import ArrayLike

from manylabel.classifier import CalibrationMethod, ScoreCalibration
from manylabel.data import ImageDataset
from manylabel.data.readers.layout import existing
from manylabel.errors import ConfigError, DataError, LabelError, list_choices
from manylabel.evaluation.score_files import match_scores, read_score_table
from manylabel.predictions import Predictions
from manylabel.storage import write_text
from manylabel.tuning.thresholds import Objective
from manylabel.tuning.tune import Tuning, to_logits, to_scores, tune
from manylabel.types import LabelSpace


class ScoreTuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds and calibration of the scores of any program.

    Attributes:
        labels: The labels.
        calibration: Calibration of their logits: a probability of ``sigmoid(scale * logit + shift)``, if any.
        thresholds: Lowest calibrated score of each label to become a tag; None for single-label data.
        raw: Whether scores are real numbers that the calibration takes as logits, such as similarities, instead of
            probabilities.
        single_label: Whether the only tag of an image is its most confident label.

    Examples:
        >>> platt = ScoreCalibration("platt", scale=(40.0, 40.0), shift=(-9.0, -10.0))
        >>> tuning = ScoreTuning(("cat", "dog"), platt, thresholds=(0.5, 0.5), raw=True)
        >>> tuning.apply([[0.27, 0.21]], names=["a.jpg"])
        a.jpg: cat 0.86
        [1 image, 2 labels]
    """

    labels: tuple[str, ...]
    calibration: ScoreCalibration | None
    thresholds: tuple[float, ...] | None
    raw: bool = False
    single_label: bool = False

    def __post_init__(self) -> None:
        scales = None if self.calibration is None else self.calibration.scale
        given = {"thresholds": self.thresholds, "calibration": scales}
        for name, values in given.items():
            if values is not None and len(values) != len(self.labels):
                raise ConfigError(f"{name} must have a value for each of {len(self.labels)} labels, got {len(values)}")

    def apply(self, scores: ArrayLike, *, names: list[str], labels: list[str] | None = None) -> Predictions:
        """Return calibrated scores and tags.

        Args:
            scores: ``[N, L]``, of the same kind as those tuned on.
            names: Name of each image.
            labels: Label of each column, in any order (default: those tuned on); further ones are ignored.

        Raises:
            LabelError: A label is missing.
            ConfigError: The scores are not probabilities, unless `raw`.
        """
        column_of = {label: column for column, label in enumerate(self.labels if labels is None else labels)}
        for label in self.labels:
            if label not in column_of:
                raise LabelError(f"the scores lack label {label!r}; {list_choices(label, column_of)}")
        values = torch.as_tensor(np.asarray(scores, dtype=np.float32))[:, [column_of[label] for label in self.labels]]
        if not self.raw:
            _check_probabilities(values.numpy())
        logits = values if self.raw else to_logits(values, single_label=self.single_label)
        calibrated = to_scores(logits, self.calibration, single_label=self.single_label).numpy()
        return Predictions(calibrated, LabelSpace(self.labels), names, self.thresholds, self.single_label)

    def apply_file(self, path: str | Path) -> Predictions:
        """Return calibrated scores and tags of a file of scores (.csv, .parquet or .npz).

        Raises:
            DataError: The file cannot be understood, or a score is missing.
        """
        table = read_score_table(path)
        if np.isnan(table.scores).any():
            raise DataError(f"{path} lacks {int(np.isnan(table.scores).sum())} of {table.scores.size} scores; add them")
        return self.apply(table.scores, names=table.images, labels=table.labels)

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write a JSON file.

        Raises:
            OutputExistsError: The file exists and `overwrite` is false.
        """
        text = msgspec.json.format(msgspec.json.encode(self)).decode()
        return write_text(path, text + "\n", overwrite=overwrite)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a JSON file.

        Raises:
            DataError: There is no such file, or it was not written by `write`.
        """
        try:
            return msgspec.json.decode(existing(path).read_bytes(), type=cls)
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise DataError(
                f"{path} is not a tuning: {error}; write one with: manylabel tune DATA --scores FILE --out tuning.json"
            ) from error


def tune_scores(
    path: str | Path,
    dataset: ImageDataset,
    *,
    raw: bool = False,
    method: CalibrationMethod | Literal["none"] = "platt",
    objective: Objective | None = None,
    common_labels: bool = False,
    num_folds: int = 5,
) -> tuple[Tuning, ScoreTuning]:
    """Fit thresholds and calibration to a file of scores of any program.

    Args:
        path: A file of scores, as for `manylabel.evaluation.read_scores`.
        dataset: The images and their true labels; the program must not have been trained on them.
        raw: Whether scores are any real numbers, such as logits or CLIP similarities, instead of probabilities.
        method: Calibration method; raw scores need one.
        objective: Objective of the thresholds (default: F1).
        common_labels: Whether to tune only the labels that both have (default: the file must have all).
        num_folds: Number of cross-validation folds.

    Returns:
        The tuning with its quality before and after, and what `ScoreTuning.apply` needs. Before tuning, the threshold
        of raw scores is their mean.

    Raises:
        ConfigError: The scores are not probabilities, unless `raw`; or raw scores cannot be tuned like this.
        DataError: The file does not fit the dataset.
    """
    table = read_score_table(path)
    centre, spread = 0.0, 1.0
    if raw:
        if method == "none" or dataset.single_label:
            fix = "choose platt or temperature" if method == "none" else "apply softmax to the scores of each image"
            raise ConfigError(f"raw scores need a calibration to probabilities of single labels; {fix}")
        # Scores go through a sigmoid in float32, which would round logits of 20 to 1.
        centre, spread = float(np.nanmean(table.scores)), max(float(np.nanstd(table.scores)), 1e-12)
        table = replace(table, scores=torch.from_numpy((table.scores - centre) / spread).sigmoid().numpy())
    else:
        _check_probabilities(table.scores)
    scored = match_scores(table, dataset, name=Path(path).name, common_labels=common_labels)
    result = tune(scored, method=method, objective=objective, num_folds=num_folds)
    fitted = result.calibration
    if raw and fitted is not None:
        scale = tuple(each / spread for each in fitted.scale)
        shift = tuple(bias - factor * centre for bias, factor in zip(fitted.shift, scale, strict=True))
        fitted = ScoreCalibration(fitted.method, scale, shift)
    return result, ScoreTuning(scored.labels.names, fitted, result.thresholds, raw, scored.single_label)


def _check_probabilities(scores: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    if scores.size and not (np.nanmin(scores) >= 0 and np.nanmax(scores) <= 1):
        raise ConfigError(
            f"scores must be probabilities in 0..1, got {np.nanmin(scores):.4g} to {np.nanmax(scores):.4g}; if they "
            "are logits or similarities, tune them as raw scores (--raw)"
        )
