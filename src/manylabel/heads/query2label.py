"""Query2Label: an encoder over the tokens of a map, a decoder with a query per label, a linear output per label.

Liu et al., "Query2Label: A Simple Transformer Way to Multi-Label Classification", https://arxiv.org/abs/2107.10834.
Post-norm layers with ReLU. Positions are added wherever queries and keys are formed, never to values.

Letters in shape comments: B images, C channels, H and W positions of a map, T = H * W tokens, L labels, D width.
"""

import math
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.attention import MultiHeadAttention, feed_forward, to_tokens
from manylabel.heads.head import Features, Head, ProbeDefaults, check_fraction, check_positive, final_map
from manylabel.queries import LearnableQueries


class Query2Label(Head):
    """Query2Label head: a transformer encoder and decoder with one learned query per label.

    Args:
        in_channels: Channels of the final feature map.
        num_labels: Labels.
        width: Channels of queries and tokens, to which a convolution projects the map (default: the map's own).
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden channels of the feed-forward blocks; default: four times the width.
        dropout: Fraction of values dropped in training.
        num_encoder_layers: Encoder layers over the map's positions.
        num_decoder_layers: Decoder layers.
        self_attention: Self-attention between labels, from the second decoder layer on; the input of the first is all
            zeros. Its cost grows with the square of the number of labels.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = Query2Label(32, 80)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.attention(features).shape
        (torch.Size([2, 80]), torch.Size([2, 80, 7, 7]))
    """

    probe_defaults: ClassVar[ProbeDefaults] = ProbeDefaults({"width": 256, "feedforward": 512})

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
        check_positive(in_channels=in_channels)
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

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        labels: Tensor = self.transformer(self.embed(final_map(features, self.in_channels)))  # [B, L, D]
        return torch.einsum("bld,ld->bl", labels, self.weight) + self.bias

    def attention(self, features: Features) -> Tensor:
        """Return the last layer's attention of each label: ``[B, L, H, W]``, each map summing to 1."""
        return self.transformer.attention(self.embed(final_map(features, self.in_channels)))


