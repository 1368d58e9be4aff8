"""The plain head: pool the final map, then one linear layer.

Letters in shape comments: B pictures, C channels, L labels.
"""

from torch import Tensor, nn

from manylabel.heads.checks import Features, check_positive, final_map
from manylabel.heads.pooling import Pool, Pooling

__all__ = ["LinearHead"]


class LinearHead(nn.Module):
    """Pools the final map and gives it to a linear layer: on a frozen backbone, the linear probe.

    The papers compare against average pooling. Maximum pooling is often stronger with several objects in a picture,
    as a small one is not averaged away.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        pooling: ``"average"``, ``"max"`` or ``"generalised_mean"``, which lies between the two and learns where.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Examples:
        >>> import torch
        >>> LinearHead(512, 80, pooling="max")([torch.zeros(2, 512, 7, 7)]).shape
        torch.Size([2, 80])
    """

    def __init__(self, in_channels: int, num_labels: int, *, pooling: Pooling = "average") -> None:
        super().__init__()
        check_positive("in_channels", in_channels)
        check_positive("num_labels", num_labels)
        self.stages: tuple[int, ...] = (-1,)
        self.in_channels, self.num_labels, self.pooling = in_channels, num_labels, pooling
        self.pool = Pool(pooling)
        self.linear = nn.Linear(in_channels, num_labels)

    def extra_repr(self) -> str:
        """Tell the settings."""
        return f"in_channels={self.in_channels}, num_labels={self.num_labels}, pooling={self.pooling!r}"

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        logits: Tensor = self.linear(self.pool(final_map(features, self.in_channels)))
        return logits
