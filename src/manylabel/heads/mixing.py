"""Representation mixup's mixture: a hint from earlier layers in the final map, in a learned share.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". The paper mixes
pooled vectors; here every place of the final map gets the same hint in the same share, of which the average is just
the paper's mixture. So a linear head on the average is the paper's, and heads that look at places can have it too.

Letters in shape comments: B pictures, C channels, H and W cells of a map, S earlier stages.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.checks import Features, check_choice, check_positive, stage_maps

__all__ = ["Mixing", "Summary"]

Summary = Literal["convolution", "tokens"]
"""How an earlier map becomes a vector: averaged and through a linear layer (Eq. 2), or flattened and pooled (Eq. 3)."""


class Mixing(nn.Module):
    """What heads on mixed representations have in common: the summaries, the shares and the mixture.

    Args:
        in_channels: Channels of each stage, in the order of `stages`.
        stages: The stages to mix, the finest first; the last one must be the final one, -1.
        summary: How an earlier map becomes a vector.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Examples:
        >>> mixing = Mixing((64, 512), stages=(0, -1), summary="convolution")
        >>> mixing.mix([torch.zeros(2, 64, 56, 56), torch.zeros(2, 512, 7, 7)]).shape
        torch.Size([2, 512, 7, 7])
    """

    def __init__(self, in_channels: Sequence[int], *, stages: Sequence[int], summary: Summary) -> None:
        super().__init__()
        check_choice("summary", summary, ["convolution", "tokens"])
        _check_stages(in_channels, stages)
        self.stages: tuple[int, ...] = tuple(stages)
        self.in_channels, self.summary = tuple(in_channels), summary

        *earlier, final = in_channels
        self.summarise = nn.ModuleList(nn.Linear(channels, final) for channels in earlier if summary == "convolution")
        self.scale = nn.Linear(final, len(earlier))  # W and b in Eq. 6

    def mix(self, features: Features) -> Tensor:
        """Return the final map with the hints mixed into every place, ``[B, C, H, W]`` (Eq. 5)."""
        *earlier, final = stage_maps(features, self.in_channels)
        hints = torch.stack([self._summary(position, stage) for position, stage in enumerate(earlier)], 1)  # [B, S, C]
        alpha = self.alpha(features)  # [B, S]
        hint = (alpha.unsqueeze(2) * hints).sum(1)  # [B, C]
        left = 1 - alpha.sum(1)  # [B]
        return hint[:, :, None, None] + left[:, None, None, None] * final

    def alpha(self, features: Features) -> Tensor:
        """Return the share of each earlier stage in the mixture, ``[B, S]``; the final one has what is left of 1.

        A softmax over the stages in which the final one's logit is 0, so one earlier stage gets Eq. 6's sigmoid.
        """
        logits = self.scale(stage_maps(features, self.in_channels)[-1].mean((2, 3)))
        return F.pad(logits, (0, 1)).softmax(1)[:, :-1]

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
