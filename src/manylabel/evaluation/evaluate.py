"""Evaluation of a model: metrics with intervals, results of each label, and an error analysis.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning" (RM), call an
image a hard instance if its objects differ much in size: the small ones are missed. Sizes are split as in COCO: at
32 x 32 and 96 x 96 pixels, of 640 x 480.

Letters in shape comments: N images, L labels, D draws.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation.bootstrap import Estimate, estimate, estimates, to_plain
from manylabel.evaluation.metrics import DEFAULT_METRICS, METRICS, bootstrap
from manylabel.evaluation.scores import ScoredImages, score
from manylabel.metrics import CalibrationBin, calibration, mean_average_precision, precision_recall, ranking_loss
from manylabel.metrics.average_precision import precision_curves
from manylabel.types import BadImage, Tag

SIZE_LIMITS = (32 * 32 / (640 * 480), 96 * 96 / (640 * 480))
"""Fractions of the image below which an object is small, and below which it is medium."""

_MOST_LABELS = 5  # images with as many or more are one group
_MOST_POINTS = 50  # more cannot be seen in a plot


@dataclass(frozen=True)
class Curve:
    """A precision-recall curve, thinned: precision at increasing recall."""

    recall: tuple[float, ...]
    precision: tuple[float, ...]


@dataclass(frozen=True)
class LabelResult:
    """Results of one label; None for what is undefined without positives.

    Args:
        name: The label.
        display_name: Its name in reports.
        positives: Number of images that have it.
        known: Number of images for which it is known whether they have it.
        average_precision: Average precision with its interval.
        threshold: Lowest score that counts as predicted.
        predicted: Number of images, of those known, for which it is predicted.
        precision: Precision at the threshold; 0 if it is never predicted.
        recall: Recall at the threshold.
        f1: Their harmonic mean.
        curve: Precision and recall at all thresholds.
    """

    name: str
    display_name: str
    positives: int
    known: int
    average_precision: Estimate | None
    threshold: float
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    curve: Curve

    @property
    def value(self) -> float:
        """The average precision alone; 0 for a label without positives."""
        return 0.0 if self.average_precision is None else self.average_precision.value


@dataclass(frozen=True)
class Confusion:
    """A label that is missed while another, absent one is predicted.

    Args:
        actual: The label that is present but not predicted.
        predicted: The label that is predicted but absent.
        count: Number of images with both errors.
        rate: Fraction of the images with `actual` missed in which `predicted` is wrongly predicted.
        base_rate: The same fraction of all other images.
    """

    actual: str
    predicted: str
    count: int
    rate: float
    base_rate: float


@dataclass(frozen=True)
class ImageResult:
    """Predictions and targets of one image.

    Args:
        name: The image.
        index: Its position in the dataset.
        loss: Binary cross-entropy, summed over the known labels.
        true_positives: Labels that are present and predicted, most confident first.
        false_negatives: Labels that are present but not predicted, least confident first.
        false_positives: Labels that are absent but predicted, most confident first.
    """

    name: str
    index: int
    loss: float
    true_positives: tuple[Tag, ...]
    false_negatives: tuple[Tag, ...]
    false_positives: tuple[Tag, ...]


@dataclass(frozen=True)
class Group:
    """Results of some of the images or labels.

    Args:
        name: Name of the group.
        count: Number of images, or of (image, label) pairs.
        metrics: Defined metrics by name.
    """

    name: str
    count: int
    metrics: dict[str, Estimate]


def label_results(scored: ScoredImages, average_precision: NDArray[np.float64]) -> tuple[LabelResult, ...]:
    """Evaluate each label.

    Args:
        scored: Scores and targets.
        average_precision: ``[L, 1 + D]``, of the images themselves, then of each draw of the bootstrap.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 0]], labels=["cat", "dog"])
        >>> cat, dog = label_results(scored, np.array([[1.0], [np.nan]]))
        >>> cat.average_precision.value, cat.recall, dog.average_precision
        (1.0, 1.0, None)
    """
    decided = precision_recall(*scored.decisions)
    positives = scored.inputs.positives.sum(dim=0).tolist()
    undefined = [count == 0 for count in positives]
    averages, *decisions = (
        [None if empty else value for empty, value in zip(undefined, values, strict=True)]
        for values in (
            estimates(average_precision),
            *(each.tolist() for each in (decided.precision, decided.recall, decided.label_f1)),
        )
    )
    columns = (
        scored.labels,
        map(scored.labels.display, scored.labels),
        positives,
        scored.known.sum(dim=0).tolist(),
        averages,
        scored.thresholds or (0.5,) * len(scored.labels),
        (scored.predicted & scored.known).sum(dim=0).tolist(),
        *decisions,
        map(_thin, precision_curves(*scored.inputs)),
    )
    return tuple(LabelResult(*row) for row in zip(*columns, strict=True))


def find_confusions(scored: ScoredImages, *, at_most: int = 20) -> tuple[Confusion, ...]:
    """Find pairs of labels where one is often missed while the other is wrongly predicted.

    A pair counts if this happens in at least two images. Pairs are sorted by the excess over the number expected by
    chance, so a label that is wrongly predicted everywhere does not fill the list.

    Args:
        scored: Scores and targets.
        at_most: Number of pairs to return.

    Examples:
        >>> scores = [[0.1, 0.9], [0.2, 0.8], [0.9, 0.1], [0.1, 0.9]]
        >>> targets = [[1, 0], [1, 0], [1, 0], [0, 1]]
        >>> find_confusions(ScoredImages.from_arrays(scores, targets, labels=["dog", "wolf"]))
        (Confusion(actual='dog', predicted='wolf', count=2, rate=1.0, base_rate=0.0),)
    """
    given = scored.inputs
    missed, wrong = (
        csr_array((truth & errors).numpy().astype(np.int32))
        for truth, errors in ((given.positives, ~scored.predicted), (given.negatives, scored.predicted))
    )
    together = (missed.T @ wrong).tocoo()  # [L, L]
    rows, columns, counts = together.row, together.col, together.data
    misses, wrongs = np.asarray(missed.sum(axis=0))[rows], np.asarray(wrong.sum(axis=0))[columns]
    base_rates = (wrongs - counts) / np.maximum(len(scored) - misses, 1)
    excess = counts - misses * base_rates
    matters = np.flatnonzero((counts > 1) & (excess > 0))
    order = matters[np.lexsort((columns[matters], rows[matters], -excess[matters]))]  # of equals, the first label first
    return tuple(
        Confusion(
            actual=scored.labels[rows[pair]],
            predicted=scored.labels[columns[pair]],
            count=int(counts[pair]),
            rate=float(counts[pair] / misses[pair]),
            base_rate=float(base_rates[pair]),
        )
        for pair in order[:at_most]
    )


def image_losses(scored: ScoredImages) -> Tensor:
    """Return the binary cross-entropy of each image, summed over its known labels, ``[N]``.

    Examples:
        >>> image_losses(ScoredImages.from_arrays([[0.5, 0.5], [1.0, 0.0]], [[1, 0], [1, 0]], labels=["a", "b"]))
        tensor([1.3863, 0.0000])
    """
    right = torch.where(scored.targets, scored.scores, 1 - scored.scores).clamp_(min=1e-6)
    return torch.where(scored.known, right.log(), 0).sum(dim=1).abs()


def rank_images(scored: ScoredImages, *, at_most: int = 12) -> tuple[tuple[ImageResult, ...], tuple[ImageResult, ...]]:
    """Find the images with the highest loss, and the images with labels with the lowest.

    Args:
        scored: Scores and targets.
        at_most: Number of each.

    Returns:
        The worst, highest loss first, and the best, lowest loss first; no image is among both.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.1, 0.9], [0.9, 0.1]], [[1, 0], [1, 0]], labels=["cat", "dog"])
        >>> worst, best = rank_images(scored, at_most=1)
        >>> worst[0].false_negatives, worst[0].false_positives, best[0].name
        ((Tag(label='cat', score=0.1),), (Tag(label='dog', score=0.9),), 'image 1')
    """
    losses = image_losses(scored)
    worst = losses.argsort(descending=True, stable=True)[: min(at_most, -(-len(losses) // 2))].tolist()
    has_label = scored.inputs.positives.any(dim=1)
    has_label[worst] = False
    order = torch.where(has_label, losses, torch.inf).argsort(stable=True)
    best = order[: min(at_most, int(has_label.sum()))].tolist()
    described = {row: _describe(scored, row, float(losses[row])) for row in {*worst, *best}}
    return tuple(described[row] for row in worst), tuple(described[row] for row in best)


def by_object_size(scored: ScoredImages, weights: Tensor) -> tuple[Group, ...]:
    """Evaluate small, medium and large objects separately, and small ones next to large ones.

    A label of an image is as large as its largest object. The mAP of a size ignores positives of other sizes.

    Args:
        scored: Scores and targets.
        weights: ``[1 + D, N]``, from `bootstrap_weights`.

    Returns:
        The groups of (image, label) pairs that are not empty; none if the data have no sizes.

    Examples:
        >>> from dataclasses import replace
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4]], [[1, 1]], labels=["cat", "mouse"])
        >>> scored = replace(scored, areas=csr_array([[0.5, 0.001]]))
        >>> [(group.name, group.metrics["recall"].value) for group in by_object_size(scored, torch.ones(1, 1))]
        [('small', 0.0), ('large', 1.0), ('small next to large', 0.0)]
    """
    if scored.areas is None:
        return ()
    areas, predicted = torch.from_numpy(scored.areas.toarray()), scored.predicted.float()
    sized = scored.inputs.positives & (areas > 0)  # [N, L]
    small, medium = areas < SIZE_LIMITS[0], areas < SIZE_LIMITS[1]
    large = sized & ~medium
    masks = {
        "small": sized & small,
        "medium": sized & ~small & medium,
        "large": large,
        "small next to large": sized & small & large.any(dim=1, keepdim=True),
    }
    groups = []
    for name, mask in masks.items():
        if not mask.any():
            continue
        # Positives outside of the group are treated as unknown.
        recall = precision_recall(predicted, mask, mask, weights=weights).overall_recall
        average = mean_average_precision(scored.scores, mask, scored.inputs.negatives | mask, weights=weights)
        groups.append(_group(name, int(mask.sum()), recall=recall, mAP=average))
    return tuple(groups)


def by_label_count(scored: ScoredImages, weights: Tensor) -> tuple[Group, ...]:
    """Evaluate images with one label, with two, and so on, separately.

    Args:
        scored: Scores and targets.
        weights: ``[1 + D, N]``, from `bootstrap_weights`.

    Returns:
        The groups of images that are not empty; precision, recall and F1 are OP, OR and OF1.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.4], [0.9, 0.1]], [[1, 1], [1, 0]], labels=["cat", "mouse"])
        >>> [(group.name, group.metrics["recall"].value) for group in by_label_count(scored, torch.ones(1, 2))]
        [('1 label', 1.0), ('2 labels', 0.5)]
    """
    counts = scored.inputs.positives.sum(dim=1).clamp(max=_MOST_LABELS)
    groups = []
    for number in range(1, _MOST_LABELS + 1):
        rows = (counts == number).nonzero().flatten()
        if len(rows):
            part, drawn = scored.take(rows.numpy()), weights[:, rows]
            decided = precision_recall(*part.decisions, weights=drawn)
            values = {
                "precision": decided.overall_precision,
                "recall": decided.overall_recall,
                "F1": decided.overall_f1,
                "ranking_loss": ranking_loss(*part.inputs, weights=drawn),
            }
            name = "1 label" if number == 1 else f"{number}{' or more' if number == _MOST_LABELS else ''} labels"
            groups.append(_group(name, len(rows), **values))
    return tuple(groups)


def _describe(scored: ScoredImages, row: int, loss: float) -> ImageResult:
    present, known, predicted = scored.targets[row], scored.known[row], scored.predicted[row]

    def tags(mask: Tensor, *, descending: bool = True) -> tuple[Tag, ...]:
        columns = (mask & known).nonzero().flatten().tolist()
        chosen = [Tag(scored.labels[column], round(scored.scores[row, column].item(), 4)) for column in columns]
        return tuple(sorted(chosen, key=lambda tag: -tag.score if descending else tag.score))

    return ImageResult(
        name=scored.names[row],
        index=int(scored.indices[row]),
        loss=loss,
        true_positives=tags(present & predicted),
        false_negatives=tags(present & ~predicted, descending=False),
        false_positives=tags(~present & predicted),
    )


def _thin(points: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Curve:
    count = len(points[0])
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(int))
    recall, precision = (tuple(np.round(values[chosen], 4).tolist()) for values in points)
    return Curve(recall, precision)


def _group(name: str, count: int, **values: Tensor) -> Group:
    return Group(name, count, {name: estimate(drawn) for name, drawn in values.items() if not math.isnan(drawn[0])})


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
    labels: tuple[LabelResult, ...]
    confusions: tuple[Confusion, ...]
    by_size: tuple[Group, ...]
    by_count: tuple[Group, ...]
    calibration: tuple[CalibrationBin, ...]
    worst: tuple[ImageResult, ...]
    best: tuple[ImageResult, ...]
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
    labels = label_results(scored, resampled.average_precision)
    worst, best = rank_images(scored)
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
        confusions=find_confusions(scored),
        by_size=by_object_size(scored, resampled.weights),
        by_count=by_label_count(scored, resampled.weights),
        calibration=calibration(*scored.inputs).bins,
        worst=worst,
        best=best,
        without_positives=tuple(label.name for label in labels if not label.positives),
        bad=scored.bad,
        notes=scored.notes,
    )
