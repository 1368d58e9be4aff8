"""Comparison of two models on the same images: a paired bootstrap, overall and per label.

Both models are evaluated on the same draws: a hard draw is hard for both, and cancels out of the difference. This
detects much smaller differences than two separate intervals, whose overlap means little.

Letters in shape comments: L labels, D draws.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ConfigError, LabelError
from manylabel.evaluation.bootstrap import FEWEST_DRAWS, Estimate, estimate, estimates, to_plain
from manylabel.evaluation.evaluate import image_losses
from manylabel.evaluation.metrics import DEFAULT_METRICS, METRICS, bootstrap
from manylabel.evaluation.scores import ScoredImages

Verdict = Literal["better", "worse", "unclear"]

_LEAST_CHANGE = 0.05  # of a loss, which is shown with one decimal


@dataclass(frozen=True)
class MetricChange:
    """A metric of both models.

    Args:
        first: Value of the first model.
        second: Value of the second.
        difference: Second minus first, with its interval.
        p_value: Twice the fraction of draws on the other side of 0, at least 2 / (draws + 1); None without draws.
        verdict: Better or worse; unclear if the interval includes 0.
    """

    first: float
    second: float
    difference: Estimate
    p_value: float | None
    verdict: Verdict

    @property
    def p_text(self) -> str:
        """The p-value with three decimals; empty without draws."""
        return "" if self.p_value is None else f"{self.p_value:.3f}"


@dataclass(frozen=True)
class LabelChange:
    """The average precision of one label with both models; see `MetricChange`."""

    name: str
    display_name: str
    positives: int
    first: float
    second: float
    difference: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class ImageChange:
    """The loss of an image with both models (see `ImageResult.loss`)."""

    name: str
    index: int
    first: float
    second: float


@dataclass(frozen=True)
class Comparison:
    """Two models on the same images.

    Args:
        first: Name of the first model.
        second: Name of the second model.
        dataset: Name of the dataset.
        num_images: Number of images.
        draws: Number of bootstrap draws.
        metrics: The metrics that are defined for both models.
        labels: The average precision of every label that has positives.
        better: Images whose loss decreased most.
        worse: Images whose loss increased most.
        without_positives: Labels without positives.
        notes: Remarks for the reader.
    """

    first: str
    second: str
    dataset: str
    num_images: int
    draws: int
    metrics: dict[str, MetricChange]
    labels: tuple[LabelChange, ...]
    better: tuple[ImageChange, ...]
    worse: tuple[ImageChange, ...]
    without_positives: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """Title of the comparison in reports."""
        return f"{self.second} against {self.first}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return to_plain(self)


def compare(
    first: ScoredImages,
    second: ScoredImages,
    *,
    metrics: Iterable[str] = DEFAULT_METRICS,
    draws: int = 1000,
) -> Comparison:
    """Compare two models on the same images.

    Args:
        first: Scores of the first model, and targets.
        second: Those of the second, on the same dataset; images with scores of one model only are ignored.
        metrics: Names of `METRICS` (default: the most common dozen), or ``["all"]``.
        draws: Number of bootstrap draws; 0 for no intervals.

    Returns:
        The changes from the first to the second; `comparison_page` shows it, `to_dict` converts it to JSON.

    Raises:
        LabelError: The labels differ.
        ConfigError: The models have no image in common, the targets differ, or no image is known to have a label.

    Examples:
        >>> targets = [[1, 0], [1, 1], [0, 1]]
        >>> good, bad = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[0.3, 0.2], [0.2, 0.7], [0.9, 0.1]]
        >>> models = [ScoredImages.from_arrays(scores, targets, labels=["cat", "dog"]) for scores in (bad, good)]
        >>> comparison = compare(*models, draws=0)
        >>> round(comparison.metrics["mAP"].difference.value, 4)
        0.2917
    """
    first, second, notes = _align(first, second)
    if not first.inputs.positives.any():
        raise ConfigError(f"there is nothing to compare: no label is known to be present in any of {len(first)} images")
    before, after = (bootstrap(scored, metrics, draws=draws) for scored in (first, second))
    labels = _label_changes(first, before.average_precision, after.average_precision)
    better, worse = _image_changes(first, second)
    return Comparison(
        first=first.model,
        second=second.model,
        dataset=first.dataset,
        num_images=len(first),
        draws=draws,
        metrics={
            name: _metric_change(name, before.metrics[name], values)
            for name, values in after.metrics.items()
            if not np.isnan(values[0] + before.metrics[name][0])
        },
        labels=labels,
        better=better,
        worse=worse,
        without_positives=tuple(name for name in first.labels if name not in {label.name for label in labels}),
        notes=notes,
    )


def _align(first: ScoredImages, second: ScoredImages) -> tuple[ScoredImages, ScoredImages, tuple[str, ...]]:
    """Return the images that both have, and notes on dropped images and differing thresholds."""
    if first.labels.names != second.labels.names:
        odd = sorted(set(first.labels) ^ set(second.labels)) or ["their order"]
        raise LabelError(f"the labels of the two models differ ({', '.join(odd[:5])}); score both on the same dataset")
    common, *rows = np.intersect1d(first.indices, second.indices, return_indices=True)
    if not len(common):
        raise ConfigError("the two models have no image in common; score both on the same dataset")
    left, right = first.take(rows[0]), second.take(rows[1])
    if not bool((left.targets == right.targets).all() and (left.known == right.known).all()):
        raise ConfigError("the targets of the two models differ; score both on the same dataset")
    notes = []
    dropped = len(first) + len(second) - 2 * len(common)
    if dropped:
        notes.append(f"{dropped} image{'s' if dropped > 1 else ''} with scores of one model only ignored.")
    if (first.thresholds is None) != (second.thresholds is None):
        tuned, other = (second, first) if first.thresholds is None else (first, second)
        notes.append(
            f"{tuned.model} has tuned thresholds, {other.model} a threshold of 50 %: CP to OF1 compare the thresholds, "
            "too."
        )
    return left, right, tuple(dict.fromkeys([*notes, *first.notes, *second.notes]))


def _metric_change(name: str, first: NDArray[np.float64], second: NDArray[np.float64]) -> MetricChange:
    bound = 1.0 if METRICS[name].is_fraction else np.inf
    difference = estimate(second - first, bounds=(-bound, bound), centred=False)
    sign = 1 if METRICS[name].better == "higher" else -1
    p_value = _p_value((second - first)[1:])
    return MetricChange(float(first[0]), float(second[0]), difference, p_value, _verdict(difference, sign))


def _p_value(draws: NDArray[np.float64]) -> float | None:
    """Return twice the fraction of draws on the rarer side of 0; draws of exactly 0 count for both."""
    usable = draws[~np.isnan(draws)]
    if len(usable) < FEWEST_DRAWS:
        return None
    smaller = min(int((usable <= 0).sum()), int((usable >= 0).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(usable) + 1))


def _verdict(difference: Estimate, sign: int = 1) -> Verdict:
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return "unclear"
    return "better" if sign * difference.value > 0 else "worse"


def _label_changes(
    scored: ScoredImages, first: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[LabelChange, ...]:
    """Return the change of each label from its average precision with both models, ``[L, 1 + D]`` each."""
    differences = estimates(second - first, bounds=(-1, 1), centred=False)
    positives = scored.inputs.positives.sum(dim=0).tolist()
    columns = scored.labels, positives, first[:, 0].tolist(), second[:, 0].tolist(), differences
    return tuple(
        LabelChange(name, scored.labels.display(name), count, old, new, difference, _verdict(difference))
        for name, count, old, new, difference in zip(*columns, strict=True)
        if count
    )


def _image_changes(
    first: ScoredImages, second: ScoredImages, *, at_most: int = 8
) -> tuple[tuple[ImageChange, ...], tuple[ImageChange, ...]]:
    """Return the images whose loss decreased most, and those whose loss increased most."""
    before, after = image_losses(first), image_losses(second)
    gain = before - after
    order = gain.argsort(descending=True, stable=True).tolist()

    def changes(rows: list[int]) -> tuple[ImageChange, ...]:
        return tuple(
            ImageChange(first.names[row], int(first.indices[row]), float(before[row]), float(after[row]))
            for row in rows
        )

    fell = [row for row in order[:at_most] if gain[row] > _LEAST_CHANGE]
    rose = [row for row in order[::-1][:at_most] if gain[row] < -_LEAST_CHANGE]
    return changes(fell), changes(rose)
