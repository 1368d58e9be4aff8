"""Compare two models on the same images: a paired bootstrap, and which labels got better or worse.

Both models are measured on the same draws, so what is hard about a draw is hard for both and drops out of the
difference. That reveals small differences; two intervals that overlap say nothing about it.

Letters in shape comments: L labels, D draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ConfigError, LabelError
from manylabel.evaluation.bootstrap import FEWEST_DRAWS, Estimate, estimate, estimates, to_plain
from manylabel.evaluation.measures import DEFAULT_MEASURES, MEASURES, bootstrap, measure
from manylabel.evaluation.results import image_losses
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import average_precision

__all__ = ["Comparison", "ImageChange", "LabelChange", "MeasureChange", "PairsImproved", "compare"]

Verdict = Literal["better", "worse", "unclear"]


@dataclass(frozen=True)
class MeasureChange:
    """A measure of both models.

    Args:
        first: Of the first model.
        second: Of the second.
        difference: Second minus first, with its interval.
        p_value: Twice the fraction of draws on the other side of 0, at least 2 / (draws + 1); None without draws.
        verdict: Better or worse; unclear where the interval holds 0.
    """

    first: float
    second: float
    difference: Estimate
    p_value: float | None
    verdict: Verdict


@dataclass(frozen=True)
class LabelChange:
    """The average precision of one label with both models; see `MeasureChange`."""

    name: str
    display_name: str
    positives: int
    first: float
    second: float
    difference: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class PairsImproved:
    """Pairs of labels of which both improved: how HSQ counts simultaneous improvement.

    Yin et al., "Hybrid Sharing for Multi-Label Image Classification": 15 of VOC's 20 labels are 105 pairs of 190.

    Args:
        pairs: All pairs of labels that have an average precision.
        improved: Pairs of which both have a higher average precision with the second model.
        clearly_improved: Pairs of which both are clearly better: their intervals lie above 0.
        worsened: Pairs of which both have a lower average precision.
    """

    pairs: int
    improved: int
    clearly_improved: int
    worsened: int

    @property
    def fraction(self) -> float:
        """The fraction of all pairs that improved."""
        return self.improved / max(1, self.pairs)


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
        seed: Seed of the draws.
        measures: The measures that are defined for both models.
        labels: The average precision of every label that has positives.
        pairs: How many pairs of labels improved together.
        better: The images whose loss fell most.
        worse: The images whose loss rose most.
        left_out: Labels without positives.
        notes: Remarks for a reader.
    """

    first: str
    second: str
    dataset: str
    num_images: int
    draws: int
    seed: int
    measures: dict[str, MeasureChange]
    labels: tuple[LabelChange, ...]
    pairs: PairsImproved
    better: tuple[ImageChange, ...]
    worse: tuple[ImageChange, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return to_plain(self)


def compare(
    first: ScoredImages,
    second: ScoredImages,
    *,
    measures: Iterable[str] = DEFAULT_MEASURES,
    draws: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same images.

    Args:
        first: Scores of the first model, and targets.
        second: Those of the second, on the same dataset; images that only one has scores for are left out.
        measures: Names of `MEASURES` (default: the most common dozen), or ``["all"]``.
        draws: Number of bootstrap draws; 0 for no intervals.
        seed: Seed of the draws.

    Returns:
        The changes from the first to the second; `comparison_page` shows it, `to_dict` makes JSON of it.

    Raises:
        LabelError: The labels differ.
        ConfigError: The models have no image in common, the targets differ, or no image is known to have a label.

    Examples:
        >>> targets = [[1, 0], [1, 1], [0, 1]]
        >>> good, bad = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[0.3, 0.2], [0.2, 0.7], [0.9, 0.1]]
        >>> models = [ScoredImages.from_arrays(scores, targets, labels=["cat", "dog"]) for scores in (bad, good)]
        >>> comparison = compare(*models, draws=0)
        >>> round(comparison.measures["mAP"].difference.value, 4), comparison.pairs.improved
        (0.2917, 1)
    """
    first, second, notes = _align(first, second)
    if not first.inputs.positives.any():
        raise ConfigError(f"there is nothing to compare: none of {len(first)} images is known to have a label")
    names = tuple(measures)
    drawn = [bootstrap(scored, names, draws=draws, seed=seed) for scored in (first, second)]
    values = [measure(scored, names) for scored in (first, second)]
    labels = _label_changes(first, second, drawn[1].average_precision - drawn[0].average_precision)
    better, worse = _image_changes(first, second)
    return Comparison(
        first=first.model,
        second=second.model,
        dataset=first.dataset,
        num_images=len(first),
        draws=draws,
        seed=seed,
        measures={
            name: _measure_change(
                name, values[0][name], values[1][name], drawn[1].measures[name] - drawn[0].measures[name]
            )
            for name in values[0]
            if name in values[1]
        },
        labels=labels,
        pairs=_pairs(labels),
        better=better,
        worse=worse,
        left_out=tuple(name for name in first.labels if name not in {label.name for label in labels}),
        notes=notes,
    )


def _align(first: ScoredImages, second: ScoredImages) -> tuple[ScoredImages, ScoredImages, tuple[str, ...]]:
    """Keep the images that both have, and note where some are dropped or predictions are made by other rules."""
    if first.labels.names != second.labels.names:
        odd = sorted(set(first.labels) ^ set(second.labels)) or ["their order"]
        raise LabelError(f"the labels of the two models differ ({', '.join(odd[:5])}); score both on the same dataset")
    common = np.intersect1d(first.indices, second.indices)
    if not len(common):
        raise ConfigError("the two models have no image in common; score both on the same dataset")
    left, right = (
        scored.take(np.array([places[index] for index in common.tolist()]))
        for scored in (first, second)
        for places in [{index: row for row, index in enumerate(scored.indices.tolist())}]
    )
    if not bool((left.targets == right.targets).all() and (left.known == right.known).all()):
        raise ConfigError("the targets of the two differ; score both on the same dataset")
    notes = []
    dropped = len(first) + len(second) - 2 * len(common)
    if dropped:
        notes.append(f"{dropped} image{'s' if dropped > 1 else ''} with scores of one model only left out.")
    if (first.thresholds is None) != (second.thresholds is None):
        tuned, other = (second, first) if first.thresholds is None else (first, second)
        notes.append(
            f"{tuned.model} has thresholds of its own, {other.model} predicts from 50 % on; measures of decisions "
            "(CP to OF1) compare the thresholds, too."
        )
    return left, right, tuple(dict.fromkeys([*notes, *first.notes, *second.notes]))


def _measure_change(name: str, first: float, second: float, draws: NDArray[np.float64]) -> MeasureChange:
    bound = 1.0 if MEASURES[name].is_fraction else np.inf
    difference = estimate(second - first, draws, bounds=(-bound, bound), centred=False)
    sign = 1 if MEASURES[name].higher_is_better else -1
    return MeasureChange(first, second, difference, _p_value(draws), _verdict(difference, sign))


def _p_value(draws: NDArray[np.float64]) -> float | None:
    """Return twice the fraction of draws on the rarer side of 0; draws of just 0 are on both."""
    usable = draws[~np.isnan(draws)]
    if len(usable) < FEWEST_DRAWS:
        return None
    smaller = min(int((usable <= 0).sum()), int((usable >= 0).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(usable) + 1))


def _verdict(difference: Estimate, sign: int = 1) -> Verdict:
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return "unclear"
    return "better" if sign * difference.value > 0 else "worse"


def _label_changes(first: ScoredImages, second: ScoredImages, draws: NDArray[np.float64]) -> tuple[LabelChange, ...]:
    before, after = (average_precision(*scored.inputs).double() for scored in (first, second))
    differences = estimates((after - before).numpy(), draws, bounds=(-1, 1), centred=False)
    columns = zip(
        first.labels,
        first.inputs.positives.sum(dim=0).tolist(),
        before.tolist(),
        after.tolist(),
        differences,
        strict=True,
    )
    return tuple(
        LabelChange(name, first.labels.display(name), positives, old, new, difference, _verdict(difference))
        for name, positives, old, new, difference in columns
        if positives
    )


def _pairs(labels: tuple[LabelChange, ...]) -> PairsImproved:
    def pairs_of(count: int) -> int:
        return count * (count - 1) // 2

    return PairsImproved(
        pairs=pairs_of(len(labels)),
        improved=pairs_of(sum(label.difference.value > 0 for label in labels)),
        clearly_improved=pairs_of(sum(label.verdict == "better" for label in labels)),
        worsened=pairs_of(sum(label.difference.value < 0 for label in labels)),
    )


def _image_changes(
    first: ScoredImages, second: ScoredImages, *, at_most: int = 8
) -> tuple[tuple[ImageChange, ...], tuple[ImageChange, ...]]:
    """Return the images whose loss fell most, and those whose loss rose most."""
    before, after = image_losses(first), image_losses(second)
    gain = before - after
    order = gain.argsort(descending=True, stable=True).tolist()

    def changes(rows: list[int]) -> tuple[ImageChange, ...]:
        return tuple(
            ImageChange(first.names[row], int(first.indices[row]), float(before[row]), float(after[row]))
            for row in rows
        )

    fell = [row for row in order[:at_most] if gain[row] > 0]
    rose = [row for row in order[::-1][:at_most] if gain[row] < 0]
    return changes(fell), changes(rose)
