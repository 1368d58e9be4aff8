"""Linear classifier on the pooled final map.

Letters in shape comments: B images, C channels, H and W positions of a map, L labels.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from manylabel.heads.head import Features, Head, PooledInput, check_choice, check_positive, final_map

PoolKind = Literal["average", "max", "generalised_mean"]


class PooledHead(Head):
    """Base of heads that read the final map only through a pooling over its positions."""

    def __init__(self, in_channels: int, num_labels: int, pooling: PoolKind) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, num_labels=num_labels)
        self.in_channels, self.num_labels, self.pooling = in_channels, num_labels, pooling
        self.pool = Pool(pooling)

    def pooled(self, features: Features) -> Tensor:
        """Return the pooled final map, ``[B, C]``."""
        pooled: Tensor = self.pool(final_map(features, self.in_channels))
        return pooled

    @property
    def pooled_input(self) -> PooledInput:
        """The pooling, which leaves the logits unchanged if done before, unless it has a parameter to learn."""
        return "none" if self.pooling == "generalised_mean" else self.pooling


class LinearClassifier(PooledHead):
    """Linear layer on the pooled final map: the usual baseline, and on a frozen backbone the linear probe.

    The papers compare against average pooling. Maximum pooling is often stronger with several objects in an image,
    as a small one is not averaged away.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        pooling: ``"average"``, ``"max"`` or ``"generalised_mean"``, which learns a value between the two.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> LinearClassifier(512, 80, pooling="max")([torch.zeros(2, 512, 7, 7)]).shape
        torch.Size([2, 80])
    """

    def __init__(self, in_channels: int, num_labels: int, *, pooling: PoolKind = "average") -> None:
        super().__init__(in_channels, num_labels, pooling)
        self.linear = nn.Linear(in_channels, num_labels)

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        logits: Tensor = self.linear(self.pooled(features))
        return logits

    def label_weights(self) -> Tensor:
        """Return the weight of each channel for each label, ``[L, C]``."""
        return self.linear.weight.detach()


class Pool(nn.Module):
    """Pooling over the positions of a map.

    The generalised mean ``(mean x^p)^(1/p)`` lies between the average (p = 1) and the maximum (large p), and learns p.
    Negative values count as zero (Radenovic et al., https://arxiv.org/abs/1711.02512).

    Args:
        pooling: ``"average"``, ``"max"`` or ``"generalised_mean"``.

    Raises:
        ConfigError: There is no such pooling.

    Examples:
        >>> Pool("max")(torch.arange(8.0).reshape(1, 2, 2, 2))
        tensor([[3., 7.]])
    """

    def __init__(self, pooling: PoolKind = "average") -> None:
        super().__init__()
        check_choice("pooling", pooling, ["average", "generalised_mean", "max"])
        self.pooling = pooling
        self.exponent = nn.Parameter(torch.tensor(3.0)) if pooling == "generalised_mean" else None

    def extra_repr(self) -> str:
        """Return the kind of pooling."""
        return self.pooling

    def forward(self, feature: Tensor) -> Tensor:
        """Return ``[B, C]`` of a map ``[B, C, H, W]``."""
        if self.pooling == "max":
            return feature.amax((2, 3))
        if self.exponent is None:
            return feature.mean((2, 3))
        exponent = self.exponent.float()
        powers = feature.float().clamp(min=1e-6) ** exponent  # half precision would lose small powers
        return (powers.mean((2, 3)) ** (1 / exponent)).to(feature.dtype)
