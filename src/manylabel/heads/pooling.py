"""Feature maps pooled to one vector per picture.

Letters in shape comments: B pictures, C channels, H and W cells of a map.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from manylabel.heads.checks import check_choice

__all__ = ["Pool", "Pooling"]

Pooling = Literal["average", "max", "generalised_mean"]


class Pool(nn.Module):
    """Pools the cells of a map.

    The generalised mean ``(mean x^p)^(1/p)`` lies between the average (p = 1) and the maximum (large p), and learns p.
    It takes what is below zero as zero (Radenovic et al., https://arxiv.org/abs/1711.02512).

    Args:
        pooling: ``"average"``, ``"max"`` or ``"generalised_mean"``.

    Raises:
        ConfigError: There is no such pooling.

    Examples:
        >>> Pool("max")(torch.arange(8.0).reshape(1, 2, 2, 2))
        tensor([[3., 7.]])
    """

    def __init__(self, pooling: Pooling = "average") -> None:
        super().__init__()
        check_choice("pooling", pooling, ["average", "generalised_mean", "max"])
        self.pooling = pooling
        self.exponent = nn.Parameter(torch.tensor(3.0)) if pooling == "generalised_mean" else None

    def extra_repr(self) -> str:
        """Tell the settings."""
        return f"pooling={self.pooling!r}"

    def forward(self, feature: Tensor) -> Tensor:
        """Return ``[B, C]`` of a map ``[B, C, H, W]``."""
        if self.pooling == "max":
            return feature.amax((2, 3))
        if self.exponent is None:
            return feature.mean((2, 3))
        exponent = self.exponent.float()
        powers = feature.float().clamp(min=1e-6) ** exponent  # half precision would lose small powers
        return (powers.mean((2, 3)) ** (1 / exponent)).to(feature.dtype)
