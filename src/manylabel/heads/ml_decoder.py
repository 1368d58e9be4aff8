"""ML-Decoder: a decoder without self-attention, whose queries stand for labels or for groups of labels.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", WACV 2023, https://arxiv.org/abs/2111.12933.
Follows the authors' code; docs/methods/ml-decoder.md has the choices that the paper leaves open.
The appendix that defines group decoding for zero-shot labels is not available; `TextGroupProjection` is our design: a
label's output weight is generated from its text vector, so labels that share a query differ, and any set of labels,
seen in training or not, can be divided into any number of groups.

Letters in shape comments: B images, C channels, T tokens, H and W positions of a map, L labels, K queries (groups of
labels, or labels), R further queries, g slots of a group, D width, E text dimensions.
"""

import copy
import math
from typing import ClassVar, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.attention import MultiHeadAttention, feed_forward, to_tokens
from manylabel.heads.csra import CSRA
from manylabel.heads.head import Features, Head, ProbeDefaults, check_fraction, check_positive, final_map
from manylabel.queries import QueryKind, TextQueries, check_text_vectors, group_labels, group_means, make_queries
from manylabel.seeds import private_generator


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
        add_csra: Average the logits with those of a `CSRA` head, not in the paper, and better on a frozen backbone
            (docs/results.md). In training, the logits of both are returned, ``[2 * B, L]``, for a loss of each: trained
            as one sum, the decoder fits few images before the other has learned from them.
        seed: Seeds random queries and the division of labels into groups.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = MLDecoder(32, 80, num_groups=20, width=64)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.attention(features).shape
        (torch.Size([2, 80]), torch.Size([2, 80, 7, 7]))
    """

    probe_defaults: ClassVar[ProbeDefaults] = ProbeDefaults({"width": 256, "feedforward": 512, "add_csra": True})

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
        add_csra: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, num_labels=num_labels, feedforward=feedforward, num_layers=num_layers)
        check_fraction("dropout", dropout)
        self.in_channels, self.num_labels, self.num_groups = in_channels, num_labels, num_groups
        self.width, self.num_heads, self.feedforward = width, num_heads, feedforward
        self.dropout, self.num_layers, self.queries = dropout, num_layers, queries
        self.self_attention, self.shared_projection, self.seed = self_attention, shared_projection, seed
        self.add_csra = add_csra
        if add_csra and shared_projection:
            raise ConfigError(
                "add_csra gives each label weights of its own; set add_csra or shared_projection to False"
            )

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
        self.csra = CSRA(in_channels, num_labels) if add_csra else None

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors ``[L, E]`` behind text queries, or None."""
        return self.query_bank.vectors if isinstance(self.query_bank, TextQueries) else None

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several (see `add_csra`)."""
        logits, _ = self.decode(features)
        if self.csra is None:
            return logits
        others: Tensor = self.csra(features)
        return torch.cat([logits, others]) if self.training else (logits + others) / 2

    def decode(
        self, features: Features, vectors: Tensor | None = None, extra: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return logits and the decoded queries; other text vectors are for training with augmented queries.

        In training mode, groups of text queries with shared output weights are drawn anew each time.

        Args:
            features: As for `forward`.
            vectors: ``[L, E]``, other text vectors of the labels, or of more or fewer labels.
            extra: ``[R, E]``, further text queries without a label.

        Returns:
            The logits ``[B, L]`` and all decoded queries ``[B, K + R, D]``, the extra ones last.

        Raises:
            ConfigError: Vectors are given, but the head has no text queries with shared output weights.
        """
        projection = self.projection
        if vectors is not None and len(self._check_open(vectors)) != self.num_labels:
            projection = projection.resized(len(vectors))
        vectors = self.text_vectors if vectors is None else vectors
        slots = projection.draw_slots() if self.training else projection.slots  # [L]
        tokens = self._tokens(final_map(features, self.in_channels))  # [B, T, D]
        hidden = self._queries(vectors, slots, extra, batch=tokens.shape[0], projection=projection)  # [B, K + R, D]
        for layer in self.layers:
            hidden = layer(hidden, tokens)
        return projection(hidden[:, : projection.num_groups], vectors, slots), hidden

    def attention(self, features: Features) -> Tensor:
        """Return the last layer's attention of each label: ``[B, L, H, W]``, each map summing to 1.

        The mean over the attention heads; the labels of a group share the map of their query.
        """
        feature = final_map(features, self.in_channels)
        tokens = self._tokens(feature)
        hidden = self._queries(self.text_vectors, self.projection.slots, batch=tokens.shape[0])
        *earlier, last = cast("list[_Layer]", list(self.layers))
        for layer in earlier:
            hidden = layer(hidden, tokens)
        maps = last.weights(hidden, tokens)[:, self.projection.groups]  # [B, L, T]
        return maps.reshape(*maps.shape[:2], *feature.shape[2:])

    @property
    def takes_new_labels(self) -> bool:
        """True if it can score labels unseen in training: text queries, shared output weights."""
        return isinstance(self.query_bank, TextQueries) and self.shared_projection

    def with_text(self, text_vectors: Tensor, *, num_groups: int | None = None) -> "MLDecoder":
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

    def _make_projection(self, text_vectors: Tensor | None, text_dim: int | None) -> "Projection":
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

    def _tokens(self, feature: Tensor) -> Tensor:
        return F.relu(self.embed(to_tokens(feature)))

    def _queries(
        self,
        vectors: Tensor | None,
        slots: Tensor,
        extra: Tensor | None = None,
        *,
        batch: int,
        projection: "Projection | None" = None,
    ) -> Tensor:
        """Return the queries ``[1, K + R, D]``; text queries are computed from the mean vector of a group's labels.

        In training they are ``[B, K + R, D]``, as dropout differs by image.
        """
        if vectors is None or not isinstance(self.query_bank, TextQueries):
            queries: Tensor = self.query_bank()
        else:
            asked = (projection or self.projection).group_vectors(vectors, slots)
            queries = self.query_bank.make(asked if extra is None else torch.cat([asked, extra]))
        return queries.expand(batch if self.training and self.dropout > 0 else 1, -1, -1)


