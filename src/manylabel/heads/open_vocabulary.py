"""Open-vocabulary baselines, which compare pooled features with a text vector per label.

`TextMap` maps the features into text space, as in Frome et al., "DeViSE", NIPS 2013, but is trained with a multi-label
loss instead of a ranking loss.

`ConSE`: Norouzi et al., "Zero-Shot Learning by Convex Combination of Semantic Embeddings", ICLR 2014,
https://arxiv.org/abs/1312.5650. A classifier of the trained labels, whose scores weight their text vectors; others are
compared with the mean. Deviation: the paper weights by a softmax over labels; here, with several labels in an image, by
the sigmoid scores of the best few, normalised to sum to 1.

Letters in shape comments: B images, C channels, S trained labels, L labels, T best labels, E text dimensions.
"""

import copy
import math
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.heads.head import Features, check_positive
from manylabel.heads.linear import PooledHead, PoolKind
from manylabel.queries import check_text_vectors

SCALE, MIDDLE = 20.0, 0.5  # from cosines to logits: not in the paper; any increasing line ranks the same


class _TextHead(PooledHead):
    """Base of heads on pooled features with a text vector per label."""

    takes_new_labels = True
    text_vectors: Tensor

    def __init__(
        self, in_channels: int, num_labels: int, text_vectors: Tensor | None, text_dim: int | None, pooling: PoolKind
    ) -> None:
        super().__init__(in_channels, num_labels, pooling)
        self.register_buffer("text_vectors", check_text_vectors(num_labels, text_vectors, text_dim))
        self.text_dim = self.text_vectors.shape[1]

    def with_text(self, text_vectors: Tensor) -> Self:
        """Return a head with the same weights for other labels, given their text vectors ``[L', E]``."""
        other = copy.deepcopy(self)
        other.num_labels = len(text_vectors)
        other.text_vectors = check_text_vectors(len(text_vectors), text_vectors, self.text_dim).to(self.text_vectors)
        return other


class TextMap(_TextHead):
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

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        text_vectors: Tensor | None = None,
        text_dim: int | None = None,
        pooling: PoolKind = "average",
    ) -> None:
        super().__init__(in_channels, num_labels, text_vectors, text_dim, pooling)
        self.map = nn.Linear(in_channels, self.text_dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.bias = nn.Parameter(torch.tensor(-2.0))  # most labels are absent

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        return self.decode(features, self.text_vectors)[0]

    def decode(self, features: Features, vectors: Tensor, extra: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002 (as in ML-Decoder)
        """Return the logits of other text vectors ``[L', E]``, for training, and the images in text space."""
        images = F.normalize(self.map(self.pooled(features)), dim=1)  # [B, E]
        cosines = images @ F.normalize(vectors, dim=1).t()  # [B, L']
        return self.log_scale.exp() * cosines + self.bias, images


class ConSE(_TextHead):
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
        super().__init__(in_channels, num_labels, text_vectors, text_dim, pooling)
        check_positive(num_best=num_best)
        self.num_trained, self.num_best = num_trained, num_best
        trained = self.text_vectors.clone() if num_trained is None else torch.zeros(num_trained, self.text_dim)
        self.register_buffer("trained_vectors", trained)
        self.linear = nn.Linear(in_channels, len(trained))

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        trained: Tensor = self.linear(self.pooled(features))  # [B, S]
        return trained if self.num_trained is None else self._by_text(trained)

    def _by_text(self, trained: Tensor) -> Tensor:
        weights, best = trained.float().sigmoid().topk(min(self.num_best, trained.shape[1]), dim=1)  # [B, T]
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-6)
        known = F.normalize(self.trained_vectors.float(), dim=1)[best]  # [B, T, E]
        mixed = F.normalize(torch.einsum("bt,bte->be", weights, known), dim=1)
        cosines = mixed @ F.normalize(self.text_vectors.float(), dim=1).t()  # in float32: the scale is large
        return (SCALE * (cosines - MIDDLE)).to(trained.dtype)

    def with_text(self, text_vectors: Tensor) -> Self:
        """Return a head with the same weights for other labels, given their text vectors ``[L', E]``."""
        other = super().with_text(text_vectors)
        other.num_trained = len(self.trained_vectors)
        return other
