"""The bootstrap over images: values with an interval, and differences of two models on the same samples.

Images are drawn with replacement, as many as there are, and every metric is computed again; 95 % of the values so
obtained lie in the interval. A sample is how often each image was drawn, and every metric takes such counts as weights.
The same seed and number of images give the same samples, which makes two models paired.

Duplicates of a rare label's few images inflate its average precision. The resampled values of a metric are therefore
shifted to have the measured value as their mean: the interval shows how much the value would vary over other sets of
the same size and distribution. Differences are not shifted: what inflates one model inflates the other.

Letters in shape comments: N images, L labels, D draws.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics import mean_average_precision

FEWEST_DRAWS = 20
"""Fewest usable draws for an interval."""

_BLOCK = 32  # draws of one generator: a part of the seed


class Estimate(NamedTuple):
    """A value and its 95 % interval; the bounds are None if there is no interval.

    Examples:
        >>> str(Estimate(0.5, 0.4, 0.61)), str(Estimate(0.5))
        ('0.5000 (0.4000 to 0.6100)', '0.5000')
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4f}" + ("" if self.low is None else f" ({self.low:.4f} to {self.high:.4f})")


def bootstrap_weights(num_images: int, *, draws: int, seed: int = 0) -> Tensor:
    """Return the weights that metrics take: once every image, then how often each was drawn with replacement.

    Args:
        num_images: Number of images.
        draws: Number of draws.
        seed: Seed of the draws.

    Returns:
        ``[1 + D, N]``.

    Raises:
        ConfigError: There is no image, or the number of draws is negative.

    Examples:
        >>> weights = bootstrap_weights(5, draws=2)
        >>> weights[0].tolist(), weights.sum(dim=1).tolist()
        ([1, 1, 1, 1, 1], [5, 5, 5])
    """
    if num_images < 1 or draws < 0:
        raise ConfigError(f"draws must be 0 or more, over at least 1 image, got {draws} of {num_images} images")
    counts = np.ones((1 + draws, num_images), dtype=np.int16)
    for start in range(0, draws, _BLOCK):
        size = (min(_BLOCK, draws - start), num_images)
        drawn = np.random.default_rng((seed, start)).integers(num_images, size=size, dtype=np.int32)
        for row, images in enumerate(drawn, start + 1):
            counts[row] = np.bincount(images, minlength=num_images)
    return torch.from_numpy(counts)


def estimate(values: ArrayLike | Tensor, *, bounds: tuple[float, float] = (0, 1), centred: bool = True) -> Estimate:
    """Return a value with its interval.

    Args:
        values: ``[1 + D]``, the value on the images themselves, then on each draw; NaN where undefined.
        bounds: Range of the value.
        centred: Whether to shift the draws to have the value as their mean.

    Examples:
        >>> estimate([0.5, *np.linspace(0.5, 0.7, 201)])
        Estimate(value=0.5, low=0.405, high=0.595)
    """
    return estimates(np.asarray(values)[None], bounds=bounds, centred=centred)[0]


def estimates(
    values: ArrayLike | Tensor, *, bounds: tuple[float, float] = (0, 1), centred: bool = True
) -> list[Estimate]:
    """Return several values with their intervals, from rows ``[1 + D]``; see `estimate`.

    Examples:
        >>> estimates([[0.25], [0.75]])
        [Estimate(value=0.25, low=None, high=None), Estimate(value=0.75, low=None, high=None)]
    """
    measured, drawn = np.split(np.asarray(values, dtype=np.float64), [1], axis=1)
    enough = (~np.isnan(drawn)).sum(axis=1) >= FEWEST_DRAWS
    if not enough.any():
        return [Estimate(value) for value in measured[:, 0].tolist()]
    drawn = np.where(enough[:, None], drawn, 0)
    if centred:
        drawn += np.where(enough[:, None], measured - np.nanmean(drawn, axis=1, keepdims=True), 0)
    low, high = np.nanquantile(drawn, (0.025, 0.975), axis=1).clip(*bounds).round(6).tolist()
    rows = zip(measured[:, 0].tolist(), low, high, enough, strict=True)
    return [Estimate(value, below, above) if usable else Estimate(value) for value, below, above, usable in rows]


def estimate_map(scores: Tensor, targets: Tensor, known: Tensor | None = None, *, draws: int = 1000) -> Estimate:
    """Estimate mAP with its interval from bare tensors, fast enough for the end of a training run.

    Args:
        scores: ``[N, L]``, probabilities or logits.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known (default: all of it).
        draws: Number of bootstrap draws.

    Examples:
        >>> scores, targets = torch.tensor([[0.9], [0.2], [0.6]]), torch.tensor([[1], [0], [1]])
        >>> estimate_map(scores, targets)
        Estimate(value=1.0, low=1.0, high=1.0)
    """
    weights = bootstrap_weights(len(targets), draws=draws)
    return estimate(mean_average_precision(scores, targets, known, weights=weights).cpu())


def compare_map(
    first: Tensor, second: Tensor, targets: Tensor, known: Tensor | None = None, *, draws: int = 1000
) -> Estimate:
    """Estimate the mAP of `second` minus that of `first` on the same images, such as two epochs of one run.

    Args:
        first: ``[N, L]``, probabilities or logits.
        second: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known (default: all of it).
        draws: Number of bootstrap draws, the same for both.

    Returns:
        The difference: the second is significantly better if its lower bound is above 0.

    Examples:
        >>> targets = torch.arange(60).reshape(60, 1) % 3 == 0
        >>> good, bad = targets.float(), torch.arange(60.0).reshape(60, 1)
        >>> compare_map(bad, good, targets).low > 0, compare_map(good, good, targets).low > 0
        (True, False)
    """
    weights = bootstrap_weights(len(targets), draws=draws)
    before, after = (mean_average_precision(each, targets, known, weights=weights).double() for each in (first, second))
    return estimate((after - before).cpu(), bounds=(-1, 1), centred=False)


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
