"""Tuning a trained model: calibration and thresholds from held-out data, judged on pictures not used for them.

Every picture is judged once, by numbers fitted to the other folds; what is kept in the end is fitted to all of them.

Letters in shape comments: N pictures, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from manylabel.classifier import CalibrationMethod, ScoreCalibration
from manylabel.data import stratified_folds
from manylabel.errors import ConfigError
from manylabel.evaluation import ScoredImages
from manylabel.metrics import calibration as bin_scores
from manylabel.metrics import precision_recall, top_labels
from manylabel.metrics.calibration import Calibration
from manylabel.targets import Targets
from manylabel.tuning.calibrating import fit_platt, fit_temperature
from manylabel.tuning.thresholds import Objective, Thresholds, choose_thresholds

__all__ = ["Method", "Performance", "TunedLabel", "Tuning", "tune"]

Method = CalibrationMethod | Literal["none"]
SMALLEST = 1e-7  # scores in float32 do not come nearer to 0 or 1


@dataclass(frozen=True, eq=False)
class Performance:
    """How good decisions and scores are, on pictures not used for tuning.

    Args:
        measures: By name: CP, CR, CF1, OP, OR, OF1, calibration_error and log_loss.
        label_f1: ``[L]``, the F1 of each label; 0 where it has no positives.
        bins: How often scores are right.
    """

    measures: dict[str, float]
    label_f1: Tensor
    bins: Calibration


@dataclass(frozen=True)
class TunedLabel:
    """What became of one label."""

    name: str
    positives: int
    threshold: float | None
    f1_before: float
    f1_after: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was found, and what it is good for.

    Args:
        calibration: What is done to logits before they become scores.
        thresholds: From which calibrated score on a label counts as present; none for single-label models, which name
            the surest.
        labels: What became of each label.
        before: The model as it was.
        after: The model as it is now; on pictures that were not used.
        objective: What thresholds were chosen for, where they were.
        num_pictures: Pictures that were used and judged.
        num_folds: Folds that took turns.
        notes: What a reader should know.
    """

    calibration: ScoreCalibration | None
    thresholds: tuple[float, ...] | None
    labels: tuple[TunedLabel, ...]
    before: Performance
    after: Performance
    objective: Objective | None
    num_pictures: int
    num_folds: int
    notes: tuple[str, ...]


class _Fit(NamedTuple):
    """Calibration and thresholds of some pictures; no thresholds for single-label models."""

    calibration: ScoreCalibration | None
    thresholds: Thresholds | None
    not_fitted: Tensor  # [L], labels whose Platt numbers are those of the temperature

    @property
    def limits(self) -> Tensor | None:
        return None if self.thresholds is None else self.thresholds.values


def tune(
    scored: ScoredImages,
    *,
    method: Method = "platt",
    objective: Objective | None = None,
    current: ScoreCalibration | None = None,
    min_positives: int = 10,
    num_folds: int = 5,
    seed: int = 0,
) -> Tuning:
    """Fit calibration and thresholds; for a single-label model, which names the surest label, calibration alone.

    Args:
        scored: Scores of the model *without* calibration, beside the truth, on data it was not trained on; its
            thresholds are those that the model has so far.
        method: How scores are calibrated; Platt's method falls back to a temperature for rare labels, and for models
            that name one label of each picture.
        objective: What thresholds are chosen for; F1 when left out.
        current: The calibration that the model has so far.
        min_positives: Labels that fewer pictures have are not fitted on their own.
        num_folds: How many parts take turns at not being used.
        seed: Another seed gives other parts.

    Returns:
        What was found, and how good the model was and is.

    Raises:
        ConfigError: A setting is wrong, or there are too few pictures.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> targets = torch.rand(400, 2, generator=generator) < 0.3
        >>> logits = 2.0 * targets - 3 + torch.randn(400, 2, generator=generator)
        >>> scored = ScoredImages.from_arrays(logits.sigmoid(), targets, labels=["cat", "dog"])
        >>> result = tune(scored)
        >>> result.after.measures["OF1"] > result.before.measures["OF1"]
        True
    """
    objective = objective or Objective()
    if not 2 <= num_folds <= len(scored):
        raise ConfigError(f"num_folds must be in 2..{len(scored)}, the number of pictures, got {num_folds}")
    logits = _logits(scored.scores, single_label=scored.single_label)

    def fit(rows: Tensor) -> _Fit:
        part = logits[rows], scored.targets[rows], scored.known[rows]
        return _fit(*part, method, objective, min_positives, single_label=scored.single_label)

    scores, decisions = torch.empty_like(scored.scores), torch.empty_like(scored.targets)
    targets = Targets(csr_array(scored.targets.numpy()))
    for used, unused in stratified_folds(targets, num_folds=num_folds, seed=seed):
        fitted, rows = fit(torch.from_numpy(used)), torch.from_numpy(unused)
        scores[rows] = _scores(logits[rows], fitted.calibration, single_label=scored.single_label)
        decisions[rows] = _decide(scores[rows], fitted.limits)
    final = fit(torch.arange(len(scored)))
    old = _scores(logits, current, single_label=scored.single_label)
    limits = torch.tensor(scored.thresholds if scored.thresholds is not None else [0.5] * len(scored.labels))
    before = _judge(scored, old, _decide(old, None if scored.single_label else limits))
    after = _judge(scored, scores, decisions)
    return Tuning(
        calibration=final.calibration,
        thresholds=None if final.limits is None else tuple(final.limits.tolist()),
        labels=_tuned_labels(scored, final, before, after, objective),
        before=before,
        after=after,
        objective=None if scored.single_label else objective,
        num_pictures=len(scored),
        num_folds=num_folds,
        notes=(*scored.notes, *_notes(scored, final, objective, min_positives)),
    )


