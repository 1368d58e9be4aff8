"""ML-Decoder: a decoder without self-attention, whose queries stand for labels or for groups of labels.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", WACV 2023, https://arxiv.org/abs/2111.12933.
Built as its authors run it; what the paper leaves open is decided in docs/methods/ml-decoder.md.

Letters in shape comments: B pictures, C channels, T tokens, H and W places of a map, L labels, K queries (groups of
labels, or labels), g slots of a group, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.attention import MultiHeadAttention, feed_forward, to_tokens
from manylabel.heads.checks import check_fraction, check_positive
from manylabel.heads.group_projection import GroupProjection
from manylabel.queries import QueryKind, TextQueries, make_queries

__all__ = ["MLDecoder"]


class MLDecoder(nn.Module):
    """The ML-Decoder head.

    Args:
        in_channels: Channels of the final feature map.
        num_labels: Labels, N in the paper.
        num_groups: Queries, K in the paper: labels are divided over them at random. None gives each label its own.
        width: Channels of queries and tokens.
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden channels of the feed-forward block.
        dropout: Share of values dropped in training.
        num_layers: Decoder layers.
        queries: ``"random"`` (drawn once, never trained), ``"learnable"`` or ``"text"`` (from `text_vectors`).
        text_vectors: ``[L, E]``, a vector per label, for text queries; saved with the model.
        text_dim: E; lets a saved model be built again before its state dict fills in `text_vectors`.
        self_attention: Whether queries attend to each other first, as in a plain decoder (for ablation).
        shared_projection: Whether all labels share one output weight, so that labels can be added later.
        seed: Seeds random queries and the division of labels into groups.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Example:
        >>> head = MLDecoder(32, 80, num_groups=20, width=64)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.attention(features).shape
        (torch.Size([2, 80]), torch.Size([2, 80, 7, 7]))
    """

    folded_start: Tensor | None
    folded_query: Tensor | None

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
        self.stages: tuple[int, ...] = (-1,)
        self.in_channels, self.num_labels, self.num_groups = in_channels, num_labels, num_groups
        self.width, self.num_heads, self.feedforward = width, num_heads, feedforward
        self.dropout, self.num_layers, self.queries = dropout, num_layers, queries
        self.self_attention, self.shared_projection, self.seed = self_attention, shared_projection, seed

        self.projection = _make_projection(num_labels, num_groups, width, shared=shared_projection, seed=seed)
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
        self.register_buffer("folded_start", None, persistent=False)
        self.register_buffer("folded_query", None, persistent=False)
        self.register_load_state_dict_post_hook(_unfold_after_load)  # type: ignore[no-untyped-call] # torch's own lacks types

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors ``[L, E]`` behind text queries, or None."""
        return self.query_bank.vectors if isinstance(self.query_bank, TextQueries) else None

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["in_channels", "num_labels", "num_groups", "width", "num_heads", "feedforward", "dropout"]
        names += ["num_layers", "queries", "text_dim", "self_attention", "shared_projection", "seed"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return logits ``[B, L]`` from feature maps, of which the last ``[B, C, H, W]`` is used."""
        tokens = F.relu(self.embed(to_tokens(features[-1])))  # [B, T, D]
        start, query = self._ask(tokens)
        hidden = self._stack[-1](start, query, tokens)  # [B, K, D]
        logits: Tensor = self.projection(hidden)  # [B, L]
        return logits

    def attention(self, features: Sequence[Tensor]) -> Tensor:
        """Return where the last layer looks for each label: ``[B, L, H, W]``, each map summing to 1.

        The mean over the attention heads; the labels of a group share the map of their query.
        """
        tokens = F.relu(self.embed(to_tokens(features[-1])))
        _, query = self._ask(tokens)
        maps = self._stack[-1].cross_attention.weights(query, tokens)  # [B, K, T]
        maps = maps.reshape(*maps.shape[:2], *features[-1].shape[2:])
        return maps[:, self.projection.groups] if isinstance(self.projection, GroupProjection) else maps

    def fold(self) -> Self:
        """Compute once what does not depend on the picture: the queries up to the first attention.

        Logits stay the same. Call it last, after `eval` and any move to a device or precision. Entering training,
        loading a state dict and changing a weight undo it. While gradients are on it is not used, so that every
        weight gets its gradient.

        Raises:
            ConfigError: The head is in training mode.

        Example:
            >>> head = MLDecoder(32, 80, width=64).eval().fold()
            >>> head.is_folded, head.train().is_folded
            (True, False)
        """
        if self.training:
            raise ConfigError("fold() is for inference, but the head is in training mode; call eval() first")
        with torch.inference_mode(False), torch.no_grad():
            self.folded_start, self.folded_query = self._stack[0].prepare(self._queries().unsqueeze(0))
        self._folded_version = self._weights_version()
        return self

    @property
    def is_folded(self) -> bool:
        """Whether `fold` has been called and its result still stands for the weights."""
        return self.folded_start is not None and self._folded_version == self._weights_version()

    def train(self, mode: bool = True) -> Self:
        """Enter or leave training mode; entering it undoes `fold`."""
        if mode:
            self.folded_start = self.folded_query = None
        return super().train(mode)

    def _ask(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's residual input and projected queries, after all layers before it."""
        start, query = self._first_queries(tokens.shape[0])
        for layer, following in pairwise(self._stack):
            start, query = following.prepare(layer(start, query, tokens))
        return start, query

    def _first_queries(self, batch: int) -> tuple[Tensor, Tensor]:
        # A compiled or exported graph may hold the constants; eager code must not miss a gradient or a change.
        foldable = torch.compiler.is_compiling() or (not torch.is_grad_enabled() and self.is_folded)
        if foldable and self.folded_start is not None and self.folded_query is not None:
            return self.folded_start, self.folded_query
        queries = self._queries().unsqueeze(0)  # [1, K, D]
        if self.training and self.dropout:
            queries = queries.expand(batch, -1, -1)  # each picture drops other values
        return self._stack[0].prepare(queries)

    def _queries(self) -> Tensor:
        queries: Tensor  # [K, D]
        if isinstance(self.query_bank, TextQueries) and isinstance(self.projection, GroupProjection):
            queries = self.query_bank(self.projection.groups, self.projection.num_groups)
        else:
            queries = self.query_bank()
        return queries

    @property
    def _stack(self) -> list[_Layer]:
        return cast("list[_Layer]", list(self.layers))

    def _weights_version(self) -> int:
        """Return a number that grows whenever a weight is changed in place, as by an optimizer."""
        weights = chain(self.parameters(), self.query_bank.buffers())
        return sum(0 if weight.is_inference() else weight._version for weight in weights)


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
        """Return what the layer does before it sees the tokens: its residual input, and that projected as queries."""
        # Where self-attention was, the authors keep its residual: q + dropout(q).
        mixed = queries if self.self_attention is None else self.self_attention(queries, queries, queries)
        start: Tensor = self.norm_query(queries + self.dropout(mixed))
        query: Tensor = self.cross_attention.query(start)
        return start, query

    def forward(self, start: Tensor, query: Tensor, tokens: Tensor) -> Tensor:
        found = self.cross_attention.attend(query, tokens, tokens)  # [B, K, D]
        hidden = self.norm_attention(start + self.dropout(found))
        output: Tensor = self.norm_output(hidden + self.feed_forward(hidden))
        return output


def _make_projection(num_labels: int, num_groups: int | None, width: int, *, shared: bool, seed: int) -> nn.Module:
    if not shared:
        return GroupProjection(num_labels, num_labels if num_groups is None else num_groups, width, seed=seed)
    if num_groups not in (None, num_labels):
        raise ConfigError(
            f"shared_projection needs a query per label, got num_groups={num_groups} for {num_labels} labels; "
            "leave num_groups out"
        )
    linear = nn.Linear(width, 1)
    nn.init.xavier_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Flatten(1))


def _unfold_after_load(head: nn.Module, _: object) -> None:
    if isinstance(head, MLDecoder):
        head.folded_start = head.folded_query = None
