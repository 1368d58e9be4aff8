"""Representation mixup: a hint from earlier layers, mixed into the final representation in a learned share.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". No code of
theirs is public. Left open there and decided here: the summary of a convolutional map is one linear layer (only that
gives the published number of parameters), the final representation is the average of the final map. Beyond the paper:
several earlier stages at once; their shares and that of the final representation are a softmax.

Letters in shape comments: B pictures, C channels, S earlier stages, L labels.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.checks import check_choice, check_positive

__all__ = ["RepresentationMixupHead"]


class RepresentationMixupHead(nn.Module):
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
        summary: Literal["convolution", "tokens"] = "convolution",
    ) -> None:
        super().__init__()
        check_positive("num_labels", num_labels)
        check_choice("summary", summary, ["convolution", "tokens"])
        _check_stages(in_channels, stages)
        self.stages: tuple[int, ...] = tuple(stages)
        self.in_channels, self.num_labels, self.summary = tuple(in_channels), num_labels, summary

        *earlier, final = in_channels
        self.summarise = nn.ModuleList(nn.Linear(channels, final) for channels in earlier if summary == "convolution")
        self.scale = nn.Linear(final, len(earlier))  # W and b in Eq. 6
        self.linear = nn.Linear(final, num_labels)

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["in_channels", "num_labels", "stages", "summary"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return logits ``[B, L]`` from one map ``[B, C, H, W]`` per stage."""
        *earlier, final = features
        representation = final.mean((2, 3))  # z_L, [B, C]
        hints = torch.stack([self._summary(position, stage) for position, stage in enumerate(earlier)], 1)  # [B, S, C]
        shares = self._shares(representation)  # [B, S + 1]
        candidates = torch.cat([hints, representation.unsqueeze(1)], dim=1)  # [B, S + 1, C]
        mixed = (shares.unsqueeze(2) * candidates).sum(1)  # z'_L in Eq. 5
        logits: Tensor = self.linear(mixed)
        return logits

    def alpha(self, features: Sequence[Tensor]) -> Tensor:
        """Return the share of each earlier stage in the mixture, ``[B, S]``; the final one has what is left of 1."""
        return self._shares(features[-1].mean((2, 3)))[:, :-1]

    def _shares(self, representation: Tensor) -> Tensor:
        """Return a softmax over the stages; the final one's logit is 0, so one earlier stage gets Eq. 6's sigmoid."""
        return F.pad(self.scale(representation), (0, 1)).softmax(1)

    def _summary(self, position: int, stage: Tensor) -> Tensor:
        if self.summary == "tokens":
            flat = stage.permute(0, 2, 3, 1).flatten(1)  # z'_l in Eq. 3: place by place, all channels of each
            return F.adaptive_avg_pool1d(flat.unsqueeze(1), self.in_channels[-1]).squeeze(1)
        return torch.sigmoid(self.summarise[position](stage.mean((2, 3))))


def _check_stages(in_channels: Sequence[int], stages: Sequence[int]) -> None:
    if len(stages) < 2 or stages[-1] != -1:
        raise ConfigError(f"stages must be at least one earlier stage and then -1, the final one, got {list(stages)}")
    if isinstance(in_channels, int) or len(in_channels) != len(stages):
        raise ConfigError(f"in_channels must have a number for each of the stages {list(stages)}, got {in_channels!r}")
    for channels in in_channels:
        check_positive("in_channels", channels)
