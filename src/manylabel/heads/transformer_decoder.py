"""The transformer decoder as a head, in the form of Query2Label: a query per label, and a linear output of its own.

Liu et al., "Query2Label: A Simple Transformer Way to Multi-Label Classification", https://arxiv.org/abs/2107.10834.

Letters in shape comments: B pictures, C channels, H and W places of a map, L labels, D width.
"""

import math

import torch
from torch import Tensor, nn

from manylabel.heads.checks import Features, check_positive, final_map
from manylabel.heads.query_transformer import QueryTransformer

__all__ = ["TransformerDecoderHead"]


class TransformerDecoderHead(nn.Module):
    """The Query2Label head.

    Args:
        in_channels: Channels of the final feature map.
        num_labels: Labels.
        width: Channels of queries and tokens; as many as the map has when left out, else a linear layer comes first.
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden channels of the feed-forward blocks; four times the width when left out.
        dropout: Share of values dropped in training.
        num_encoder_layers: Encoder layers over the map's places.
        num_decoder_layers: Decoder layers.
        self_attention: Whether labels attend to each other, from the second decoder layer on; the first would see
            nothing but zeros. The cost grows with the square of the number of labels.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Examples:
        >>> head = TransformerDecoderHead(32, 80)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.attention(features).shape
        (torch.Size([2, 80]), torch.Size([2, 80, 7, 7]))
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        width: int | None = None,
        num_heads: int = 4,
        feedforward: int | None = None,
        dropout: float = 0.1,
        num_encoder_layers: int = 1,
        num_decoder_layers: int = 2,
        self_attention: bool = False,
    ) -> None:
        super().__init__()
        check_positive("in_channels", in_channels)
        self.stages: tuple[int, ...] = (-1,)
        self.in_channels, self.num_labels, self.width = in_channels, num_labels, width
        self.num_heads, self.feedforward, self.dropout = num_heads, feedforward, dropout
        self.num_encoder_layers, self.num_decoder_layers = num_encoder_layers, num_decoder_layers
        self.self_attention = self_attention

        channels = in_channels if width is None else width
        self.embed = nn.Identity() if channels == in_channels else nn.Conv2d(in_channels, channels, 1)
        self.transformer = QueryTransformer(
            num_labels,
            channels,
            num_heads=num_heads,
            feedforward=4 * channels if feedforward is None else feedforward,
            dropout=dropout,
            num_encoder_layers=num_encoder_layers,
            num_decoder_layers=num_decoder_layers,
            self_attention=self_attention,
        )
        bound = 1 / math.sqrt(channels)
        self.weight = nn.Parameter(torch.empty(num_labels, channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_labels).uniform_(-bound, bound))

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["in_channels", "num_labels", "width", "num_heads", "feedforward", "dropout"]
        names += ["num_encoder_layers", "num_decoder_layers", "self_attention"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        labels: Tensor = self.transformer(self.embed(final_map(features, self.in_channels)))  # [B, L, D]
        return torch.einsum("bld,ld->bl", labels, self.weight) + self.bias

    def attention(self, features: Features) -> Tensor:
        """Return where the last layer looks for each label: ``[B, L, H, W]``, each map summing to 1."""
        return self.transformer.attention(self.embed(final_map(features, self.in_channels)))
