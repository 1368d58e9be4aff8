"""Judge a model: every measure with an interval, every label, and where it goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation.bootstrap import bootstrap
from manylabel.evaluation.confusions import Confusion, find_confusions
from manylabel.evaluation.estimate import Estimate, estimate
from manylabel.evaluation.groups import CountGroup, SizeGroup, by_label_count, by_object_size
from manylabel.evaluation.label_results import LabelResult, label_results
from manylabel.evaluation.measures import MEASURES, measure
from manylabel.evaluation.picture_results import ImageResult, picture_results
from manylabel.evaluation.scores import Progress, ScoredImages, score
from manylabel.metrics import calibration
from manylabel.types import BadImage

__all__ = ["CalibrationBin", "Evaluation", "evaluate"]


@dataclass(frozen=True)
class CalibrationBin:
    """Answers with about the same score.

    Args:
        score: Their mean score.
        share: The share of them of which the label is present.
        count: How many there are.
    """

    score: float
    share: float
    count: int


@dataclass(frozen=True)
class Evaluation:
    """All that is known about how good a model is on a data set.

    Args:
        model: What the model is called.
        dataset: What the data set is called.
        num_pictures: How many pictures were judged.
        draws: How often the bootstrap drew for the intervals.
        seed: What fixed the draws.
        has_thresholds: Whether the model brought thresholds; else all are 0.5.
        single_label: Whether the model names each picture's surest label, so that no threshold counts.
        measures: Every measure of `MEASURES` that applies, with its interval.
        labels: How well each label is recognised.
        confusions: Labels that are missed while others are invented.
        by_size: Results by the size of objects, where the data tell.
        by_count: Results by the number of labels in a picture.
        calibration: Scores beside how often they are right, by score.
        worst: The pictures that it understands worst.
        best: Of the pictures with labels, those that it understands best.
        left_out: Labels without positives, which are in no mean over labels.
        bad: Pictures that could not be judged, and why.
        notes: What else a reader should know.
    """

    model: str
    dataset: str
    num_pictures: int
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
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        listed = ("labels", "by_size", "by_count", "worst", "best")
        return {
            **plain,
            "measures": {name: value.to_dict() for name, value in self.measures.items()},
            **{name: [entry.to_dict() for entry in getattr(self, name)] for name in listed},
            **{name: [vars(entry) for entry in getattr(self, name)] for name in ("confusions", "calibration", "bad")},
        }


def evaluate(
    model: Classifier | ScoredImages,
    dataset: ImageDataset | None = None,
    *,
    draws: int = 1000,
    seed: int = 0,
    batch_size: int = 32,
    num_workers: int | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Judge a model, or scores that it gave.

    Args:
        model: The classifier, trained or not; or its scores beside the truth, from `score` or `read_scores`.
        dataset: What to judge a classifier on; not needed with scores, which know what is true.
        draws: How often the bootstrap draws for the intervals; no intervals when 0.
        seed: Fixes the draws.
        batch_size: How many pictures go through a classifier at once.
        num_workers: Processes that decode images beside the main one (default: half of the cores).
        device: Where a classifier runs; where it is when left out.
        progress: Called after each batch with the number of pictures done, and of all.

    Returns:
        The evaluation; `evaluation_page` shows it, `to_dict` makes JSON of it.

    Raises:
        ConfigError: A classifier without a data set, or no picture to judge.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]])
        >>> scored = ScoredImages.from_arrays(scores, [[1, 0], [1, 1], [0, 1]], labels=["cat", "dog"])
        >>> evaluate(scored, draws=100).measures["mAP"]
        Estimate(value=1.0, low=1.0, high=1.0)
    """
    if isinstance(model, Classifier):
        if dataset is None:
            raise ConfigError("give the data set to judge the classifier on: evaluate(model, dataset)")
        model = score(model, dataset, batch_size=batch_size, num_workers=num_workers, device=device, progress=progress)
    return _judge(model, draws=draws, seed=seed)


def _judge(scored: ScoredImages, *, draws: int, seed: int) -> Evaluation:
    if not len(scored) or not len(scored.labels):
        raise ConfigError(f"there is nothing to judge: {len(scored)} pictures with {len(scored.labels)} labels")
    drawn = bootstrap(scored, draws=draws, seed=seed)
    bounds = {name: (0, 1) if MEASURES[name].is_share else (0, len(scored.labels)) for name in MEASURES}
    labels = label_results(scored, drawn.average_precision)
    worst, best = picture_results(scored)
    return Evaluation(
        model=scored.model,
        dataset=scored.dataset,
        num_pictures=len(scored),
        draws=draws,
        seed=seed,
        has_thresholds=scored.thresholds is not None,
        single_label=scored.single_label,
        measures={
            name: estimate(value, drawn.measures[name], bounds=bounds[name]) for name, value in measure(scored).items()
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
    bins = zip(*(column.tolist() for column in calibration(*scored.judged)), strict=True)
    return tuple(CalibrationBin(value, share, count) for value, share, count in bins if count)
