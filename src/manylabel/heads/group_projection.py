"""The group fully-connected layer of ML-Decoder: from a query per group to a logit per label.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", WACV 2023, https://arxiv.org/abs/2111.12933.
The appendix that defines group decoding for zero-shot labels is not available; `TextGroupProjection` is our design: a
label's output weight is made from its text vector, so labels that share a query can be told apart, and any set of
labels, seen in training or not, can be divided into any number of groups.

Letters in shape comments: B images, L labels, K groups, g slots of a group, D width, E text dimensions.
"""

import math

import torch
from torch import Tensor, nn

from manylabel.queries import group_labels
from manylabel.seeds import private_generator

__all__ = ["GroupProjection", "TextGroupProjection", "group_by_text"]


class GroupProjection(nn.Module):
    """The group fully-connected layer, Eq. 3: each group's query becomes the logits of the labels in the group.

    All groups are one batched product; the permutation of labels into groups is saved with the weights.

    Args:
        num_labels: Labels.
        num_groups: Groups; at most `num_labels`, and need not divide it.
        width: Channels of a query.
        seed: Seeds the division of labels into groups.

    Examples:
        >>> GroupProjection(10, 4, 8)(torch.zeros(2, 4, 8)).shape
        torch.Size([2, 10])
    """

    slots: Tensor

    def __init__(self, num_labels: int, num_groups: int, width: int, *, seed: int = 0) -> None:
        super().__init__()
        self.num_labels, self.num_groups, self.width, self.seed = num_labels, num_groups, width, seed
        self.register_buffer("slots", group_labels(num_labels, num_groups, seed))
        self.group_size = math.ceil(num_labels / num_groups)  # g
        self.weight = nn.Parameter(torch.empty(num_groups, width, self.group_size))
        self.bias = nn.Parameter(torch.zeros(num_labels))
        nn.init.xavier_normal_(self.weight)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"num_labels={self.num_labels}, num_groups={self.num_groups}, width={self.width}, seed={self.seed}"

    @property
    def groups(self) -> Tensor:
        """The group of each label, ``[L]``."""
        return self.slots // self.group_size

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits: ``[B, K, D]`` -> ``[B, L]``."""
        slots = torch.einsum("bkd,kdg->bkg", hidden, self.weight).flatten(1)  # [B, K * g]
        return slots.index_select(1, self.slots) + self.bias


def group_by_text(vectors: Tensor, num_groups: int, *, seed: int = 0) -> Tensor:
    """Divide labels into groups at random, but the same labels always in the same way, whatever their order.

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
    direction = torch.from_numpy(private_generator("group direction", seed).standard_normal(vectors.shape[1]))
    # An elementwise product and a sum: unlike a matrix product, it gives a row the same number wherever it stands.
    ranks = (vectors.detach().cpu().double() * direction).sum(1).argsort(stable=True).argsort()
    return group_labels(len(vectors), num_groups, seed)[ranks]


class TextGroupProjection(nn.Module):
    """The group fully-connected layer with weights made from text: ``logit = h_k . (W t + w) / sqrt(D) + b``.

    The vector `h_k` is what the query of the label's group found, `t` the label's text vector; `W`, `w` and `b` are
    shared by all labels. Without `W`, this is the shared projection of full decoding.

    Args:
        num_labels: Labels.
        num_groups: Groups.
        width: Channels of a query.
        text_vectors: ``[L, E]``; they say which label is in which group.
        seed: Seeds the division of labels into groups.

    Examples:
        >>> vectors = torch.randn(10, 6)
        >>> TextGroupProjection(10, 4, 8, text_vectors=vectors)(torch.zeros(2, 4, 8), vectors).shape
        torch.Size([2, 10])
    """

    slots: Tensor

    def __init__(self, num_labels: int, num_groups: int, width: int, *, text_vectors: Tensor, seed: int = 0) -> None:
        super().__init__()
        self.num_labels, self.num_groups, self.width, self.seed = num_labels, num_groups, width, seed
        self.register_buffer("slots", group_by_text(text_vectors, num_groups, seed=seed))
        self.generate = nn.Linear(text_vectors.shape[1], width)  # W and w
        self.bias = nn.Parameter(torch.zeros(1))

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
        """Divide the labels anew, at random; training does so each step, so that the groups are never learned."""
        return self.slots[torch.randperm(self.num_labels, device=self.slots.device)]

    def divide(self, vectors: Tensor, num_groups: int) -> None:
        """Take other labels, ``[L', E]``, in so many groups."""
        self.num_labels, self.num_groups = len(vectors), num_groups
        self.slots = group_by_text(vectors, num_groups, seed=self.seed).to(self.slots.device)

    def forward(self, hidden: Tensor, vectors: Tensor, slots: Tensor | None = None) -> Tensor:
        """Return logits.

        Args:
            hidden: ``[B, K, D]``.
            vectors: ``[L, E]``, the labels' text vectors.
            slots: ``[L]``, another division than the usual one.

        Returns:
            ``[B, L]``.
        """
        slots = self.slots if slots is None else slots
        made = self.generate(vectors) / math.sqrt(self.width)  # [L, D]
        weights = made.new_zeros(self.num_groups * self.group_size, self.width).index_copy(0, slots, made)
        weights = weights.reshape(self.num_groups, self.group_size, self.width)  # [K, g, D]
        found = torch.einsum("bkd,kgd->bkg", hidden, weights).flatten(1)  # [B, K * g]
        return found.index_select(1, slots) + self.bias
