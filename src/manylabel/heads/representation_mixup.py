"""Representation mixup (RM): a hint from earlier layers, mixed into the final representation with a learned weight.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". Their code
is not public. Choices that the paper leaves open: the summary of a convolutional map is one linear layer (only that
gives the published number of parameters), the final representation is the average of the final map.

The paper mixes pooled vectors; here every position of the final map gets the hint with the same weight, and the average
of the result is exactly the paper's mixture. So a linear layer on the average is the paper's head.

Beyond the paper: heads with attention can read the mixture, too; several earlier stages at once, whose weights and that
of the final representation are a softmax; and ``form="stable"``, which cannot replace the final representation by the
hint, as the paper's form does with some seeds. It differs in three ways: a hint has the scale of the final
representation, its weight starts near 0 and stays below a bound, and earlier maps are reduced to their maxima, which
keeps small objects, where the average hides them. A head on top that reads positions gets the maximum around each of
them; one that averages gets that of the whole map.

Letters in shape comments: B images, C channels, H and W positions of a map, L labels, S earlier stages.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.head import (
    Features,
    Head,
    PooledInput,
    ProbeDefaults,
    attention_of,
    check_choice,
    check_positive,
    label_weights,
    maps_per_stage,
    pooled_input,
)
from manylabel.heads.linear import LinearClassifier

Form = Literal["paper", "stable"]
Summary = Literal["convolution", "tokens"]
"""Ways from an earlier map to a vector: average and linear layer (Eq. 2), or flattened and pooled (Eq. 3)."""

LARGEST_ALPHA, FIRST_LOGIT = 0.5, -4.0  # of the stable form: alpha starts at 0.5 * sigmoid(-4) = 0.009


class RepresentationMixup(Head):
    """Representation mixup (RM) head: mixes earlier stages of a frozen backbone into the final one.

    Args:
        in_channels: Channels of each stage, in the order of `stages`.
        num_labels: Labels.
        stages: The stages to mix, the finest first; the last one must be the final one, -1. Stage 0 is the paper's
            RM@1, 1 its RM@2, 2 its RM@3.
        summary: Reduction of an earlier map to a vector: ``"convolution"`` averages it and learns a linear layer with a
            sigmoid (Eq. 2); ``"tokens"``, for maps of patch tokens as in Swin, flattens it position by position and
            averages that to the width of the final representation, without parameters (Eq. 3). For the paper's form.
        form: ``"paper"``, or ``"stable"``: normalised hints from maxima, with a bounded weight; the default of recipes
            that train on frozen features, with the stage before the final one.
        top: The head that gets the mixture as a map ``[B, C, H, W]`` of the final stage's channels. Default: the
            paper's, a linear layer on the average.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = RepresentationMixup((64, 512), 80)
        >>> features = [torch.zeros(2, 64, 56, 56), torch.zeros(2, 512, 7, 7)]
        >>> head(features).shape, head.alpha(features).shape
        (torch.Size([2, 80]), torch.Size([2, 1]))
        >>> from manylabel.heads import MLDecoder
        >>> RepresentationMixup((64, 512), 80, top=MLDecoder(512, 80, width=128))(features).shape
        torch.Size([2, 80])
    """

    probe_defaults: ClassVar[ProbeDefaults] = ProbeDefaults({"form": "stable", "stages": (-2, -1)})

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        *,
        stages: Sequence[int] = (0, -1),
        summary: Summary = "convolution",
        form: Form = "paper",
        top: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_positive(num_labels=num_labels)
        check_choice("summary", summary, ["convolution", "tokens"])
        check_choice("form", form, ["paper", "stable"])
        if form == "stable" and summary != "convolution":
            raise ConfigError(f"the stable form has its own summary, got summary={summary!r}; remove it")
        _check_stages(in_channels, stages)
        self.stages = tuple(stages)
        self.in_channels, self.num_labels, self.summary, self.form = tuple(in_channels), num_labels, summary, form

        *earlier, final = in_channels
        self.summarise = nn.ModuleList(nn.Linear(channels, final) for channels in earlier if summary == "convolution")
        self.scale = nn.Linear(final, len(earlier))  # W and b in Eq. 6
        if form == "stable":
            nn.init.zeros_(self.scale.weight)
            nn.init.constant_(self.scale.bias, FIRST_LOGIT)
        self.top = LinearClassifier(final, num_labels) if top is None else top
        for name, fitting in (("in_channels", final), ("num_labels", num_labels)):
            if (got := getattr(self.top, name, fitting)) != fitting:
                raise ConfigError(f"the head on top must have {name}={fitting}, got {got}")

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` from one map ``[B, C, H, W]`` per stage."""
        logits: Tensor = self.top(self.mix(features))
        return logits

    def mix(self, features: Features) -> Tensor:
        """Return the final map with the hints mixed into every position, ``[B, C, H, W]`` (z' in Eq. 5)."""
        *earlier, final = maps_per_stage(features, self.in_channels)
        alpha = self.alpha(features)[..., None, None, None]  # [B, S, 1, 1, 1]
        mixed = (1 - alpha.sum(1)) * final
        for position, stage in enumerate(earlier):
            mixed = mixed + alpha[:, position] * self._hint(position, stage, final)
        return mixed

    def alpha(self, features: Features) -> Tensor:
        """Return the weight of each earlier stage in the mixture, ``[B, S]``; the final one has the rest, up to 1.

        A softmax over the stages in which the final one's logit is 0, so one earlier stage gets Eq. 6's sigmoid; in the
        stable form of the normalised representation, and times a bound.
        """
        final = maps_per_stage(features, self.in_channels)[-1].mean((2, 3))
        if self.form == "paper":
            return F.pad(self.scale(final), (0, 1)).softmax(1)[:, :-1]
        logits = self.scale(F.layer_norm(final, final.shape[1:]))
        return LARGEST_ALPHA * F.pad(logits, (0, 1)).softmax(1)[:, :-1]

    @property
    def attention(self) -> Callable[[Features], Tensor]:
        """Attention of the head on top, ``[B, L, H, W]``, if it has any."""
        look = attention_of(self.top)
        if look is None:
            raise AttributeError(f"{type(self.top).__name__} has no attention")
        return lambda features: look(self.mix(features))

    def label_weights(self) -> Tensor | None:
        """Return the weights of the head on top, ``[L, C]``, where it is linear in its map."""
        return label_weights(self.top)

    @property
    def pooled_input(self) -> PooledInput:
        """Pooling that leaves the logits unchanged: of earlier stages always, of the final one if `top` averages it."""
        if self.summary == "tokens":
            return "none"
        if self.form == "stable":
            return "max_average" if self._averages else "max_cells"
        return "average" if self._averages else "earlier"

    @property
    def _averages(self) -> bool:
        return pooled_input(self.top) == "average"

    def _hint(self, position: int, stage: Tensor, final: Tensor) -> Tensor:
        """Return the hint of an earlier map: ``[B, C, 1, 1]``, or ``[B, C, H, W]`` where it differs by position."""
        if self.form == "stable":
            maxima = F.adaptive_max_pool2d(stage, 1 if self._averages else final.shape[2:]).movedim(1, 3)
            hint = self.summarise[position](F.layer_norm(maxima, maxima.shape[3:]))  # [B, H, W, C]
            scale = final.mean((2, 3)).square().mean(1).sqrt()[:, None, None, None]  # that of the final representation
            return (scale * F.layer_norm(hint, hint.shape[3:])).movedim(3, 1)
        if self.summary == "tokens":
            flat = stage.permute(0, 2, 3, 1).flatten(1)  # z'_l in Eq. 3: position by position, all channels of each
            return F.adaptive_avg_pool1d(flat.unsqueeze(1), self.in_channels[-1]).squeeze(1)[..., None, None]
        return torch.sigmoid(self.summarise[position](stage.mean((2, 3))))[..., None, None]


def _check_stages(in_channels: Sequence[int], stages: Sequence[int]) -> None:
    if len(stages) < 2 or stages[-1] != -1:
        raise ConfigError(f"stages must be one or more earlier stages, then -1, the final one, got {list(stages)}")
    if isinstance(in_channels, int) or len(in_channels) != len(stages):
        raise ConfigError(f"in_channels must have one value for each of the stages {list(stages)}, got {in_channels!r}")
    for channels in in_channels:
        check_positive(in_channels=channels)
