"""Evaluate a model: every measure with an interval, every label, and where it goes wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation.bootstrap import Estimate, estimate, to_plain
from manylabel.evaluation.groups import CountGroup, SizeGroup, by_label_count, by_object_size
from manylabel.evaluation.measures import DEFAULT_MEASURES, MEASURES, bootstrap, measure
from manylabel.evaluation.results import (
    Confusion,
    ImageResult,
    LabelResult,
    find_confusions,
    image_results,
    label_results,
)
from manylabel.evaluation.scores import Progress, ScoredImages, score
from manylabel.metrics import calibration
from manylabel.types import BadImage

__all__ = ["CalibrationBin", "Evaluation", "evaluate"]


@dataclass(frozen=True)
class CalibrationBin:
    """Answers with about the same score.

    Args:
        score: Their mean score.
        fraction: The fraction of them of which the label is present.
        count: Their number.
    """

    score: float
    fraction: float
    count: int


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model on a dataset.

    Args:
        model: Name of the model.
        dataset: Name of the dataset.
        num_images: Number of images.
        draws: Number of bootstrap draws for the intervals.
        seed: Seed of the draws.
        has_thresholds: Whether the model has thresholds of its own (default: 0.5 for all).
        single_label: Whether the model predicts each image's most confident label, so that no threshold counts.
        measures: The measures that are defined, with their intervals; mAP is always among them.
        labels: How well each label is recognised.
        confusions: Labels that are missed while others are invented.
        by_size: Results by the size of objects, where the data have sizes.
        by_count: Results by the number of labels in an image.
        calibration: Scores next to how often they are right, by score.
        worst: The images with the highest loss.
        best: Of the images with labels, those with the lowest loss.
        left_out: Labels without positives, which are in no mean over labels.
        bad: Images that could not be evaluated, and why.
        notes: Remarks for a reader.
    """

    model: str
    dataset: str
    num_images: int
    draws: int
    seed: int
    has_thresholds: bool
    single_label: bool
    measures: dict[str, Estimate]
    labels: tuple[LabelResult, ...]
    confusions: tuple[Confusion, ...]
    by_size: tuple[SizeGroup, ...]
    by_count: tuple[CountGroup, ...]
    calibration: tuple[CalibrationBin, ...]
    worst: tuple[ImageResult, ...]
    best: tuple[ImageResult, ...]
    left_out: tuple[str, ...]
    bad: tuple[BadImage, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return to_plain(self)


def evaluate(
    model: Classifier | ScoredImages,
    dataset: ImageDataset | None = None,
    *,
    measures: Iterable[str] = DEFAULT_MEASURES,
    draws: int = 1000,
    seed: int = 0,
    batch_size: int = 32,
    num_workers: int | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a model, or scores that it gave.

    Args:
        model: The classifier; or its scores and targets, from `score` or `read_scores`.
        dataset: The dataset to evaluate a classifier on; not needed with scores.
        measures: Names of `MEASURES` (default: the most common dozen), or ``["all"]``.
        draws: Number of bootstrap draws for the intervals; 0 for none.
        seed: Seed of the draws.
        batch_size: Number of images that go through a classifier at once.
        num_workers: Processes that decode images beside the main one (default: half of the cores).
        device: Device to run a classifier on (default: where it is).
        progress: Called after each batch with the number of images done, and of all.

    Returns:
        The evaluation; `evaluation_page` shows it, `to_dict` makes JSON of it.

    Raises:
        ConfigError: A classifier without a dataset, no such measure, or no image with a known label.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]])
        >>> scored = ScoredImages.from_arrays(scores, [[1, 0], [1, 1], [0, 1]], labels=["cat", "dog"])
        >>> evaluate(scored, draws=100).measures["mAP"]
        Estimate(value=1.0, low=1.0, high=1.0)
    """
    if isinstance(model, Classifier):
        if dataset is None:
            raise ConfigError("give the dataset to evaluate the classifier on: evaluate(model, dataset)")
        model = score(model, dataset, batch_size=batch_size, num_workers=num_workers, device=device, progress=progress)
    return _evaluate(model, tuple(measures), draws=draws, seed=seed)


def _evaluate(scored: ScoredImages, names: tuple[str, ...], *, draws: int, seed: int) -> Evaluation:
    if not scored.inputs.positives.any():
        raise ConfigError(
            f"there is nothing to evaluate: none of {len(scored)} images is known to have one of "
            f"{len(scored.labels)} labels"
        )
    drawn = bootstrap(scored, names, draws=draws, seed=seed)
    labels = label_results(scored, drawn.average_precision)
    worst, best = image_results(scored)
    return Evaluation(
        model=scored.model,
        dataset=scored.dataset,
        num_images=len(scored),
        draws=draws,
        seed=seed,
        has_thresholds=scored.thresholds is not None,
        single_label=scored.single_label,
        measures={
            name: estimate(
                value, drawn.measures[name], bounds=(0, 1 if MEASURES[name].is_fraction else len(scored.labels))
            )
            for name, value in measure(scored, names).items()
        },
        labels=labels,
        confusions=find_confusions(scored),
        by_size=by_object_size(scored, draws=draws, seed=seed),
        by_count=by_label_count(scored, draws=draws, seed=seed),
        calibration=_calibration(scored),
        worst=worst,
        best=best,
        left_out=tuple(label.name for label in labels if not label.positives),
        bad=scored.bad,
        notes=scored.notes,
    )


def _calibration(scored: ScoredImages) -> tuple[CalibrationBin, ...]:
    """Return the bins that are not empty."""
    bins = zip(*(column.tolist() for column in calibration(*scored.inputs)), strict=True)
    return tuple(CalibrationBin(value, fraction, count) for value, fraction, count in bins if count)
