"""Label tokens and visual tokens through one encoder: "ResNet101-TF" of CPSD.

Xu et al., "Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation", IJCAI 2022,
https://arxiv.org/abs/2205.10986. Choices that the paper leaves open: docs/methods/baselines.md.

Letters in shape comments: B images, C channels, H and W positions of a map, T = H * W visual tokens, L labels, D width.
"""

from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from manylabel.heads.attention import MultiHeadAttention, feed_forward, to_tokens
from manylabel.heads.head import Features, Head, ProbeDefaults, check_choice, check_fraction, check_positive, final_map
from manylabel.queries import TextQueries, make_queries


class TokenEncoder(Head):
    """Transformer encoder over label tokens and the positions of the feature map (ResNet101-TF of CPSD).

    Args:
        in_channels: Channels of the final feature map.
        num_labels: Labels.
        width: Channels of tokens.
        num_heads: Attention heads.
        head_width: Channels of each attention head (default: the width, as in the published code).
        feedforward: Hidden channels of the feed-forward blocks (default: the width).
        dropout: Fraction of values dropped in training.
        num_layers: Encoder layers.
        queries: Source of label tokens: ``"learnable"`` or ``"text"`` (from `text_vectors`).
        text_vectors: ``[L, E]``, a vector per label, for text tokens; saved with the model.
        text_dim: E; lets a saved model be built again before its state dict fills in `text_vectors`.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = TokenEncoder(32, 80, width=64)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.attention(features).shape
        (torch.Size([2, 80]), torch.Size([2, 80, 7, 7]))
    """

    probe_defaults: ClassVar[ProbeDefaults] = ProbeDefaults({"width": 256, "feedforward": 512, "num_layers": 1})

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        width: int = 1024,
        num_heads: int = 4,
        head_width: int | None = None,
        feedforward: int | None = None,
        dropout: float = 0.1,
        num_layers: int = 3,
        queries: Literal["learnable", "text"] = "learnable",
        text_vectors: Tensor | None = None,
        text_dim: int | None = None,
    ) -> None:
        super().__init__()
        hidden = width if feedforward is None else feedforward
        head_channels = width if head_width is None else head_width
        check_positive(in_channels=in_channels, num_labels=num_labels, width=width, num_heads=num_heads)
        check_positive(head_width=head_channels, feedforward=hidden, num_layers=num_layers)
        check_fraction("dropout", dropout)
        check_choice("queries", queries, ["learnable", "text"])
        self.in_channels, self.num_labels, self.width = in_channels, num_labels, width
        self.num_heads, self.head_width = num_heads, head_width
        self.feedforward, self.dropout, self.num_layers, self.queries = feedforward, dropout, num_layers, queries

        self.embed = nn.Linear(in_channels, width)
        self.query_bank = make_queries(
            queries, num_labels, width, num_labels=num_labels, text_vectors=text_vectors, text_dim=text_dim
        )
        self.text_dim = None if self.text_vectors is None else self.text_vectors.shape[1]
        self.layers = nn.ModuleList(_Layer(width, num_heads, head_channels, hidden, dropout) for _ in range(num_layers))
        self.classify = nn.Linear(width, 1)

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors ``[L, E]`` behind text tokens, or None."""
        return self.query_bank.vectors if isinstance(self.query_bank, TextQueries) else None

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        tokens = self._tokens(final_map(features, self.in_channels))  # [B, L + T, D]
        for layer in self.layers:
            tokens = layer(tokens)
        logits: Tensor = self.classify(tokens[:, : self.num_labels]).squeeze(2)
        return logits

    def attention(self, features: Features) -> Tensor:
        """Return the attention of the last layer's label tokens: ``[B, L, H, W]``, each map summing to 1.

        The mean over the attention heads, normalised over the visual tokens; attention to other labels is dropped.
        """
        feature = final_map(features, self.in_channels)
        tokens = self._tokens(feature)
        *earlier, last = cast("list[_Layer]", list(self.layers))
        for layer in earlier:
            tokens = layer(tokens)
        weights = last.weights(tokens)[:, : self.num_labels, self.num_labels :]  # [B, L, T]
        maps = weights / weights.sum(2, keepdim=True)
        return maps.reshape(*maps.shape[:2], *feature.shape[2:])

    def _tokens(self, feature: Tensor) -> Tensor:
        visual = self.embed(to_tokens(feature))  # [B, T, D]
        labels = self.query_bank().expand(visual.shape[0], -1, -1)  # [B, L, D]
        return torch.cat([labels, visual], dim=1)


class _Layer(nn.Module):
    def __init__(self, width: int, num_heads: int, head_width: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, num_heads, head_width=head_width)
        self.feed_forward = feed_forward(width, feedforward, dropout=dropout, activation=nn.GELU())
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        normed = self.norm_attention(tokens)
        tokens = tokens + self.dropout(self.attention(normed, normed, normed))
        output: Tensor = tokens + self.feed_forward(self.norm_feed_forward(tokens))
        return output

    def weights(self, tokens: Tensor) -> Tensor:
        normed = self.norm_attention(tokens)
        return self.attention.weights(normed, normed)