class QueryTransformer(nn.Module):
    """Encoder and decoder that turn a feature map into one vector per label.

    Args:
        num_labels: Labels, each with a learned query.
        width: Channels of the map, the tokens and the queries; a multiple of 4.
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden channels of the feed-forward blocks.
        dropout: Fraction of values dropped in training.
        num_encoder_layers: Encoder layers; may be 0.
        num_decoder_layers: Decoder layers.
        self_attention: Self-attention between labels, from the second decoder layer on; the input of the first is all
            zeros. Its cost grows with the square of the number of labels.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> transformer = QueryTransformer(5, 16, num_heads=2, feedforward=32)
        >>> transformer(torch.zeros(2, 16, 3, 4)).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        num_labels: int,
        width: int,
        *,
        num_heads: int = 4,
        feedforward: int = 2048,
        dropout: float = 0.1,
        num_encoder_layers: int = 1,
        num_decoder_layers: int = 2,
        self_attention: bool = False,
    ) -> None:
        super().__init__()
        check_positive(num_labels=num_labels, feedforward=feedforward, num_decoder_layers=num_decoder_layers)
        if num_encoder_layers < 0:
            raise ConfigError(f"num_encoder_layers must be 0 or more, got {num_encoder_layers}")
        if self_attention and num_decoder_layers == 1:
            raise ConfigError("self_attention starts at the second decoder layer, got num_decoder_layers=1; use 2")
        check_fraction("dropout", dropout)
        sine_positions(1, 1, width)  # checks the width
        self.width = width
        self.query_bank = LearnableQueries(num_labels, width)
        self.encoder = nn.ModuleList(
            _EncoderLayer(width, num_heads, feedforward, dropout) for _ in range(num_encoder_layers)
        )
        self.decoder = nn.ModuleList(
            _DecoderLayer(width, num_heads, feedforward, dropout, self_attention and position > 0)
            for position in range(num_decoder_layers)
        )
        self.norm = nn.LayerNorm(width)
        _initialise_as_published(self)

    def forward(self, feature: Tensor) -> Tensor:
        """Return one vector per label: ``[B, D, H, W]`` -> ``[B, L, D]``."""
        tokens, positions = self._encode(feature)
        target, queries = self._start(tokens)
        for layer in self.decoder:
            target = layer(target, queries, tokens, positions)
        labels: Tensor = self.norm(target)
        return labels

    def attention(self, feature: Tensor) -> Tensor:
        """Return the last decoder layer's attention of each label, ``[B, L, H, W]``: the mean over its heads."""
        tokens, positions = self._encode(feature)
        target, queries = self._start(tokens)
        *earlier, last = cast("list[_DecoderLayer]", list(self.decoder))
        for layer in earlier:
            target = layer(target, queries, tokens, positions)
        maps = last.weights(target, queries, tokens, positions)  # [B, L, T]
        return maps.reshape(*maps.shape[:2], *feature.shape[2:])

    def _encode(self, feature: Tensor) -> tuple[Tensor, Tensor]:
        tokens = to_tokens(feature)  # [B, T, D]
        positions = sine_positions(feature.shape[2], feature.shape[3], self.width).to(tokens)
        for layer in self.encoder:
            tokens = layer(tokens, positions)
        return tokens, positions

    def _start(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the decoder's target, zeros, and the queries, which act as its positions."""
        queries: Tensor = self.query_bank()
        return tokens.new_zeros(tokens.shape[0], *queries.shape), queries


class _EncoderLayer(nn.Module):
    def __init__(self, width: int, num_heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(width, num_heads, dropout=dropout)
        self.feed_forward = feed_forward(width, feedforward, dropout=dropout, activation=nn.ReLU(inplace=True))
        self.norm_attention, self.norm_output = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        positioned = tokens + positions
        tokens = self.norm_attention(tokens + self.dropout(self.self_attention(positioned, positioned, tokens)))
        output: Tensor = self.norm_output(tokens + self.feed_forward(tokens))
        return output


class _DecoderLayer(nn.Module):
    def __init__(self, width: int, num_heads: int, feedforward: int, dropout: float, self_attention: bool) -> None:
        super().__init__()
        # Without self-attention there is no norm for it either, as in the published code.
        self.self_attention = MultiHeadAttention(width, num_heads, dropout=dropout) if self_attention else None
        self.norm_self = nn.LayerNorm(width) if self_attention else None
        self.cross_attention = MultiHeadAttention(width, num_heads, dropout=dropout)
        self.feed_forward = feed_forward(width, feedforward, dropout=dropout, activation=nn.ReLU(inplace=True))
        self.norm_attention, self.norm_output = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, target: Tensor, queries: Tensor, tokens: Tensor, positions: Tensor) -> Tensor:
        target = self._attend_to_labels(target, queries)
        found = self.cross_attention(target + queries, tokens + positions, tokens)  # [B, L, D]
        target = self.norm_attention(target + self.dropout(found))
        output: Tensor = self.norm_output(target + self.feed_forward(target))
        return output

    def weights(self, target: Tensor, queries: Tensor, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the weights of the cross attention, ``[B, L, T]``."""
        target = self._attend_to_labels(target, queries)
        return self.cross_attention.weights(target + queries, tokens + positions)

    def _attend_to_labels(self, target: Tensor, queries: Tensor) -> Tensor:
        if self.self_attention is None or self.norm_self is None:
            return target
        positioned = target + queries
        mixed: Tensor = self.norm_self(target + self.dropout(self.self_attention(positioned, positioned, target)))
        return mixed


def _sine_encoding(length: int, frequencies: Tensor) -> Tensor:
    """Return ``[length, 2 * len(frequencies)]``, alternating sine and cosine, of positions scaled to one period."""
    positions = torch.arange(1, length + 1) / length * 2 * math.pi
    angles = positions.unsqueeze(1) * frequencies  # [length, channels / 4]
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def _initialise_as_published(transformer: QueryTransformer) -> None:
    """Initialise all linear layers with Xavier-uniform weights; attention inputs already are."""
    for name, module in transformer.named_modules():
        if isinstance(module, nn.Linear) and not name.endswith((".query", ".key", ".value")):
            nn.init.xavier_uniform_(module.weight)


def sine_positions(height: int, width: int, channels: int) -> Tensor:
    """Return the 2-D sine encoding of every position of a map: half of the channels encode the row, half the column.

    Args:
        height: Rows.
        width: Columns.
        channels: Channels; a multiple of 4.

    Returns:
        ``[height * width, channels]``, row by row.

    Raises:
        ConfigError: `channels` is not a multiple of 4.

    Examples:
        >>> sine_positions(2, 3, 8).shape
        torch.Size([6, 8])
    """
    if channels % 4:
        raise ConfigError(f"2-D sine positions need a width that is a multiple of 4, got {channels}; round it up")
    frequencies = 10000 ** (-torch.arange(0, channels // 2, 2) / (channels // 2))  # [channels / 4]
    rows = _sine_encoding(height, frequencies).unsqueeze(1).expand(-1, width, -1)
    columns = _sine_encoding(width, frequencies).unsqueeze(0).expand(height, -1, -1)
    return torch.cat([rows, columns], dim=2).flatten(0, 1)
