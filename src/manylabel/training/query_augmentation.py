"""Query augmentation: training that changes text queries, so that a head answers better for queries it never saw.

Ridnik et al., "ML-Decoder", WACV 2023, Section 2.3.3: random queries beside those of the labels, with a positive target
that says "random", and noise on the queries. How the target is realised is left open there; see `AugmentedQueries`.

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
    """A head and, while it trains, what is done to its queries.

    Random queries are drawn anew for each batch, from N(0, 1) in text space, where vectors of labels have numbers of
    about that size. The target "random" has an output of its own, shared by all queries and thrown away after training:
    1 for random queries, 0 for those of labels. The logit "present" of a random query is not trained. Noise from
    N(0, noise^2) is added to the text vectors, one draw for a batch.

    Args:
        head: An ML-Decoder with text queries and shared output weights; trained in place.
        num_random: Random queries for each batch; none when 0.
        noise: Standard deviation of the noise; none when 0.

    Raises:
        ConfigError: A number is negative.

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
        """Return the head's logits ``[B, L]``, with queries as they are."""
        logits: Tensor = self.head(features)
        return logits

    def augmented(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return logits ``[B, L]`` with changed queries, and, with random ones, the logits "random" ``[B, K + R]``."""
        vectors = self.head.text_vectors
        if vectors is None:
            raise ConfigError("query augmentation needs text queries; set queries='text'")
        if self.noise:
            vectors = vectors + self.noise * torch.randn_like(vectors)
        extra = vectors.new_empty(self.num_random, vectors.shape[1]).normal_()  # [R, E]
        logits, hidden = self.head.decode(features, vectors, extra)
        return logits, None if self.is_random is None else self.is_random(hidden).squeeze(2)


class ZeroShotTask(ClassificationTask):
    """Trains a head with augmented queries; one loss is taken over the labels and the target "random" together.

    Args:
        model: The head and what is done to its queries.
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
            wanted = torch.zeros_like(random)
            wanted[:, -self.model.num_random :] = 1
            logits, targets = torch.cat([logits, random], 1), torch.cat([targets, wanted], 1)
            known = torch.cat([known, torch.ones_like(wanted, dtype=torch.bool)], 1)
        loss: Tensor = self.loss(logits, targets, known)
        return loss
