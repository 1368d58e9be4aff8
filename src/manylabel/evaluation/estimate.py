"""A number and how far it can be trusted.

The interval is that of the bootstrap: the pictures are drawn again and again, with replacement, and 95 % of the values
so obtained lie inside. One thing is mended: a drawn set holds copies, and copies of a rare label's few pictures flatter
its average precision. The draws are therefore moved so that their mean is the value itself. What the interval means is
thus how much the value would vary over other sets of as many pictures of the same kind. Differences of two models are
left as they are: what flatters the one flatters the other.

Letters in shape comments: D draws.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FEWEST_DRAWS", "Estimate", "estimate", "estimates"]

FEWEST_DRAWS = 20
"""With fewer usable draws there is no interval."""


class Estimate(NamedTuple):
    """A value and its 95 % interval; without bounds where none could be found.

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

    def to_dict(self) -> dict[str, float | None]:
        """Return plain numbers, ready for JSON."""
        return self._asdict()


def estimate(value: float, draws: ArrayLike, *, bounds: tuple[float, float] = (0, 1), centred: bool = True) -> Estimate:
    """Make an estimate of a value and what the bootstrap gave for it.

    Args:
        value: The value on the pictures themselves.
        draws: ``[D]``, the values on the drawn pictures; NaN where a draw had none.
        bounds: What the value cannot leave.
        centred: Whether to move the draws so that their mean is the value.

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
        bounds: What the values cannot leave.
        centred: Whether to move the draws so that their mean is the value.

    Examples:
        >>> estimates([0.25, 0.75], np.zeros((2, 0)))
        [Estimate(value=0.25, low=None, high=None), Estimate(value=0.75, low=None, high=None)]
    """
    drawn = np.asarray(draws, dtype=np.float64)
    if centred:
        drawn = _centre(np.asarray(values, dtype=np.float64), drawn)
    low, high = (_quantile(drawn, share).clip(*bounds) for share in (0.025, 0.975))
    has_interval = (~np.isnan(drawn)).sum(axis=1) >= FEWEST_DRAWS
    rows = zip(np.asarray(values).tolist(), low.tolist(), high.tolist(), has_interval.tolist(), strict=True)
    return [
        Estimate(value, round(below, 6), round(above, 6)) if enough else Estimate(value)
        for value, below, above, enough in rows
    ]


def _centre(values: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move the draws ``[values, D]`` so that their mean is the value."""
    usable = ~np.isnan(draws)
    means = np.where(usable, draws, 0).sum(axis=1) / usable.sum(axis=1).clip(min=1)
    return np.asarray(draws - (means - values)[:, None])


def _quantile(draws: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return a quantile of each row, NaN left out: numpy's own does so row by row, and warns where all are."""
    ordered = np.sort(draws, axis=1)  # NaN last
    if not ordered.shape[1]:
        return np.zeros(len(ordered))
    place = share * ((~np.isnan(ordered)).sum(axis=1) - 1).clip(min=0)
    below = np.floor(place).astype(np.int64)
    above = np.ceil(place).astype(np.int64)
    first, second = (np.take_along_axis(ordered, where[:, None], axis=1)[:, 0] for where in (below, above))
    return np.asarray(first + (second - first) * (place - below))
