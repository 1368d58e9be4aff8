"""Tuning of a trained model: calibration and thresholds from held-out data, evaluated by cross-validation.

Every image is evaluated once, with values fitted to the other folds; the final values are fitted to all images.

Letters in shape comments: N images, L labels.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from manylabel import page
from manylabel.classifier import CalibrationMethod, ScoreCalibration
from manylabel.data import stratified_folds
from manylabel.errors import ConfigError
from manylabel.evaluation import METRICS, ScoredImages
from manylabel.evaluation.pages import draw_calibration
from manylabel.metrics import CalibrationBin, calibration, precision_recall, top_labels
from manylabel.page import Cell, Fraction, Html, plural, some
from manylabel.targets import Targets
from manylabel.tuning.calibration import BLOCK, fit_platt, fit_temperature
from manylabel.tuning.thresholds import Objective, Thresholds, choose_thresholds

SMALLEST = 1e-7  # float32 scores come no closer to 0 or 1

_SHARED = ("CP", "CR", "CF1", "OP", "OR", "OF1", "calibration_error")
METRIC_TITLES = {**{name: METRICS[name].title for name in _SHARED}, "log_loss": "log loss"}


@dataclass(frozen=True, eq=False)
class Performance:
    """Quality of predictions and scores, on images not used for tuning.

    Args:
        metrics: Values by the names in `METRIC_TITLES`.
        label_f1: ``[L]``, F1 of each label; NaN where it has no positives.
        bins: Calibration of the scores.
    """

    metrics: dict[str, float]
    label_f1: Tensor
    bins: tuple[CalibrationBin, ...]


@dataclass(frozen=True)
class TunedLabel:
    """Tuning of one label."""

    name: str
    positives: int
    threshold: float | None
    f1_before: float | None
    f1_after: float | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Tuning:
    """Tuned values, and the quality of the model before and after.

    Args:
        calibration: Calibration of the scores.
        thresholds: Lowest calibrated score that counts as present, per label; None for single-label models, which
            predict the most confident label.
        labels: Tuning of each label.
        before: Quality of the model before tuning.
        after: Quality of the tuned model, on images not used for tuning.
        objective: Objective of the thresholds, if any.
        num_images: Number of images.
        num_folds: Number of cross-validation folds.
        notes: Remarks for the reader.
    """

    calibration: ScoreCalibration | None
    thresholds: tuple[float, ...] | None
    labels: tuple[TunedLabel, ...]
    before: Performance
    after: Performance
    objective: Objective | None
    num_images: int
    num_folds: int
    notes: tuple[str, ...]

    @property
    def aim(self) -> str:
        """Description of what was tuned."""
        return "calibration only" if self.objective is None else f"thresholds for {self.objective}".replace("f1", "F1")


class _Fit(NamedTuple):
    """Calibration and thresholds fitted to some images; no thresholds for single-label models."""

    calibration: ScoreCalibration | None
    thresholds: Thresholds | None
    not_fitted: Tensor  # [L], labels that share a calibration


def tune(
    scored: ScoredImages,
    *,
    method: CalibrationMethod | Literal["none"] = "platt",
    objective: Objective | None = None,
    current: ScoreCalibration | None = None,
    min_positives: int = 10,
    num_folds: int = 5,
) -> Tuning:
    """Fit calibration and thresholds; calibration only for single-label models.

    Args:
        scored: Scores of the model *without* calibration and the targets, on data it was not trained on; its
            thresholds are the model's current ones.
        method: Calibration method; for Platt scaling, rare labels share a pair of values, and single-label models get a
            temperature.
        objective: Objective of the thresholds (default: F1).
        current: The model's current calibration.
        min_positives: Labels present in fewer images are not fitted individually.
        num_folds: Number of cross-validation folds.

    Returns:
        The tuned values, and the model's quality before and after.

    Raises:
        ConfigError: A setting is invalid, or there are too few images.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> targets = torch.rand(400, 2, generator=generator) < 0.3
        >>> logits = 2.0 * targets - 3 + torch.randn(400, 2, generator=generator)
        >>> scored = ScoredImages.from_arrays(logits.sigmoid(), targets, labels=["cat", "dog"])
        >>> result = tune(scored)
        >>> result.after.metrics["OF1"] > result.before.metrics["OF1"]
        True
    """
    objective, single_label = objective or Objective(), scored.single_label
    if not 2 <= num_folds <= len(scored):
        raise ConfigError(f"num_folds must be in 2..{len(scored)}, the number of images, got {num_folds}")
    logits = to_logits(scored.scores, single_label=single_label)

    def fit(rows: Tensor) -> _Fit:
        part = logits[rows], scored.targets[rows], scored.known[rows]
        fitted, not_fitted = _calibrate(*part, method, min_positives, single_label=single_label)
        if single_label:
            return _Fit(fitted, None, not_fitted)
        scores = to_scores(logits[rows], fitted, single_label=False)
        thresholds = choose_thresholds(scores, *part[1:], objective=objective, min_positives=min_positives)
        return _Fit(fitted, thresholds, not_fitted)

    scores, decisions = torch.empty_like(scored.scores), torch.empty_like(scored.targets)
    targets = Targets(csr_array(scored.targets.numpy()))
    for train, test in stratified_folds(targets, num_folds=num_folds):
        fitted, rows = fit(torch.from_numpy(train)), torch.from_numpy(test)
        scores[rows] = to_scores(logits[rows], fitted.calibration, single_label=single_label)
        decisions[rows] = _decide(scores[rows], fitted.thresholds and fitted.thresholds.values)
    final = fit(torch.arange(len(scored)))
    old = to_scores(logits, current, single_label=single_label)
    limits = torch.tensor(scored.thresholds if scored.thresholds is not None else [0.5] * len(scored.labels))
    before = _measure(scored, old, _decide(old, None if single_label else limits))
    after = _measure(scored, scores, decisions)
    return Tuning(
        calibration=final.calibration,
        thresholds=None if final.thresholds is None else tuple(final.thresholds.values.tolist()),
        labels=_tuned_labels(scored, final.thresholds, before, after, objective),
        before=before,
        after=after,
        objective=None if single_label else objective,
        num_images=len(scored),
        num_folds=num_folds,
        notes=(*scored.notes, *_notes(scored, final, objective, min_positives)),
    )


def tuning_page(tuning: Tuning, *, model: str, dataset: str) -> page.Page:
    """Return a page with the quality before and after tuning.

    Args:
        tuning: The tuning.
        model: Name of the model.
        dataset: Name of the dataset.
    """
    before, after = tuning.before.metrics, tuning.after.metrics
    tiles = [
        (f"{100 * after[name]:.1f} %", METRIC_TITLES[name], f"was {100 * before[name]:.1f} %")
        for name in ("CF1", "OF1", "calibration_error")
    ]
    rows = [
        [
            title,
            *((round(value, 3) if name == "log_loss" else Fraction(value)) for value in (before[name], after[name])),
        ]
        for name, title in METRIC_TITLES.items()
    ]
    curves = draw_calibration({"before": tuning.before.bins, "after": tuning.after.bins})
    subtitle = f"{plural(tuning.num_images, 'image')} of {dataset}, {tuning.aim}"
    parts = [
        page.tiles(tiles),
        page.text(
            f"Cross-validated: every image is evaluated with values fitted to the other {tuning.num_folds - 1} of "
            f"{tuning.num_folds} folds. The saved values are fitted to all images."
        ),
        *map(page.note, tuning.notes),
        page.heading("Before and after"),
        page.columns(page.table(["metric", "before", "after"], rows), curves),
        page.heading("Labels"),
        _label_table(tuning),
    ]
    return page.Page(f"Tuning of {model}", subtitle, parts)


def to_logits(scores: Tensor, *, single_label: bool) -> Tensor:
    """Return logits that give these scores."""
    clipped = scores.double().clamp(SMALLEST, 1 - SMALLEST)
    return (clipped.log() if single_label else clipped.logit()).float()


def to_scores(logits: Tensor, fitted: ScoreCalibration | None, *, single_label: bool) -> Tensor:
    """Return calibrated scores of logits."""
    changed = logits if fitted is None else fitted.apply(logits)
    return changed.softmax(dim=1) if single_label else changed.sigmoid()


def _decide(scores: Tensor, limits: Tensor | None) -> Tensor:
    """Predict labels that reach their limit, or without limits the most confident one per image, ``[N, L]``."""
    return top_labels(scores, 1) if limits is None else scores >= limits


def _calibrate(
    logits: Tensor,
    targets: Tensor,
    known: Tensor,
    method: CalibrationMethod | Literal["none"],
    min_positives: int,
    *,
    single_label: bool,
) -> tuple[ScoreCalibration | None, Tensor]:
    """Return a calibration, and a mask of labels that were not fitted individually, ``[L]``."""
    not_fitted = torch.zeros(logits.shape[1], dtype=torch.bool)
    if method == "none":
        return None, not_fitted
    if method == "platt" and not single_label:
        own = fit_platt(logits, targets, known, min_positives=min_positives)
        not_fitted = ~own.fitted
        every = 1 + int(not_fitted.sum()) * len(logits) // BLOCK  # of many images and labels, some images suffice
        pooled = (matrix[::every, not_fitted].reshape(-1, 1) for matrix in (logits, targets, known))
        shared = fit_platt(*pooled, min_positives=1)
        scale, shift = (
            torch.where(own.fitted, own.scale, shared.scale),
            torch.where(own.fitted, own.shift, shared.shift),
        )
        return ScoreCalibration("platt", tuple(scale.tolist()), tuple(shift.tolist())), not_fitted
    scale = torch.full((logits.shape[1],), 1 / fit_temperature(logits, targets, known, single_label=single_label))
    return ScoreCalibration("temperature", tuple(scale.tolist()), (0.0,) * len(scale)), not_fitted


def _measure(scored: ScoredImages, scores: Tensor, decisions: Tensor) -> Performance:
    found = precision_recall(decisions.float(), scored.targets, scored.known)
    bins = calibration(scores, scored.targets, scored.known)
    losses = F.binary_cross_entropy(scores.clamp(SMALLEST, 1 - SMALLEST), scored.targets.float(), reduction="none")
    metrics = {**found.averages, "calibration_error": bins.error, "log_loss": losses[scored.known].mean()}
    values = {name: float(value) for name, value in metrics.items()}
    return Performance(values, found.label_f1, bins.bins)


def _tuned_labels(
    scored: ScoredImages,
    thresholds: Thresholds | None,
    before: Performance,
    after: Performance,
    objective: Objective,
) -> tuple[TunedLabel, ...]:
    positives = (scored.targets & scored.known).sum(dim=0).tolist()
    values: list[float | None] = [None] * len(positives)
    notes = [""] * len(positives)
    if thresholds is not None:
        values = thresholds.values.tolist()
        notes = [
            "too rare: common threshold" if rare else f"{objective} is out of reach: common threshold" if far else ""
            for rare, far in zip(thresholds.too_rare.tolist(), thresholds.out_of_reach.tolist(), strict=True)
        ]
    f1 = ([None if math.isnan(value) else value for value in each.label_f1.tolist()] for each in (before, after))
    columns = map(scored.labels.display, scored.labels), positives, values, *f1, notes
    return tuple(TunedLabel(*row) for row in zip(*columns, strict=True))


def _notes(scored: ScoredImages, final: _Fit, objective: Objective, min_positives: int) -> list[str]:
    """List labels that were not fitted individually, or why there are no thresholds."""
    if final.thresholds is None:
        return ["The model predicts the most confident label of each image, so there are no thresholds to tune."]
    common = f"the common threshold, {100 * final.thresholds.common:.1f} %"
    cases = (
        (final.thresholds.too_rare, f"fewer than {min_positives} images, and got {common}"),
        (final.thresholds.out_of_reach, f"no threshold with {objective}, and got {common}"),
        (final.not_fitted, "too few images or too poor scores for Platt scaling of their own, and share one"),
    )
    notes = []
    for mask, words in cases:
        names = [scored.labels.display(scored.labels[column]) for column in mask.nonzero().flatten().tolist()]
        if names:
            verb = "has" if len(names) == 1 else "have"
            notes.append(f"{plural(len(names), 'label')} {verb} {words}: {some(names, at_most=8)}.")
    return notes


def _label_table(tuning: Tuning) -> Html:
    columns = {"label": "name", "images": "positives", "F1 before": "f1_before", "F1 after": "f1_after"}
    if tuning.thresholds is not None:
        columns["threshold"] = "threshold"
    if any(label.note for label in tuning.labels):
        columns["note"] = "note"

    def cell(value: str | float | None) -> Cell:
        return Fraction(value) if isinstance(value, float) else value

    rows = [[cell(getattr(label, field)) for field in columns.values()] for label in tuning.labels]
    return page.table(list(columns), rows)
