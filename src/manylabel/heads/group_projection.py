"""The group fully-connected layer of ML-Decoder: from a query per group to a logit per label.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", WACV 2023, https://arxiv.org/abs/2111.12933.

Letters in shape comments: B pictures, L labels, K groups, g slots of a group, D width.
"""

import math

import torch
from torch import Tensor, nn

from manylabel.queries import group_labels

__all__ = ["GroupProjection"]


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
        """Tell the settings."""
        return f"num_labels={self.num_labels}, num_groups={self.num_groups}, width={self.width}, seed={self.seed}"

    @property
    def groups(self) -> Tensor:
        """The group of each label, ``[L]``."""
        return self.slots // self.group_size

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits: ``[B, K, D]`` -> ``[B, L]``."""
        slots = torch.einsum("bkd,kdg->bkg", hidden, self.weight).flatten(1)  # [B, K * g]
        return slots.index_select(1, self.slots) + self.bias