def _logits(scores: Tensor, *, single_label: bool) -> Tensor:
    """Return logits that give these scores."""
    clipped = scores.double().clamp(SMALLEST, 1 - SMALLEST)
    return (clipped.log() if single_label else clipped.logit()).float()


def _scores(logits: Tensor, calibration: ScoreCalibration | None, *, single_label: bool) -> Tensor:
    changed = logits if calibration is None else calibration.apply(logits)
    return changed.softmax(dim=1) if single_label else changed.sigmoid()


def _decide(scores: Tensor, limits: Tensor | None) -> Tensor:
    """Return what reaches its limit, or without any the surest label of each picture, ``[N, L]``."""
    return top_labels(scores, 1) if limits is None else scores >= limits


def _fit(
    logits: Tensor,
    targets: Tensor,
    known: Tensor,
    method: Method,
    objective: Objective,
    min_positives: int,
    *,
    single_label: bool,
) -> _Fit:
    """Calibrate, then choose thresholds of the calibrated scores, where there are any."""
    calibration, not_fitted = None, torch.zeros(logits.shape[1], dtype=torch.bool)
    if method != "none":
        scale = torch.full((logits.shape[1],), 1 / fit_temperature(logits, targets, known, single_label=single_label))
        shift = torch.zeros_like(scale)
        if method == "platt" and not single_label:
            platt = fit_platt(logits, targets, known, min_positives=min_positives)
            scale, shift = torch.where(platt.fitted, platt.scale, scale), torch.where(platt.fitted, platt.shift, shift)
            not_fitted = ~platt.fitted
        name: CalibrationMethod = "temperature" if single_label else method
        calibration = ScoreCalibration(name, tuple(scale.tolist()), tuple(shift.tolist()))
    if single_label:
        return _Fit(calibration, None, not_fitted)
    scores = _scores(logits, calibration, single_label=False)
    thresholds = choose_thresholds(scores, targets, known, objective=objective, min_positives=min_positives)
    return _Fit(calibration, thresholds, not_fitted)


def _judge(scored: ScoredImages, scores: Tensor, decisions: Tensor) -> Performance:
    """Measure decisions and scores."""
    found = precision_recall(decisions.float(), scored.targets, scored.known)
    precision, recall = found.precision.values, found.recall.values
    bins = bin_scores(scores, scored.targets, scored.known)
    losses = F.binary_cross_entropy(scores.clamp(SMALLEST, 1 - SMALLEST), scored.targets.float(), reduction="none")
    measures = {
        "CP": found.class_precision,
        "CR": found.class_recall,
        "CF1": found.class_f1,
        "OP": found.overall_precision,
        "OR": found.overall_recall,
        "OF1": found.overall_f1,
        "calibration_error": bins.error,
        "log_loss": losses[scored.known].mean(),
    }
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
    return Performance({name: float(value) for name, value in measures.items()}, f1, bins)


def _tuned_labels(
    scored: ScoredImages, final: _Fit, before: Performance, after: Performance, objective: Objective
) -> tuple[TunedLabel, ...]:
    positives = (scored.targets & scored.known).sum(dim=0).tolist()
    f1 = before.label_f1.tolist(), after.label_f1.tolist()
    if final.thresholds is None:
        nothing = [None] * len(positives)
        return tuple(TunedLabel(*row) for row in zip(scored.labels, positives, nothing, *f1, strict=True))
    values, too_rare, out_of_reach, _ = final.thresholds
    words = [
        "too rare: common threshold" if rare else f"{objective} is out of reach: common threshold" if far else ""
        for rare, far in zip(too_rare.tolist(), out_of_reach.tolist(), strict=True)
    ]
    return tuple(TunedLabel(*row) for row in zip(scored.labels, positives, values.tolist(), *f1, words, strict=True))


def _notes(scored: ScoredImages, final: _Fit, objective: Objective, min_positives: int) -> list[str]:
    """Say which labels were not fitted on their own, or why no thresholds were chosen."""
    if final.thresholds is None:
        return ["The model names the surest label of each picture, so that no thresholds were chosen."]
    common = f"the threshold that is best for all labels together, {final.thresholds.common:.3g}"
    cases = (
        (final.thresholds.too_rare, f"fewer than {min_positives} pictures, and got {common}"),
        (final.thresholds.out_of_reach, f"no threshold with {objective}, and got {common}"),
        (
            final.not_fitted,
            "too few pictures or too bad scores for Platt's method, and got the temperature of all labels",
        ),
    )
    notes = []
    for mask, words in cases:
        names = [scored.labels[place] for place in mask.nonzero().flatten().tolist()]
        if names:
            more = ", ..." if len(names) > 8 else ""
            subject = "1 label has" if len(names) == 1 else f"{len(names)} labels have"
            notes.append(f"{subject} {words}: {', '.join(names[:8])}{more}.")
    return notes
