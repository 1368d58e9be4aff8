"""What all metric classes share: they collect scores and targets, over batches and over processes."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from manylabel.errors import ConfigError
from manylabel.metrics.inputs import Judged, check

__all__ = ["AccumulatedMetric"]


class AccumulatedMetric(Metric, ABC):
    """Collects scores, targets and what is known; `compute` sees all of it at once.

    Several of these in one `torchmetrics.MetricCollection` share what they collect.
    """

    is_differentiable = False
    full_state_update = False
    scores: list[Tensor] | Tensor
    targets: list[Tensor] | Tensor
    known: list[Tensor] | Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("scores", "targets", "known"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, targets: Tensor, known: Tensor | None = None) -> None:
        """Take in a batch.

        Args:
            scores: ``[B, L]``.
            targets: ``[B, L]``, 1 where a label is present, else 0.
            known: ``[B, L]``, true where the target is known; everything is when left out.
        """
        judged = check(scores, targets, known)
        for name, values in (
            ("scores", judged.scores),
            ("targets", judged.positives),
            ("known", torch.ones_like(judged.positives) if known is None else known),
        ):
            getattr(self, name).append(values)

    @abstractmethod
    def compute(self) -> Tensor | dict[str, Tensor]:
        """Compute the metric over everything taken in."""

    @property
    def collected(self) -> Judged:
        """Everything taken in so far.

        Raises:
            ConfigError: Nothing was taken in yet.
        """
        if not len(self.scores):
            raise ConfigError("there is nothing to compute yet; call update(scores, targets) first")
        known = dim_zero_cat(self.known)
        return Judged(dim_zero_cat(self.scores), dim_zero_cat(self.targets), None if known.all() else known)
