"""Output layers of ML-Decoder: from a query per group, or per label, to a logit per label.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", WACV 2023, https://arxiv.org/abs/2111.12933.
The appendix that defines group decoding for zero-shot labels is not available; `TextGroupProjection` is our design: a
label's output weight is generated from its text vector, so labels that share a query differ, and any set of labels,
seen in training or not, can be divided into any number of groups.

Letters in shape comments: B images, L labels, K groups, g slots of a group, D width, E text dimensions.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from manylabel.queries import group_labels, group_means
from manylabel.seeds import private_generator

__all__ = ["GroupProjection", "Projection", "SharedProjection", "TextGroupProjection", "group_by_text"]


class Projection(nn.Module, ABC):
    """Base of the output layers: divides labels into groups, and maps each group's decoded query to its labels' logits.

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

    def divide(self, vectors: Tensor, num_groups: int) -> None:
        """Switch to other labels, ``[L', E]``, in `num_groups` groups; for weights shared by all labels."""
        self.num_labels, self.num_groups = len(vectors), num_groups
        self.slots = self._slots_of(vectors).to(self.slots.device)

    def _slots_of(self, vectors: Tensor) -> Tensor:
        return group_labels(len(vectors), self.num_groups, self.seed)

    @abstractmethod
    def forward(self, hidden: Tensor, vectors: Tensor | None = None, slots: Tensor | None = None) -> Tensor:
        """Return logits.

        Args:
            hidden: ``[B, K, D]``, the decoded query of each group.
            vectors: ``[L, E]``, the labels' text vectors, if any.
            slots: ``[L]``, the division (default: the saved one).

        Returns:
            ``[B, L]``.
        """


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

    def forward(
        self,
        hidden: Tensor,
        vectors: Tensor | None = None,  # noqa: ARG002 (of the interface)
        slots: Tensor | None = None,
    ) -> Tensor:
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

    def forward(
        self,
        hidden: Tensor,
        vectors: Tensor | None = None,  # noqa: ARG002 (of the interface)
        slots: Tensor | None = None,  # noqa: ARG002 (of the interface)
    ) -> Tensor:
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

    def _slots_of(self, vectors: Tensor) -> Tensor:
        return group_by_text(vectors, self.num_groups, seed=self.seed)

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
    direction = torch.from_numpy(private_generator("group direction", seed).standard_normal(vectors.shape[1]))
    # Unlike a matrix product, an elementwise product and a sum give a row the same result at any position.
    ranks = (vectors.detach().cpu().double() * direction).sum(1).argsort(stable=True).argsort()
    return group_labels(len(vectors), num_groups, seed)[ranks]
