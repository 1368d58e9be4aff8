"""The bootstrap over pictures: draw as many as there are, with replacement, and measure again; many times, fast.

A draw is how often each picture came up, and every measure is a function of these counts (`statistics`), computed for
a block of draws at once. The same seed and number of pictures give the same draws, which is what pairs two models.

Letters in shape comments: N pictures, L labels, D draws.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.evaluation.estimate import Estimate, estimate
from manylabel.evaluation.scores import ScoredImages
from manylabel.evaluation.statistics.average_precision import WeightedAveragePrecision
from manylabel.evaluation.statistics.calibration import WeightedCalibrationError
from manylabel.evaluation.statistics.classes import WeightedClassAverages
from manylabel.evaluation.statistics.ratios import WeightedRatios, picture_ratios
from manylabel.metrics import average_precision, top_labels
from manylabel.metrics.inputs import check

__all__ = [
    "Draws",
    "Statistic",
    "bootstrap",
    "compare_map",
    "draw_counts",
    "estimate_map",
    "mean_over_labels",
    "resample",
]

_BLOCK = 32  # draws at once: 128 bytes a picture, so that the counts of tens of thousands of pictures fit in a cache

Statistic = Callable[[Tensor], Tensor]
"""Counts ``[N, D]`` to values ``[..., D]``."""


@dataclass(frozen=True, eq=False)
class Draws:
    """What the measures were in each draw; NaN where a draw had none.

    Args:
        measures: ``[D]`` for each measure, by its name.
        average_precision: ``[L, D]``.
    """

    measures: dict[str, NDArray[np.float64]]
    average_precision: NDArray[np.float64]


def bootstrap(scored: ScoredImages, *, draws: int = 1000, seed: int = 0) -> Draws:
    """Measure a model on resampled pictures.

    Args:
        scored: The scores beside the truth.
        draws: How often to draw.
        seed: Fixes the draws.

    Examples:
        >>> scores, targets = torch.rand(50, 2), torch.arange(100).reshape(50, 2) % 3 == 0
        >>> drawn = bootstrap(ScoredImages.from_arrays(scores, targets, labels=["cat", "dog"]), draws=10)
        >>> drawn.average_precision.shape, drawn.measures["mAP"].shape
        ((2, 10), (10,))
    """
    judged = scored.judged
    statistics: dict[str, Statistic] = {
        "precision": WeightedAveragePrecision(judged, interpolated=True),
        "classes": WeightedClassAverages(scored.predicted, judged),
        "top_three": WeightedClassAverages(top_labels(scored.scores, 3), judged),
        "calibration": WeightedCalibrationError(judged),
        "ratios": (ratios := WeightedRatios(picture_ratios(scored))),
    }
    found = resample(statistics, num_pictures=len(scored), draws=draws, seed=seed)
    means = (mean_over_labels(of_kind) for of_kind in found["precision"])
    measures = {
        **dict(zip(("mAP", "mAP_all_points", "mAP_eleven_points"), means, strict=True)),
        **dict(zip(("CP", "CR", "CF1"), found["classes"], strict=True)),
        **dict(zip(("CP@3", "CR@3", "CF1@3"), found["top_three"], strict=True)),
        **dict(zip(ratios.names, found["ratios"], strict=True)),
        "calibration_error": found["calibration"][0],
    }
    return Draws(measures, found["precision"][0])


def estimate_map(
    scores: Tensor, targets: Tensor, known: Tensor | None = None, *, draws: int = 200, seed: int = 0
) -> Estimate:
    """Estimate mAP with its interval from bare tensors, cheaply enough for the end of a training run.

    Args:
        scores: ``[N, L]``, probabilities or logits.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known (default: all of it).
        draws: Number of bootstrap draws.
        seed: Seed of the draws.

    Examples:
        >>> scores, targets = torch.tensor([[0.9], [0.2], [0.6]]), torch.tensor([[1], [0], [1]])
        >>> estimate_map(scores, targets)
        Estimate(value=1.0, low=1.0, high=1.0)
    """
    [(value, drawn)] = _map_of([scores], targets, known, draws=draws, seed=seed)
    return estimate(value, drawn)


def compare_map(
    first: Tensor, second: Tensor, targets: Tensor, known: Tensor | None = None, *, draws: int = 200, seed: int = 0
) -> Estimate:
    """Estimate the mAP of `second` minus that of `first` on the same images, such as two epochs of one run.

    Args:
        first: ``[N, L]``, probabilities or logits.
        second: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known (default: all of it).
        draws: Number of bootstrap draws, the same for both.
        seed: Seed of the draws.

    Returns:
        The difference; its `is_positive` is true where the second is significantly better.

    Examples:
        >>> targets = torch.arange(60).reshape(60, 1) % 3 == 0
        >>> good, bad = targets.float(), torch.arange(60.0).reshape(60, 1)
        >>> compare_map(bad, good, targets).is_positive, compare_map(good, good, targets).is_positive
        (True, False)
    """
    before, after = _map_of([first, second], targets, known, draws=draws, seed=seed)
    return estimate(after[0] - before[0], after[1] - before[1], bounds=(-1, 1), centred=False)


def _map_of(
    models: Sequence[Tensor], targets: Tensor, known: Tensor | None, *, draws: int, seed: int
) -> list[tuple[float, NDArray[np.float64]]]:
    """Return mAP and its draws for the scores of each model."""
    judged = [check(scores, targets, known) for scores in models]
    statistics = {str(number): WeightedAveragePrecision(one) for number, one in enumerate(judged)}
    drawn = resample(statistics, num_pictures=len(targets), draws=draws, seed=seed)
    values = [average_precision(*one).mean().item() for one in judged]
    return list(zip(values, (mean_over_labels(found[0]) for found in drawn.values()), strict=True))


def resample(
    statistics: Mapping[str, Statistic], *, num_pictures: int, draws: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Compute some things for each draw.

    Args:
        statistics: Each makes values ``[..., D]`` of counts ``[N, D]``.
        num_pictures: How many pictures there are, and are drawn.
        draws: How often to draw; with 0 the result has room for none.
        seed: Fixes the draws.

    Returns:
        ``[..., D]`` for each, by its name.

    Raises:
        ConfigError: There is no picture, or the number of draws is negative.

    Examples:
        >>> resample({"pictures": lambda counts: counts.sum(dim=0)}, num_pictures=7, draws=3, seed=0)
        {'pictures': array([7., 7., 7.])}
    """
    if num_pictures < 1 or draws < 0:
        raise ConfigError(f"draws must be at least 0, of at least 1 picture, got {draws} of {num_pictures} pictures")

    def measure(start: int) -> list[Tensor]:
        counts = draw_counts(num_pictures, draws=min(_BLOCK, max(draws, 1) - start), seed=(seed, start))
        with torch.inference_mode():
            return [statistic(counts).double() for statistic in statistics.values()]

    with _single_threaded() as num_threads, ThreadPoolExecutor(num_threads) as pool:
        by_block = list(pool.map(measure, range(0, max(draws, 1), _BLOCK)))  # one even for none, to know the shape
    return {
        name: torch.cat(blocks, dim=-1)[..., :draws].numpy()
        for name, blocks in zip(statistics, zip(*by_block, strict=True), strict=True)
    }


