"""Compare two models on the same pictures: a paired bootstrap, and which labels got better or worse.

Both models are measured on the same draws, so what is hard about a draw is hard for both and drops out of the
difference. That is what lets small differences be told apart; two intervals that overlap say nothing about it.

Letters in shape comments: L labels, D draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ConfigError, LabelError
from manylabel.evaluation.bootstrap import bootstrap
from manylabel.evaluation.estimate import FEWEST_DRAWS, Estimate, estimate, estimates
from manylabel.evaluation.measures import MEASURES, measure
from manylabel.evaluation.picture_results import picture_losses
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
        p_value: Twice the share of draws on the other side of 0, at least 2 / (draws + 1); nothing without draws.
        verdict: Whether the second is better; unclear where the interval holds 0.
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
    """Of how many pairs of labels both improved: how HSQ counts simultaneous improvement.

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
    def share(self) -> float:
        """The share of all pairs that improved."""
        return self.improved / max(1, self.pairs)


@dataclass(frozen=True)
class ImageChange:
    """How far the scores of a picture are from the truth, with both models (see `ImageResult.loss`)."""

    name: str
    index: int
    first: float
    second: float


@dataclass(frozen=True)
class Comparison:
    """Two models on the same pictures.

    Args:
        first: What the first model is called.
        second: What the second is called.
        dataset: What the data set is called.
        num_pictures: How many pictures were judged.
        draws: How often the bootstrap drew.
        seed: What fixed the draws.
        measures: Every measure that applies, with both models.
        labels: The average precision of every label that has positives.
        pairs: How many pairs of labels improved together.
        better: The pictures that the second model understands better by most.
        worse: The pictures that it understands worse by most.
        left_out: Labels without positives.
        notes: What else a reader should know.
    """

    first: str
    second: str
    dataset: str
    num_pictures: int
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
        return {
            **vars(self),
            "measures": {name: _to_dict(change) for name, change in self.measures.items()},
            "labels": [_to_dict(change) for change in self.labels],
            "pairs": {**vars(self.pairs), "share": self.pairs.share},
            "better": [vars(change) for change in self.better],
            "worse": [vars(change) for change in self.worse],
            "left_out": list(self.left_out),
            "notes": list(self.notes),
        }


def compare(first: ScoredImages, second: ScoredImages, *, draws: int = 1000, seed: int = 0) -> Comparison:
    """Compare two models on the same pictures.

    Args:
        first: The scores of the first model beside the truth.
        second: Those of the second, on the same data set; pictures that only one has scores for are left out.
        draws: How often the bootstrap draws; no intervals when 0.
        seed: Fixes the draws.

    Returns:
        What changed from the first to the second; `compare_page` shows it, `to_dict` makes JSON of it.

    Raises:
        LabelError: The labels differ.
        ConfigError: The models have no picture in common, or what is true differs.

    Examples:
        >>> targets = [[1, 0], [1, 1], [0, 1]]
        >>> good, bad = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[0.3, 0.2], [0.2, 0.7], [0.9, 0.1]]
        >>> models = [ScoredImages.from_arrays(scores, targets, labels=["cat", "dog"]) for scores in (bad, good)]
        >>> comparison = compare(*models, draws=0)
        >>> round(comparison.measures["mAP"].difference.value, 4), comparison.pairs.improved
        (0.2917, 1)
    """
    first, second, notes = _align(first, second)
    drawn = [bootstrap(scored, draws=draws, seed=seed) for scored in (first, second)]
    values = [measure(scored) for scored in (first, second)]
    labels = _label_changes(first, second, drawn[1].average_precision - drawn[0].average_precision)
    better, worse = _picture_changes(first, second)
    return Comparison(
        first=first.model,
        second=second.model,
        dataset=first.dataset,
        num_pictures=len(first),
        draws=draws,
        seed=seed,
        measures={
            name: _measure_change(
                name, values[0][name], values[1][name], drawn[1].measures[name] - drawn[0].measures[name]
            )
            for name in values[0]
        },
        labels=labels,
        pairs=_pairs(labels),
        better=better,
        worse=worse,
        left_out=tuple(name for name in first.labels if name not in {label.name for label in labels}),
        notes=notes,
    )


def _align(first: ScoredImages, second: ScoredImages) -> tuple[ScoredImages, ScoredImages, tuple[str, ...]]:
    """Keep the pictures that both have, and say so where some are dropped."""
    if first.labels.names != second.labels.names:
        odd = sorted(set(first.labels) ^ set(second.labels)) or ["their order"]
        raise LabelError(f"the labels of the two models differ ({', '.join(odd[:5])}); judge both on the same data set")
    common = np.intersect1d(first.indices, second.indices)
    if not len(common):
        raise ConfigError("the two models have no picture in common; score both on the same data set")
    left, right = _take(first, common), _take(second, common)
    if not bool((left.targets == right.targets).all() and (left.known == right.known).all()):
        raise ConfigError("what is true differs between the two; score both on the same data set")
    dropped = len(first) + len(second) - 2 * len(common)
    notes = [f"{dropped} pictures with scores of one model only were left out."] if dropped else []
    return left, right, tuple(dict.fromkeys([*notes, *first.notes, *second.notes]))


def _take(scored: ScoredImages, indices: NDArray[np.int64]) -> ScoredImages:
    rows = np.flatnonzero(np.isin(scored.indices, indices))
    rows = rows[np.argsort(scored.indices[rows])]
    return replace(
        scored,
        names=tuple(scored.names[row] for row in rows),
        scores=scored.scores[rows],
        targets=scored.targets[rows],
        known=scored.known[rows],
        indices=scored.indices[rows],
        areas=None if scored.areas is None else scored.areas[rows],
    )


def _measure_change(name: str, first: float, second: float, draws: NDArray[np.float64]) -> MeasureChange:
    bound = 1.0 if MEASURES[name].is_share else np.inf
    difference = estimate(second - first, draws, bounds=(-bound, bound), centred=False)
    sign = 1 if MEASURES[name].higher_is_better else -1
    return MeasureChange(first, second, difference, _p_value(draws), _verdict(difference, sign))


def _p_value(draws: NDArray[np.float64]) -> float | None:
    """Return twice the share of draws on the rarer side of 0; draws of just 0 are on both."""
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
    before, after = (average_precision(*scored.judged) for scored in (first, second))
    differences = estimates((after.values - before.values).double().numpy(), draws, bounds=(-1, 1), centred=False)
    columns = zip(
        first.labels,
        first.judged.positives.sum(dim=0).tolist(),
        before.values.tolist(),
        after.values.tolist(),
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


def _picture_changes(
    first: ScoredImages, second: ScoredImages, *, at_most: int = 8
) -> tuple[tuple[ImageChange, ...], tuple[ImageChange, ...]]:
    """Return the pictures whose loss fell most, and those whose loss rose most."""
    before, after = picture_losses(first), picture_losses(second)
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


def _to_dict(change: MeasureChange | LabelChange) -> dict[str, Any]:
    return {**vars(change), "difference": change.difference.to_dict()}
