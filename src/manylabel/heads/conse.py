"""ConSE: a classifier of the trained labels, whose scores weight their text vectors; others are compared with the mean.

Norouzi et al., "Zero-Shot Learning by Convex Combination of Semantic Embeddings", ICLR 2014,
https://arxiv.org/abs/1312.5650. Deviation: the paper weights by a softmax over labels; here, with several labels in an
image, by the sigmoid scores of the best few, normalised to sum to 1.

Letters in shape comments: B images, C channels, S trained labels, L labels, T best labels, E text dimensions.
"""

import copy
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.heads.checks import Features, check_positive, final_map
from manylabel.heads.linear import Pool, PoolKind
from manylabel.heads.traits import Head, PooledInput
from manylabel.queries import check_text_vectors

__all__ = ["ConSE"]

SCALE, MIDDLE = 20.0, 0.5  # from cosines to logits: not in the paper; any increasing line ranks the same


class ConSE(Head):
    """ConSE head: a linear classifier of the trained labels, which scores new labels by text similarity.

    With the trained labels, the logits are those of the linear layer. With other labels (`with_text`), all of them,
    including trained ones, are scored by the cosine similarity to the mixed vector, so scores are comparable.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        text_vectors: ``[L, E]``, a vector per label; saved with the model.
        text_dim: E; lets a saved model be built again before its state dict fills in `text_vectors`.
        num_trained: Labels that the linear layer was trained on, S (default: the same labels).
        num_best: Number of most confident trained labels to mix, T in the paper.
        pooling: ``"average"``, ``"max"`` or ``"generalised_mean"``.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = ConSE(512, 3, text_vectors=torch.randn(3, 8))
        >>> head([torch.randn(2, 512, 7, 7)]).shape, head.with_text(torch.randn(9, 8)).num_labels
        (torch.Size([2, 3]), 9)
    """

    takes_new_labels = True
    text_vectors: Tensor
    trained_vectors: Tensor

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        text_vectors: Tensor | None = None,
        text_dim: int | None = None,
        num_trained: int | None = None,
        num_best: int = 10,
        pooling: PoolKind = "average",
    ) -> None:
        super().__init__()
        for name, value in {"in_channels": in_channels, "num_labels": num_labels, "num_best": num_best}.items():
            check_positive(name, value)
        self.in_channels, self.num_labels, self.num_trained = in_channels, num_labels, num_trained
        self.num_best, self.pooling = num_best, pooling
        self.register_buffer("text_vectors", check_text_vectors(num_labels, text_vectors, text_dim))
        self.text_dim = self.text_vectors.shape[1]
        trained = self.text_vectors.clone() if num_trained is None else torch.zeros(num_trained, self.text_dim)
        self.register_buffer("trained_vectors", trained)
        self.pool = Pool(pooling)
        self.linear = nn.Linear(in_channels, len(trained))

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        trained: Tensor = self.linear(self.pool(final_map(features, self.in_channels)))  # [B, S]
        return trained if self.num_trained is None else self._by_text(trained)

    @property
    def pooled_input(self) -> PooledInput:
        """Pooling that leaves the logits unchanged."""
        return self.pool.pooled_input

    def _by_text(self, trained: Tensor) -> Tensor:
        weights, best = trained.float().sigmoid().topk(min(self.num_best, trained.shape[1]), dim=1)  # [B, T]
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-6)
        known = F.normalize(self.trained_vectors.float(), dim=1)[best]  # [B, T, E]
        mixed = F.normalize(torch.einsum("bt,bte->be", weights, known), dim=1)
        cosines = mixed @ F.normalize(self.text_vectors.float(), dim=1).t()  # in float32: the scale is large
        return (SCALE * (cosines - MIDDLE)).to(trained.dtype)

    def with_text(self, text_vectors: Tensor) -> Self:
        """Return a head with the same weights for other labels, given their text vectors ``[L', E]``."""
        other = copy.deepcopy(self)
        other.num_trained = len(self.trained_vectors)
        other.num_labels = len(text_vectors)
        other.text_vectors = check_text_vectors(len(text_vectors), text_vectors, self.text_dim).to(self.linear.weight)
        return other