class _Layer(nn.Module):
    """One post-norm decoder layer."""

    def __init__(self, width: int, num_heads: int, feedforward: int, *, dropout: float, self_attention: bool) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(width, num_heads, dropout=dropout) if self_attention else None
        self.cross_attention = MultiHeadAttention(width, num_heads, dropout=dropout)
        self.feed_forward = feed_forward(width, feedforward, dropout=dropout, activation=nn.ReLU(inplace=True))
        self.norm_query, self.norm_attention, self.norm_output = (nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, tokens: Tensor) -> Tensor:
        start = self._start(queries)
        found = self.cross_attention(start, tokens, tokens)  # [B, K, D]
        hidden = self.norm_attention(start + self.dropout(found))
        output: Tensor = self.norm_output(hidden + self.feed_forward(hidden))
        return output

    def weights(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """Return the weights of the cross attention, ``[B, K, T]``."""
        return self.cross_attention.weights(self._start(queries), tokens)

    def _start(self, queries: Tensor) -> Tensor:
        # In place of self-attention, the authors keep its residual: q + dropout(q).
        mixed = queries if self.self_attention is None else self.self_attention(queries, queries, queries)
        start: Tensor = self.norm_query(queries + self.dropout(mixed))
        return start


class Projection(nn.Module):
    """Base of the output layers, which map the decoded query of each group, or label, to the logits of its labels.

    ``projection(hidden, vectors, slots)`` returns logits ``[B, L]`` of decoded queries ``[B, K, D]``, given the labels'
    text vectors ``[L, E]``, if any, and the division into groups (default: the saved one).

    Args:
        num_labels: Labels.
        num_groups: Groups; at most `num_labels`, and need not divide it.
        width: Channels of a query.
        slots: ``[L]``, the slot of each label, see `manylabel.queries.group_labels`; saved with the weights.
        seed: Seeds the division of labels into groups.
    """

    slots: Tensor

    def __init__(self, num_labels: int, num_groups: int, width: int, *, slots: Tensor, seed: int) -> None:
        super().__init__()
        self.num_labels, self.num_groups, self.width, self.seed = num_labels, num_groups, width, seed
        self.register_buffer("slots", slots)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"num_labels={self.num_labels}, num_groups={self.num_groups}, width={self.width}, seed={self.seed}"

    @property
    def group_size(self) -> int:
        """Slots of a group, g."""
        return math.ceil(self.num_labels / self.num_groups)

    @property
    def groups(self) -> Tensor:
        """The group of each label, ``[L]``."""
        return self.slots // self.group_size

    def draw_slots(self) -> Tensor:
        """Return the slots ``[L]`` for a training step."""
        return self.slots

    def group_vectors(self, vectors: Tensor, slots: Tensor) -> Tensor:
        """Return a text vector per group, the mean over its labels: ``[L, E]`` -> ``[K, E]``."""
        return group_means(vectors, slots // self.group_size, self.num_groups)

    def resized(self, num_labels: int) -> Self:
        """Return a projection for another number of labels, with the same weights and labels per group."""
        other = copy.copy(self)
        other._buffers = dict(self._buffers)
        other.num_labels, other.num_groups = num_labels, math.ceil(num_labels / self.group_size)
        other.slots = group_labels(num_labels, other.num_groups, self.seed).to(self.slots.device)
        return other

    def divide(self, vectors: Tensor, num_groups: int) -> None:
        """Switch to other labels, ``[L', E]``, in `num_groups` groups; for weights shared by all labels."""
        self.num_labels, self.num_groups = len(vectors), num_groups
        self.slots = group_by_text(vectors, num_groups, seed=self.seed).to(self.slots.device)


class GroupProjection(Projection):
    """The group fully-connected layer (Eq. 3), as one batched product.

    Examples:
        >>> GroupProjection(10, 4, 8)(torch.zeros(2, 4, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, num_labels: int, num_groups: int, width: int, *, seed: int = 0) -> None:
        slots = group_labels(num_labels, num_groups, seed)
        super().__init__(num_labels, num_groups, width, slots=slots, seed=seed)
        self.weight = nn.Parameter(torch.empty(num_groups, width, self.group_size))
        self.bias = nn.Parameter(torch.zeros(num_labels))
        nn.init.xavier_normal_(self.weight)

    def forward(self, hidden: Tensor, vectors: Tensor | None = None, slots: Tensor | None = None) -> Tensor:  # noqa: ARG002 (one signature for all)
        """Return logits: ``[B, K, D]`` -> ``[B, L]``."""
        found = torch.einsum("bkd,kdg->bkg", hidden, self.weight).flatten(1)  # [B, K * g]
        return found.index_select(1, self.slots if slots is None else slots) + self.bias


class SharedProjection(Projection):
    """One output weight for all labels, with a query per label: labels can change after training.

    Examples:
        >>> SharedProjection(10, 8)(torch.zeros(2, 10, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, num_labels: int, width: int) -> None:
        super().__init__(num_labels, num_labels, width, slots=group_labels(num_labels, num_labels), seed=0)
        self.linear = nn.Linear(width, 1)
        nn.init.xavier_normal_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def group_vectors(self, vectors: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG002 (a group per label)
        """Return the vectors unchanged."""
        return vectors

    def forward(self, hidden: Tensor, vectors: Tensor | None = None, slots: Tensor | None = None) -> Tensor:  # noqa: ARG002 (one signature for all)
        """Return logits: ``[B, L, D]`` -> ``[B, L]``."""
        logits: Tensor = self.linear(hidden).squeeze(2)
        return logits


class TextGroupProjection(Projection):
    """The group fully-connected layer with weights generated from text: ``logit = h_k . (W t + w) / sqrt(D) + b``.

    The vector `h_k` is the decoded query of the label's group, `t` the label's text vector; `W`, `w` and `b` are
    shared by all labels. Without `W`, this is the shared projection of full decoding.

    Args:
        num_labels: Labels.
        num_groups: Groups.
        width: Channels of a query.
        text_vectors: ``[L, E]``; they determine the groups.
        seed: Seeds the division of labels into groups.

    Examples:
        >>> vectors = torch.randn(10, 6)
        >>> TextGroupProjection(10, 4, 8, text_vectors=vectors)(torch.zeros(2, 4, 8), vectors).shape
        torch.Size([2, 10])
    """

    def __init__(self, num_labels: int, num_groups: int, width: int, *, text_vectors: Tensor, seed: int = 0) -> None:
        slots = group_by_text(text_vectors, num_groups, seed=seed)
        super().__init__(num_labels, num_groups, width, slots=slots, seed=seed)
        self.generate = nn.Linear(text_vectors.shape[1], width)  # W and w
        self.bias = nn.Parameter(torch.zeros(1))

    def draw_slots(self) -> Tensor:
        """Divide the labels into new random groups at each training step, to avoid overfitting to fixed groups."""
        return self.slots[torch.randperm(self.num_labels, device=self.slots.device)]

    def forward(self, hidden: Tensor, vectors: Tensor | None = None, slots: Tensor | None = None) -> Tensor:
        """Return logits: ``[B, K, D]`` -> ``[B, L]``."""
        slots = self.slots if slots is None else slots
        made = self.generate(vectors) / math.sqrt(self.width)  # [L, D]
        weights = made.new_zeros(self.num_groups * self.group_size, self.width).index_copy(0, slots, made)
        weights = weights.reshape(self.num_groups, self.group_size, self.width)  # [K, g, D]
        found = torch.einsum("bkd,kgd->bkg", hidden, weights).flatten(1)  # [B, K * g]
        return found.index_select(1, slots) + self.bias


def group_by_text(vectors: Tensor, num_groups: int, *, seed: int = 0) -> Tensor:
    """Divide labels into groups at random, but independently of their order.

    Args:
        vectors: ``[L, E]``, the labels' text vectors.
        num_groups: Groups.
        seed: Another seed, another division.

    Returns:
        ``[L]``, the slot of each label; see `manylabel.queries.group_labels`.

    Examples:
        >>> vectors = torch.randn(6, 8)
        >>> there_and_back = group_by_text(vectors.flip(0), 2).flip(0)
        >>> torch.equal(there_and_back, group_by_text(vectors, 2))
        True
    """
    if num_groups == len(vectors):
        return group_labels(len(vectors), num_groups)
    direction = torch.from_numpy(private_generator("group direction", seed).standard_normal(vectors.shape[1]))
    # Unlike a matrix product, an elementwise product and a sum give a row the same result at any position.
    ranks = (vectors.detach().cpu().double() * direction).sum(1).argsort(stable=True).argsort()
    return group_labels(len(vectors), num_groups, seed)[ranks]
