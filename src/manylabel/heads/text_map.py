"""Open-vocabulary baseline: a linear map of the pooled features into text space, compared with each label.

As in Frome et al., "DeViSE", NIPS 2013, but trained with a multi-label loss instead of a ranking loss.

Letters in shape comments: B images, C channels, L labels, E text dimensions.
"""

import copy
import math
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.heads.checks import Features, check_positive, final_map
from manylabel.heads.linear import Pool, PoolKind
from manylabel.heads.traits import Head, PooledInput
from manylabel.queries import check_text_vectors

__all__ = ["TextMap"]


class TextMap(Head):
    """Linear map of image features into text space; logits are scaled cosine similarities to the labels.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        text_vectors: ``[L, E]``, a vector per label; saved with the model.
        text_dim: E; lets a saved model be built again before its state dict fills in `text_vectors`.
        pooling: ``"average"``, ``"max"`` or ``"generalised_mean"``.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = TextMap(512, 3, text_vectors=torch.randn(3, 8))
        >>> head([torch.randn(2, 512, 7, 7)]).shape, head.with_text(torch.randn(9, 8)).num_labels
        (torch.Size([2, 3]), 9)
    """

    takes_new_labels = True
    text_vectors: Tensor

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        text_vectors: Tensor | None = None,
        text_dim: int | None = None,
        pooling: PoolKind = "average",
    ) -> None:
        super().__init__()
        check_positive("in_channels", in_channels)
        check_positive("num_labels", num_labels)
        self.in_channels, self.num_labels, self.pooling = in_channels, num_labels, pooling
        self.register_buffer("text_vectors", check_text_vectors(num_labels, text_vectors, text_dim))
        self.text_dim = self.text_vectors.shape[1]
        self.pool = Pool(pooling)
        self.map = nn.Linear(in_channels, self.text_dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.bias = nn.Parameter(torch.tensor(-2.0))  # most labels are absent

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        images = F.normalize(self.map(self.pool(final_map(features, self.in_channels))), dim=1)  # [B, E]
        cosines = images @ F.normalize(self.text_vectors, dim=1).t()  # [B, L]
        return self.log_scale.exp() * cosines + self.bias

    @property
    def pooled_input(self) -> PooledInput:
        """Pooling that leaves the logits unchanged."""
        return self.pool.pooled_input

    def with_text(self, text_vectors: Tensor) -> Self:
        """Return a head with the same weights for other labels, given their text vectors ``[L', E]``."""
        other = copy.deepcopy(self)
        other.num_labels = len(text_vectors)
        other.text_vectors = check_text_vectors(len(text_vectors), text_vectors, self.text_dim).to(self.map.weight)
        return other
