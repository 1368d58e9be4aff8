"""ML-Decoder: a decoder without self-attention, whose queries stand for labels or for groups of labels.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", WACV 2023, https://arxiv.org/abs/2111.12933.
Follows the authors' code; docs/methods/ml-decoder.md has the choices that the paper leaves open.

Letters in shape comments: B images, C channels, T tokens, H and W positions of a map, L labels, K queries (groups of
labels, or labels), g slots of a group, D width.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import ClassVar, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.attention import MultiHeadAttention, feed_forward, to_tokens
from manylabel.heads.checks import Features, check_fraction, check_positive, final_map
from manylabel.heads.group_projection import GroupProjection, Projection, SharedProjection, TextGroupProjection
from manylabel.heads.traits import Head, ProbeDefaults
from manylabel.queries import QueryKind, TextQueries, check_text_vectors, make_queries

__all__ = ["FoldedMLDecoder", "MLDecoder"]


class MLDecoder(Head):
    """ML-Decoder head: queries for labels, or groups of labels, attend to the positions of the feature map.

    Args:
        in_channels: Channels of the final feature map.
        num_labels: Labels, N in the paper.
        num_groups: Queries, K in the paper: labels are divided among them at random (default: one per label).
        width: Channels of queries and tokens.
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden channels of the feed-forward block.
        dropout: Fraction of values dropped in training.
        num_layers: Decoder layers.
        queries: ``"random"`` (drawn once, never trained), ``"learnable"`` or ``"text"`` (from `text_vectors`).
        text_vectors: ``[L, E]``, a vector per label, for text queries; saved with the model.
        text_dim: E; lets a saved model be built again before its state dict fills in `text_vectors`.
        self_attention: Self-attention between queries, as in a plain decoder (for ablation).
        shared_projection: Share the output weights among all labels, which lets labels change after training; with text
            queries and groups, a label's weight is generated from its text vector.
        seed: Seeds random queries and the division of labels into groups.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = MLDecoder(32, 80, num_groups=20, width=64)
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
        num_groups: int | None = None,
        width: int = 768,
        num_heads: int = 8,
        feedforward: int = 2048,
        dropout: float = 0.1,
        num_layers: int = 1,
        queries: QueryKind = "random",
        text_vectors: Tensor | None = None,
        text_dim: int | None = None,
        self_attention: bool = False,
        shared_projection: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "num_labels": num_labels, "feedforward": feedforward}
        for name, value in {**sizes, "num_layers": num_layers}.items():
            check_positive(name, value)
        check_fraction("dropout", dropout)
        self.in_channels, self.num_labels, self.num_groups = in_channels, num_labels, num_groups
        self.width, self.num_heads, self.feedforward = width, num_heads, feedforward
        self.dropout, self.num_layers, self.queries = dropout, num_layers, queries
        self.self_attention, self.shared_projection, self.seed = self_attention, shared_projection, seed

        self.projection = self._make_projection(text_vectors, text_dim)
        self.embed = nn.Linear(in_channels, width)
        self.layers = nn.ModuleList(
            _Layer(width, num_heads, feedforward, dropout=dropout, self_attention=self_attention)
            for _ in range(num_layers)
        )
        self.query_bank = make_queries(
            queries,
            num_labels if num_groups is None else num_groups,
            width,
            num_labels=num_labels,
            text_vectors=text_vectors,
            text_dim=text_dim,
            seed=seed,
        )
        self.text_dim = self.text_vectors.shape[1] if self.text_vectors is not None else None

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors ``[L, E]`` behind text queries, or None."""
        return self.query_bank.vectors if isinstance(self.query_bank, TextQueries) else None

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        logits, _ = self.decode(features)
        return logits

    def decode(
        self, features: Features, vectors: Tensor | None = None, extra: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return logits and the decoded queries; other text vectors are for training with augmented queries.

        In training mode, groups of text queries with shared output weights are drawn anew each time.

        Args:
            features: As for `forward`.
            vectors: ``[L, E]``, other text vectors of the labels.
            extra: ``[R, E]``, further text queries without a label.

        Returns:
            The logits ``[B, L]`` and all decoded queries ``[B, K + R, D]``, the extra ones last.

        Raises:
            ConfigError: Vectors are given, but the head has no text queries with shared output weights.
        """
        vectors = self.text_vectors if vectors is None else self._check_open(vectors)
        slots = self.projection.draw_slots() if self.training else self.projection.slots  # [L]
        tokens = self.tokens(features)  # [B, T, D]
        queries = self._queries(vectors, slots, extra)  # [K + R, D]
        hidden = self.attend(*self.prepare(queries, tokens.shape[0]), tokens)  # [B, K + R, D]
        return self.projection(hidden[:, : self.projection.num_groups], vectors, slots), hidden

    def attention(self, features: Features) -> Tensor:
        """Return the last layer's attention of each label: ``[B, L, H, W]``, each map summing to 1.

        The mean over the attention heads; the labels of a group share the map of their query.
        """
        feature = final_map(features, self.in_channels)
        tokens = self.tokens(feature)
        queries = self._queries(self.text_vectors, self.projection.slots)
        _, query = self._last_queries(*self.prepare(queries, tokens.shape[0]), tokens)
        maps = self._stack[-1].cross_attention.weights(query, tokens)[:, self.projection.groups]  # [B, L, T]
        return maps.reshape(*maps.shape[:2], *feature.shape[2:])

    def tokens(self, features: Features) -> Tensor:
        """Return the positions of the final map as tokens, ``[B, T, D]``."""
        return F.relu(self.embed(to_tokens(final_map(features, self.in_channels))))

    def prepare(self, queries: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Return the first layer's residual input and projected queries, from queries ``[K, D]``, without the tokens.

        ``[1, K, D]`` each, or ``[B, K, D]`` in training, where dropout differs by image.
        """
        drops = self.training and self.dropout > 0
        return self._stack[0].prepare(queries.expand(batch, -1, -1) if drops else queries.unsqueeze(0))

    def attend(self, start: Tensor, query: Tensor, tokens: Tensor) -> Tensor:
        """Decode prepared queries with the tokens, through all layers: ``[B, K, D]``."""
        hidden: Tensor = self._stack[-1](*self._last_queries(start, query, tokens), tokens)
        return hidden

    @property
    def takes_new_labels(self) -> bool:
        """True if it can score labels unseen in training: text queries, shared output weights."""
        return isinstance(self.query_bank, TextQueries) and self.shared_projection

    def with_text(self, text_vectors: Tensor, *, num_groups: int | None = None) -> MLDecoder:
        """Return a head with the same weights for other labels.

        Args:
            text_vectors: ``[L', E]``, the labels' text vectors.
            num_groups: Groups, where the head decodes in groups (default: as many labels in each as in training).

        Raises:
            ConfigError: The head has no text queries with shared output weights, or the vectors do not fit.

        Examples:
            >>> text = {"queries": "text", "shared_projection": True, "text_vectors": torch.randn(5, 8)}
            >>> head = MLDecoder(32, 5, width=64, **text)
            >>> head.with_text(torch.randn(1000, 8))([torch.zeros(2, 32, 7, 7)]).shape
            torch.Size([2, 1000])
        """
        vectors = check_text_vectors(len(text_vectors), self._check_open(text_vectors), self.text_dim)
        other = copy.deepcopy(self)
        other.num_labels = len(vectors)
        other.query_bank.vectors = vectors.to(self.embed.weight)
        if self.num_groups is not None:
            other.num_groups = num_groups or math.ceil(len(vectors) / self.projection.group_size)
        other.projection.divide(vectors, other.num_groups or len(vectors))
        return other

    def fold(self) -> FoldedMLDecoder:
        """Return a frozen copy for inference in which the queries up to the first attention are precomputed.

        Examples:
            >>> head, feature = MLDecoder(32, 80, width=64).eval(), torch.randn(2, 32, 7, 7)
            >>> torch.allclose(head.fold()(feature), head(feature), atol=1e-5)
            True
        """
        return FoldedMLDecoder(self)

    def _make_projection(self, text_vectors: Tensor | None, text_dim: int | None) -> Projection:
        num_labels, num_groups = self.num_labels, self.num_groups
        if not self.shared_projection:
            return GroupProjection(num_labels, num_groups or num_labels, self.width, seed=self.seed)
        if num_groups is not None and self.queries == "text":
            vectors = check_text_vectors(num_labels, text_vectors, text_dim)
            return TextGroupProjection(num_labels, num_groups, self.width, text_vectors=vectors, seed=self.seed)
        if num_groups not in (None, num_labels):
            raise ConfigError(
                f"shared_projection needs a query per label, got num_groups={num_groups} for {num_labels} labels; "
                "leave num_groups out, or set queries='text'"
            )
        return SharedProjection(num_labels, self.width)

    def _check_open(self, vectors: Tensor) -> Tensor:
        if self.takes_new_labels:
            return vectors
        raise ConfigError(
            f"only text queries with shared output weights can score other labels, got queries={self.queries!r}, "
            f"shared_projection={self.shared_projection}; set queries='text' and shared_projection=True, or use the "
            "recipe zero_shot"
        )

    def _queries(self, vectors: Tensor | None, slots: Tensor, extra: Tensor | None = None) -> Tensor:
        """Return the queries ``[K + R, D]``; text queries are computed from the mean vector of a group's labels."""
        if vectors is None or not isinstance(self.query_bank, TextQueries):
            queries: Tensor = self.query_bank()
            return queries
        asked = self.projection.group_vectors(vectors, slots)
        return self.query_bank.make(asked if extra is None else torch.cat([asked, extra]))

    def _last_queries(self, start: Tensor, query: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's residual input and projected queries, after all layers before it."""
        for layer, following in pairwise(self._stack):
            start, query = following.prepare(layer(start, query, tokens))
        return start, query

    @property
    def _stack(self) -> list[_Layer]:
        return cast("list[_Layer]", list(self.layers))


class FoldedMLDecoder(nn.Module):
    """A snapshot of an ML-Decoder for inference, made by `MLDecoder.fold`.

    Its weights are frozen copies, independent of the original. It has no training mode.

    Args:
        head: The head to copy.
    """

    start: Tensor
    query: Tensor

    def __init__(self, head: MLDecoder) -> None:
        super().__init__()
        self.stages, self.num_labels = head.stages, head.num_labels
        with torch.inference_mode(False), torch.no_grad():
            self.head = copy.deepcopy(head).eval().requires_grad_(False)
            queries = self.head._queries(self.head.text_vectors, self.head.projection.slots)
            start, query = self.head.prepare(queries, 1)
        self.register_buffer("start", start)
        self.register_buffer("query", query)
        self.eval()

    def forward(self, features: Features) -> Tensor:
        """Return the logits ``[B, L]`` of the original."""
        found = self.head.attend(self.start, self.query, self.head.tokens(features))  # [B, K, D]
        logits: Tensor = self.head.projection(found, self.head.text_vectors)
        return logits

    def attention(self, features: Features) -> Tensor:
        """Return the attention of each label, as `MLDecoder.attention` does."""
        return self.head.attention(features)

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 (there is only one mode)
        """Stay in eval mode."""
        return super().train(False)

    @property
    def takes_new_labels(self) -> bool:
        """True if it can score labels unseen in training."""
        return self.head.takes_new_labels

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors ``[L, E]`` behind text queries, or None."""
        return self.head.text_vectors

    def with_text(self, text_vectors: Tensor) -> FoldedMLDecoder:
        """Return a snapshot with the same weights for other labels, given their text vectors ``[L', E]``."""
        return FoldedMLDecoder(self.head.with_text(text_vectors))


class _Layer(nn.Module):
    """One post-norm decoder layer, split where the tokens come in."""

    def __init__(self, width: int, num_heads: int, feedforward: int, *, dropout: float, self_attention: bool) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(width, num_heads, dropout=dropout) if self_attention else None
        self.cross_attention = MultiHeadAttention(width, num_heads, dropout=dropout)
        self.feed_forward = feed_forward(width, feedforward, dropout=dropout, activation=nn.ReLU(inplace=True))
        self.norm_query, self.norm_attention, self.norm_output = (nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def prepare(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return the steps before the tokens: the residual input, and its projection as queries."""
        # In place of self-attention, the authors keep its residual: q + dropout(q).
        mixed = queries if self.self_attention is None else self.self_attention(queries, queries, queries)
        start: Tensor = self.norm_query(queries + self.dropout(mixed))
        query: Tensor = self.cross_attention.query(start)
        return start, query

    def forward(self, start: Tensor, query: Tensor, tokens: Tensor) -> Tensor:
        found = self.cross_attention.attend(query, tokens, tokens)  # [B, K, D]
        hidden = self.norm_attention(start + self.dropout(found))
        output: Tensor = self.norm_output(hidden + self.feed_forward(hidden))
        return output
