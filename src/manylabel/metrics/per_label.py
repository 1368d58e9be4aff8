"""A value for each label, beside which labels have one at all."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["PerLabel"]


class PerLabel(NamedTuple):
    """A value for each label that has one.

    Args:
        values: ``[L]``, 0 where a label has no value; never NaN.
        defined: ``[L]``, true where it has one; a label without positives has no average precision, for example.

    Example:
        >>> precision = PerLabel(torch.tensor([0.5, 0.0, 1.0]), torch.tensor([True, False, True]))
        >>> precision.mean().item(), precision.left_out(["cat", "dog", "cow"])
        (0.75, ['dog'])
    """

    values: Tensor
    defined: Tensor

    def mean(self) -> Tensor:
        """Return the mean over the labels that have a value; 0 if none has."""
        return torch.where(self.defined, self.values, 0).sum() / self.defined.sum().clamp(min=1)

    def left_out(self, names: Iterable[str]) -> list[str]:
        """Name the labels that have no value, and so are not in the mean."""
        return [name for name, has_value in zip(names, self.defined.tolist(), strict=True) if not has_value]
