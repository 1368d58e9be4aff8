"""Evaluation of a model: metrics with intervals, results of each label, and an error analysis."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation import results
from manylabel.evaluation.bootstrap import Estimate, estimate, to_plain
from manylabel.evaluation.metrics import DEFAULT_METRICS, METRICS, bootstrap
from manylabel.evaluation.scores import ScoredImages, score
from manylabel.metrics import CalibrationBin, calibration
from manylabel.types import BadImage


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model on a dataset.

    Args:
        model: Name of the model.
        dataset: Name of the dataset.
        num_images: Number of images.
        draws: Number of bootstrap draws.
        has_thresholds: Whether the model has tuned thresholds (default: 0.5 for all labels).
        single_label: Whether the model predicts the most confident label of each image, without thresholds.
        metrics: The defined metrics with their intervals; mAP is always among them.
        labels: Results of each label.
        confusions: Labels that are missed while others are wrongly predicted.
        by_size: Results by object size, if the data have sizes.
        by_count: Results by number of labels per image.
        calibration: Observed frequency of labels by score.
        worst: Images with the highest loss.
        best: Images with labels with the lowest loss.
        without_positives: Labels without positives, which are excluded from means over labels.
        bad: Images that could not be evaluated, and why.
        notes: Remarks for the reader.
    """

    model: str
    dataset: str
    num_images: int
    draws: int
    has_thresholds: bool
    single_label: bool
    metrics: dict[str, Estimate]
    labels: tuple[results.LabelResult, ...]
    confusions: tuple[results.Confusion, ...]
    by_size: tuple[results.Group, ...]
    by_count: tuple[results.Group, ...]
    calibration: tuple[CalibrationBin, ...]
    worst: tuple[results.ImageResult, ...]
    best: tuple[results.ImageResult, ...]
    without_positives: tuple[str, ...]
    bad: tuple[BadImage, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return to_plain(self)


def evaluate(
    model: Classifier | ScoredImages,
    dataset: ImageDataset | None = None,
    *,
    metrics: Iterable[str] = DEFAULT_METRICS,
    draws: int = 1000,
) -> Evaluation:
    """Evaluate a model, or scores that it predicted.

    Args:
        model: Scores and targets, from `score` or `read_scores`; or a classifier, which is then run by `score`.
        dataset: The dataset to evaluate a classifier on; not needed with scores.
        metrics: Names of `METRICS` (default: the most common dozen), or ``["all"]``.
        draws: Number of bootstrap draws for the intervals; 0 for none.

    Returns:
        The evaluation; `evaluation_page` shows it, `to_dict` converts it to JSON.

    Raises:
        ConfigError: A classifier without a dataset, no such metric, or no image with a known label.

    Examples:
        >>> scores = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]]
        >>> scored = ScoredImages.from_arrays(scores, [[1, 0], [1, 1], [0, 1]], labels=["cat", "dog"])
        >>> evaluate(scored, draws=100).metrics["mAP"]
        Estimate(value=1.0, low=1.0, high=1.0)
    """
    if isinstance(model, Classifier):
        if dataset is None:
            raise ConfigError("pass the dataset to evaluate the classifier on: evaluate(model, dataset)")
        model = score(model, dataset)
    scored = model
    if not scored.inputs.positives.any():
        raise ConfigError(
            f"there is nothing to evaluate: none of the {len(scored)} images is known to have one of the "
            f"{len(scored.labels)} labels"
        )
    resampled = bootstrap(scored, metrics, draws=draws)
    labels = results.label_results(scored, resampled.average_precision)
    worst, best = results.rank_images(scored)
    return Evaluation(
        model=scored.model,
        dataset=scored.dataset,
        num_images=len(scored),
        draws=draws,
        has_thresholds=scored.thresholds is not None,
        single_label=scored.single_label,
        metrics={
            name: estimate(values, bounds=(0, 1 if METRICS[name].is_fraction else len(scored.labels)))
            for name, values in resampled.metrics.items()
            if not math.isnan(values[0])
        },
        labels=labels,
        confusions=results.find_confusions(scored),
        by_size=results.by_object_size(scored, resampled.weights),
        by_count=results.by_label_count(scored, resampled.weights),
        calibration=calibration(*scored.inputs).bins,
        worst=worst,
        best=best,
        without_positives=tuple(label.name for label in labels if not label.positives),
        bad=scored.bad,
        notes=scored.notes,
    )
