"""The bootstrap over images: values with an interval, and differences of two models on the same draws.

Images are drawn with replacement, as many as there are, and everything is measured again; 95 % of the values so
obtained lie in the interval. A draw is how often each image came up, and every metric takes such counts as weights.
The same seed and number of images give the same draws, which is what pairs two models.

A drawn set holds copies, and copies of a rare label's few images flatter its average precision. The draws of a value
are therefore shifted so that their mean is the value itself: the interval is how much the value would vary over other
sets of as many images of the same kind. Differences are left as they are: what flatters one model flatters the other.

Letters in shape comments: N images, L labels, D draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics import mean_average_precision

__all__ = [
    "FEWEST_DRAWS",
    "Estimate",
    "compare_map",
    "draw_counts",
    "estimate",
    "estimate_map",
    "estimates",
    "to_plain",
]

FEWEST_DRAWS = 20
"""With fewer usable draws there is no interval."""

_BLOCK = 32  # draws of one generator: a part of the seed


class Estimate(NamedTuple):
    """A value and its 95 % interval; without bounds where there is none.

    Examples:
        >>> str(Estimate(0.5, 0.4, 0.61)), str(Estimate(0.5))
        ('0.5000 (0.4000 to 0.6100)', '0.5000')
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4f}" + ("" if self.low is None else f" ({self.low:.4f} to {self.high:.4f})")

    @property
    def is_positive(self) -> bool:
        """True where the whole interval lies above 0: a difference that chance does not explain."""
        return self.low is not None and self.low > 0


def draw_counts(num_images: int, *, draws: int, seed: int = 0) -> Tensor:
    """Draw images with replacement, as many as there are, and count how often each came up.

    Args:
        num_images: Number of images.
        draws: Number of draws.
        seed: Seed of the draws.

    Returns:
        ``[D, N]``, the weights that metrics take.

    Raises:
        ConfigError: There is no image, or the number of draws is negative.

    Examples:
        >>> draw_counts(5, draws=2).sum(dim=1).tolist()
        [5, 5]
    """
    if num_images < 1 or draws < 0:
        raise ConfigError(f"draws must be at least 0, of at least 1 image, got {draws} of {num_images} images")
    counts = np.zeros((draws, num_images), dtype=np.int16)
    for start in range(0, draws, _BLOCK):
        size = (min(_BLOCK, draws - start), num_images)
        drawn = np.random.default_rng((seed, start)).integers(num_images, size=size, dtype=np.int32)
        for row, images in enumerate(drawn, start):
            counts[row] = np.bincount(images, minlength=num_images)
    return torch.from_numpy(counts)


def estimate(value: float, draws: ArrayLike, *, bounds: tuple[float, float] = (0, 1), centred: bool = True) -> Estimate:
    """Make an estimate of a value and its draws.

    Args:
        value: The value on the images themselves.
        draws: ``[D]``, the values on the drawn images; NaN where undefined.
        bounds: The range of the value.
        centred: Whether to shift the draws so that their mean is the value.

    Examples:
        >>> estimate(0.5, np.linspace(0.5, 0.7, 201))
        Estimate(value=0.5, low=0.405, high=0.595)
    """
    return estimates([value], np.asarray(draws)[None], bounds=bounds, centred=centred)[0]


def estimates(
    values: ArrayLike, draws: ArrayLike, *, bounds: tuple[float, float] = (0, 1), centred: bool = True
) -> list[Estimate]:
    """Make an estimate of each of several values; see `estimate`.

    Args:
        values: One for each estimate.
        draws: ``[values, D]``.
        bounds: The range of the values.
        centred: Whether to shift the draws so that their mean is the value.

    Examples:
        >>> estimates([0.25, 0.75], np.zeros((2, 0)))
        [Estimate(value=0.25, low=None, high=None), Estimate(value=0.75, low=None, high=None)]
    """
    drawn = np.asarray(draws, dtype=np.float64)
    if centred:
        drawn = _centre(np.asarray(values, dtype=np.float64), drawn)
    low, high = (_quantile(drawn, fraction).clip(*bounds) for fraction in (0.025, 0.975))
    has_interval = (~np.isnan(drawn)).sum(axis=1) >= FEWEST_DRAWS
    rows = zip(np.asarray(values).tolist(), low.tolist(), high.tolist(), has_interval.tolist(), strict=True)
    return [
        Estimate(value, round(below, 6), round(above, 6)) if enough else Estimate(value)
        for value, below, above, enough in rows
    ]


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


def to_plain(record: object) -> dict[str, Any]:
    """Return a result as plain lists and dictionaries, ready for JSON.

    Args:
        record: A dataclass or a named tuple.

    Examples:
        >>> to_plain(Estimate(0.5))
        {'value': 0.5, 'low': None, 'high': None}
    """
    names: Iterable[str] = getattr(record, "_fields", ()) or getattr(record, "__dataclass_fields__", ())
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: object) -> object:
    if hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__"):
        return to_plain(value)
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _map_of(
    models: Sequence[Tensor], targets: Tensor, known: Tensor | None, *, draws: int, seed: int
) -> list[tuple[float, NDArray[np.float64]]]:
    """Return mAP and its draws for the scores of each model."""
    weights = draw_counts(len(targets), draws=draws, seed=seed)
    return [
        (
            mean_average_precision(scores, targets, known).item(),
            mean_average_precision(scores, targets, known, weights=weights).double().cpu().numpy(),
        )
        for scores in models
    ]


def _centre(values: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift the draws ``[values, D]`` so that their mean is the value."""
    usable = ~np.isnan(draws)
    means = np.where(usable, draws, 0).sum(axis=1) / usable.sum(axis=1).clip(min=1)
    return np.asarray(draws - (means - values)[:, None])


def _quantile(draws: NDArray[np.float64], fraction: float) -> NDArray[np.float64]:
    """Return a quantile of each row, NaN left out: numpy's own does so row by row, and warns where all are."""
    ordered = np.sort(draws, axis=1)  # NaN last
    if not ordered.shape[1]:
        return np.zeros(len(ordered))
    place = fraction * ((~np.isnan(ordered)).sum(axis=1) - 1).clip(min=0)
    below = np.floor(place).astype(np.int64)
    above = np.ceil(place).astype(np.int64)
    first, second = (np.take_along_axis(ordered, where[:, None], axis=1)[:, 0] for where in (below, above))
    return np.asarray(first + (second - first) * (place - below))
