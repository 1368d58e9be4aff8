"""Representation mixup under a head that looks at places: what no paper tried.

The paper has a linear head on the mixture. Here the mixture goes to ML-Decoder, to Hybrid Sharing Query or to another
head of ours, as a map: every place gets the same hint in the same share (see `manylabel.heads.mixing`).

Letters in shape comments: B pictures, C channels, H and W cells of a map, L labels.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.checks import Features, check_choice
from manylabel.heads.hybrid_sharing import HybridSharingHead
from manylabel.heads.mixing import Mixing, Summary
from manylabel.heads.ml_decoder import MLDecoder
from manylabel.heads.residual_attention import ResidualAttentionHead
from manylabel.heads.transformer_decoder import TransformerDecoderHead

__all__ = ["MixedFeaturesHead"]

TOPS: dict[str, type[nn.Module]] = {
    "hybrid_sharing": HybridSharingHead,
    "ml_decoder": MLDecoder,
    "residual_attention": ResidualAttentionHead,
    "transformer_decoder": TransformerDecoderHead,
}


class MixedFeaturesHead(Mixing):
    """A head of ours on a mixture of earlier stages and the final one.

    Args:
        in_channels: Channels of each stage, in the order of `stages`.
        num_labels: Labels.
        top: Name of the head that gets the mixture: ``"ml_decoder"``, ``"hybrid_sharing"``, ``"transformer_decoder"``
            or ``"residual_attention"``; for a linear one there is `RepresentationMixupHead`.
        top_settings: Further arguments of that head.
        stages: The stages to mix, the finest first; the last one must be the final one, -1.
        summary: How an earlier map becomes a vector, as in `RepresentationMixupHead`.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Examples:
        >>> import torch
        >>> head = MixedFeaturesHead((64, 512), 80, top="ml_decoder", top_settings={"width": 128})
        >>> head([torch.zeros(2, 64, 56, 56), torch.zeros(2, 512, 7, 7)]).shape
        torch.Size([2, 80])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        *,
        top: str = "ml_decoder",
        top_settings: Mapping[str, Any] | None = None,
        stages: Sequence[int] = (0, -1),
        summary: Summary = "convolution",
    ) -> None:
        check_choice("top", top, TOPS)
        super().__init__(in_channels, stages=stages, summary=summary)
        self.num_labels, self.top, self.top_settings = num_labels, top, dict(top_settings or {})
        try:
            self.reader = TOPS[top](in_channels[-1], num_labels, **self.top_settings)
        except TypeError as error:
            raise ConfigError(f"top_settings do not fit {top}: {error}") from error

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["in_channels", "num_labels", "top", "top_settings", "stages", "summary"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` from one map ``[B, C, H, W]`` per stage."""
        logits: Tensor = self.reader([self.mix(features)])
        return logits

    def attention(self, features: Features) -> Tensor:
        """Return where the head on top looks for each label, ``[B, L, H, W]``."""
        attention: Callable[[Features], Tensor] = self.reader.attention  # type: ignore[assignment] # all have it
        return attention([self.mix(features)])

    def fold(self) -> nn.Module:
        """Return a frozen copy for inference, with what is constant in the head on top computed once."""
        folded = copy.deepcopy(self).eval().requires_grad_(False)
        if callable(fold := getattr(folded.reader, "fold", None)):
            folded.reader = fold()
        return folded
