"""From a loss per label, or per picture, to one number."""

from typing import Literal, get_args

from torch import Tensor

from manylabel.errors import ConfigError, list_choices

__all__ = ["Reduction", "check_reduction", "reduce"]

Reduction = Literal["mean", "sum"]


def check_reduction(reduction: str) -> None:
    """Refuse a wrong reduction.

    Raises:
        ConfigError: There is no such reduction.

    Examples:
        >>> check_reduction("men")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: reduction='men' is not one; did you mean 'mean'? There is: mean, sum
    """
    if reduction not in get_args(Reduction):
        raise ConfigError(f"reduction={reduction!r} is not one; {list_choices(reduction, get_args(Reduction))}")


def reduce(values: Tensor, counted: Tensor, reduction: Reduction) -> Tensor:
    """Add up, or average, the values that count.

    Args:
        values: Losses, of any shape.
        counted: True for those that count, of the same shape.
        reduction: ``"sum"`` or ``"mean"``; the mean is over the values that count.

    Returns:
        One number; 0, with a gradient of 0, if nothing counts.

    Examples:
        >>> import torch
        >>> values, counted = torch.tensor([1.0, 3.0, 9.0]), torch.tensor([True, True, False])
        >>> reduce(values, counted, "mean"), reduce(values, ~counted & counted, "mean")
        (tensor(2.), tensor(0.))
    """
    total = values.masked_fill(~counted, 0).sum()
    return total if reduction == "sum" else total / counted.sum().clamp(min=1)