def draw_counts(num_pictures: int, *, draws: int, seed: int | tuple[int, ...]) -> Tensor:
    """Draw pictures with replacement, as many as there are, and count how often each came up.

    Args:
        num_pictures: How many pictures there are.
        draws: How often to do so.
        seed: Fixes the draws.

    Returns:
        ``[N, D]``, whole numbers as float32.

    Examples:
        >>> draw_counts(5, draws=2, seed=0).sum(dim=0)
        tensor([5., 5.])
    """
    drawn = np.random.default_rng(seed).integers(num_pictures, size=(draws, num_pictures), dtype=np.int32)
    counts = [np.bincount(pictures, minlength=num_pictures) for pictures in drawn]
    return torch.from_numpy(np.stack(counts, dtype=np.float32, casting="unsafe")).t().contiguous()


@contextmanager
def _single_threaded() -> Iterator[int]:
    """Let each operation of torch run in one thread, and give how many it had.

    Threads inside each of many small operations would wait for each other more than they work, and on a busy machine
    take several times as long as one alone; whole blocks of draws in threads of their own do not.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield num_threads
    finally:
        torch.set_num_threads(num_threads)


def mean_over_labels(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of ``[L, D]`` over the labels that have a value in a draw; NaN where none has.

    Examples:
        >>> mean_over_labels(np.array([[0.5, np.nan], [1.0, np.nan]]))
        array([0.75,  nan])
    """
    defined = ~np.isnan(values)
    count = defined.sum(axis=0)
    return np.where(count > 0, np.where(defined, values, 0).sum(axis=0) / count.clip(min=1), np.nan)
