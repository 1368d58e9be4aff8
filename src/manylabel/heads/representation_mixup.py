"""Representation mixup: a hint from earlier layers, mixed into the final representation in a learned share.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". No code of
theirs is public. Left open there and decided here: the summary of a convolutional map is one linear layer (only that
gives the published number of parameters), the final representation is the average of the final map. Beyond the paper:
several earlier stages at once; their shares and that of the final representation are a softmax.

Letters in shape comments: B pictures, C channels, H and W cells of a map, L labels.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from manylabel.heads.checks import Features, check_positive
from manylabel.heads.mixing import Mixing, Summary

__all__ = ["RepresentationMixupHead"]


class RepresentationMixupHead(Mixing):
    """A linear head on a mixture of earlier stages and the final one; made for a frozen backbone.

    Args:
        in_channels: Channels of each stage, in the order of `stages`.
        num_labels: Labels.
        stages: The stages to mix, the finest first; the last one must be the final one, -1. Stage 0 is the paper's
            RM@1, 1 its RM@2, 2 its RM@3.
        summary: How an earlier map becomes a vector: ``"convolution"`` averages it and learns a linear layer with a
            sigmoid (Eq. 2); ``"tokens"``, for maps of patch tokens as in Swin, flattens it place by place and
            averages that to the width of the final representation, without parameters (Eq. 3).

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Examples:
        >>> import torch
        >>> head = RepresentationMixupHead((64, 512), 80)
        >>> features = [torch.zeros(2, 64, 56, 56), torch.zeros(2, 512, 7, 7)]
        >>> head(features).shape, head.alpha(features).shape
        (torch.Size([2, 80]), torch.Size([2, 1]))
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        *,
        stages: Sequence[int] = (0, -1),
        summary: Summary = "convolution",
    ) -> None:
        check_positive("num_labels", num_labels)
        super().__init__(in_channels, stages=stages, summary=summary)
        self.num_labels = num_labels
        self.linear = nn.Linear(in_channels[-1], num_labels)

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["in_channels", "num_labels", "stages", "summary"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` from one map ``[B, C, H, W]`` per stage."""
        logits: Tensor = self.linear(self.mix(features).mean((2, 3)))  # of z'_L in Eq. 5
        return logits
