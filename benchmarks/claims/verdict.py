"""Verdicts on claims: differences between two arms with confidence intervals.

A 95 % interval covers the variation of images and seeds together: each bootstrap draw resamples images, the same ones
for both arms, then seeds, again the same ones for both. With one seed it covers images only; for metrics without scores
(`from_pairs`) it is Student's t over the pairs, and a single pair is inconclusive.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from manylabel.data import ImageDataset
from manylabel.evaluation import ScoredImages, bootstrap
from manylabel.evaluation.evaluate import SIZE_LIMITS

DRAWS = 1000
INCONCLUSIVE = "inconclusive"
SIMILAR = (
    ("bicycle", "motorbike"),
    ("cow", "horse"),
    ("cow", "sheep"),
    ("cat", "dog"),
    ("bus", "car"),
    ("chair", "sofa"),
)

Kind = Literal["better", "no worse"]
Statistic = Callable[[ScoredImages], NDArray[np.float64]]
"""Maps scores to a metric in percent and its value in each bootstrap draw of images, ``[1 + DRAWS]``."""


@dataclass(frozen=True)
class Difference:
    """Difference of two arms in points, with the limits of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def verdict(difference: Difference, kind: Kind, margin: float) -> str:
    """Return the verdict on the claim that the first arm is better, or at most `margin` points worse."""
    limit = 0.0 if kind == "better" else -margin
    if difference.low > limit:
        return "holds"
    return "does not hold" if difference.high <= limit else INCONCLUSIVE


def scored_images(scores: NDArray[np.float32], dataset: ImageDataset) -> ScoredImages:
    """Combine scores with the targets of a dataset."""
    values, known = dataset.targets.dense()
    scored = ScoredImages.from_arrays(scores, values, known=known, labels=dataset.labels)
    return replace(scored, areas=dataset.areas)


def named(name: str, *, sign: int = 1) -> Statistic:
    """Return a metric of the evaluation as a statistic."""

    def compute(scored: ScoredImages) -> NDArray[np.float64]:
        return 100 * sign * bootstrap(scored, [name], draws=DRAWS).metrics[name]

    return compute


def of_small_objects(name: str) -> Statistic:
    """Return a metric of the evaluation with only small objects present, and larger ones unknown, as a statistic.

    Small are labels whose largest object covers less than 3 % of the image: below the usual 1/300 are too few.
    """

    def compute(scored: ScoredImages) -> NDArray[np.float64]:
        areas = scored.areas.toarray()
        larger = scored.targets.numpy() & ~((areas > 0) & (areas < SIZE_LIMITS[1]))
        return named(name)(replace(scored, known=scored.known & ~scored.known.new_tensor(larger)))

    return compute


def gaps(scored: ScoredImages) -> NDArray[np.float64]:
    """Return the mean gap in average precision between similar labels, negated since less is better."""
    all_of = bootstrap(scored, ["mAP"], draws=DRAWS).average_precision
    pairs = [[scored.labels.index(name) for name in pair] for pair in SIMILAR if set(pair) <= set(scored.labels.names)]
    found: NDArray[np.float64] = -100 * np.mean([abs(all_of[one] - all_of[other]) for one, other in pairs], axis=0)
    return found


STATISTICS: dict[str, Statistic] = {
    "mAP": named("mAP"),
    "recall of the top 3": named("OR@3"),
    "top-1 accuracy": named("one_error", sign=-1),
    "mAP of small objects": of_small_objects("mAP"),
    "recall of small objects in the top 3": of_small_objects("OR@3"),
    "gap between similar labels": gaps,
}


def compare(first: Sequence[NDArray[np.float64]], second: Sequence[NDArray[np.float64]]) -> Difference:
    """Return the mean difference over seeds of two arms' statistics."""
    differences = np.stack(first) - np.stack(second)  # [seeds, 1 + draws]
    generator = np.random.default_rng(0)
    chosen = generator.integers(len(differences), size=(len(differences), DRAWS))
    drawn = np.take_along_axis(differences[:, 1:], chosen, axis=0).mean(axis=0)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Difference(float(differences[:, 0].mean()), float(low), float(high))


def from_pairs(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean difference of paired metrics, such as those of the same seed."""
    differences = [one - other for one, other in zip(first, second, strict=True)]
    if len(differences) == 1:
        return Difference(differences[0], -math.inf, math.inf)
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    return Difference(mean(differences), mean(differences) - half, mean(differences) + half)
