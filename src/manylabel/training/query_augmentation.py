"""Query augmentation: random and noisy text queries in training, to generalise to unseen labels.

Ridnik et al., "ML-Decoder", WACV 2023, Section 2.3.3: random queries in addition to those of the labels, with a
positive target "random", and noise on the queries. The paper leaves open how the target is realised; see
`AugmentedQueries`.

Letters in shape comments: B images, L labels, K queries of labels, R random queries, D width, E text dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads import MLDecoder
from manylabel.settings import LoopSettings
from manylabel.training.task import ClassificationTask
from manylabel.types import Batch, FeatureBatch

__all__ = ["AugmentedQueries", "ZeroShotTask"]


class AugmentedQueries(nn.Module):
    """Head with query augmentation in training.

    Random queries are sampled for each batch from N(0, 1) in text space, about the scale of the label vectors. The
    target "random" has an output of its own, shared by all queries and discarded after training: 1 for random queries,
    0 for those of labels. The logit "present" of a random query is not trained. Noise from N(0, noise^2) is added to
    the text vectors, one sample per batch.

    Args:
        head: ML-Decoder with text queries and shared output weights; trained in place.
        num_random: Number of random queries per batch.
        noise: Standard deviation of the noise.

    Raises:
        ConfigError: A value is negative.

    Examples:
        >>> text = {"queries": "text", "shared_projection": True, "text_vectors": torch.randn(3, 8)}
        >>> model = AugmentedQueries(MLDecoder(8, 3, width=16, num_heads=2, **text), num_random=2, noise=0.1)
        >>> logits, random = model.augmented([torch.randn(4, 8, 2, 2)])
        >>> logits.shape, random.shape
        (torch.Size([4, 3]), torch.Size([4, 5]))
    """

    def __init__(self, head: MLDecoder, *, num_random: int = 0, noise: float = 0.0) -> None:
        super().__init__()
        if num_random < 0 or noise < 0:
            raise ConfigError(f"num_random and noise must be 0 or more, got {num_random} and {noise}")
        self.head = head
        self.num_random, self.noise = num_random, noise
        self.is_random = nn.Linear(head.width, 1) if num_random else None

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return the logits ``[B, L]`` without augmentation."""
        logits: Tensor = self.head(features)
        return logits

    def augmented(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return logits ``[B, L]`` with augmented queries and, for random queries, logits "random" ``[B, K + R]``."""
        vectors = self.head.text_vectors
        if vectors is None:
            raise ConfigError("query augmentation needs text queries; set queries='text'")
        if self.noise:
            vectors = vectors + self.noise * torch.randn_like(vectors)
        extra = vectors.new_empty(self.num_random, vectors.shape[1]).normal_()  # [R, E]
        logits, hidden = self.head.decode(features, vectors, extra)
        return logits, None if self.is_random is None else self.is_random(hidden).squeeze(2)


class ZeroShotTask(ClassificationTask):
    """Task that trains a head with query augmentation; one loss covers the labels and the target "random".

    Args:
        model: Head with query augmentation.
        loss: ``(logits, targets, known) -> scalar``.
        settings: Optimizer, schedule and seed.
    """

    model: AugmentedQueries

    def __init__(self, model: AugmentedQueries, loss: nn.Module, *, settings: LoopSettings) -> None:
        super().__init__(model, loss, settings=settings)

    def objective(self, batch: Batch | FeatureBatch) -> Tensor:
        """Return the loss of a batch of features."""
        if not isinstance(batch, FeatureBatch):
            raise ConfigError("query augmentation trains on cached features; pass batches of features")
        logits, random = self.model.augmented(batch.features)
        targets, known = batch.targets, batch.known
        if random is not None:
            is_random = torch.zeros_like(random)
            is_random[:, -self.model.num_random :] = 1
            logits, targets = torch.cat([logits, random], 1), torch.cat([targets, is_random], 1)
            known = torch.cat([known, torch.ones_like(is_random, dtype=torch.bool)], 1)
        loss: Tensor = self.loss(logits, targets, known)
        return loss
