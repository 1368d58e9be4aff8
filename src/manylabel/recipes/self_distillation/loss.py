"""How far a student is from its teachers, and the guide that adds it to the loss.

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022, Eq. 6 and 7:
``ASL + 1/2 (|student - co|^2 + |student - dis|^2)`` on raw logits, summed over pictures and labels as their ASL is.

- A loss that takes the mean instead of the sum (``--loss.reduction mean``) takes it of both terms, so that their
  proportion stays the paper's.
- With one side only (co, dis, random, whole), that side has the whole weight, as in the authors' code.
- A teacher counts on the pictures it was trained on (Eq. 5, see `hearing`). There it says what it thinks of all its
  labels, so this term counts for unknown labels, too.
- The divergence (kl) is that of a yes or no for each label, times the squared temperature; the authors' code takes a
  softmax over labels, which are no alternatives here.

Letters in shape comments: B pictures, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from manylabel.losses.multilabel import Reduction
from manylabel.types import Batch, FeatureBatch

__all__ = ["Distillation", "distance"]


def distance(
    student: Tensor,
    teacher: Tensor,
    *,
    kind: Literal["mse", "kl"] = "mse",
    temperature: float = 4.0,
    reduction: Reduction = "sum",
    heard: Tensor | None = None,
) -> Tensor:
    """Return how far logits are from a teacher's.

    Args:
        student: ``[B, L]``.
        teacher: ``[B, L]``.
        kind: ``"mse"`` is the squared difference, ``"kl"`` the divergence from the teacher's scores.
        temperature: What logits are divided by before the divergence is taken.
        reduction: ``"sum"`` or ``"mean"`` over pictures and labels.
        heard: ``[B, L]``, true where the teacher counts; everywhere when left out.

    Examples:
        >>> distance(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]))
        tensor(5.)
        >>> distance(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]), heard=torch.tensor([[True, False]]))
        tensor(1.)
        >>> distance(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]]), kind="kl").item()
        0.0
    """
    if kind == "mse":
        costs = (student.float() - teacher.float()) ** 2
    else:
        cooled, told = student.float() / temperature, teacher.float() / temperature
        entropy = F.binary_cross_entropy_with_logits(told, told.sigmoid(), reduction="none")
        crossed = F.binary_cross_entropy_with_logits(cooled, told.sigmoid(), reduction="none")
        costs = temperature**2 * (crossed - entropy)
    if heard is not None:
        costs = costs * heard
    return costs.sum() if reduction == "sum" else costs.mean()


@dataclass(frozen=True, eq=False)
class Distillation:
    """Adds the distance to teachers to a student's loss; a `Guide` for `ClassificationTask`.

    Args:
        teachers: Returns what the teachers of each side say of a batch, ``[B, L]`` each.
        shares: The share of each side; they add up to 1.
        weight: What the whole is multiplied by.
        kind: How the distance is measured.
        temperature: For ``"kl"``.
        reduction: That of the loss it is added to.
        hearing: Returns where the teachers of each side count, ``[B, L]`` each; everywhere when left out.

    Examples:
        >>> batch = Batch(torch.zeros(1, 3, 8, 8), torch.zeros(1, 1), torch.ones(1, 1).bool(), torch.zeros(1).long())
        >>> guide = Distillation(lambda batch: [torch.tensor([[1.0]]), torch.tensor([[3.0]])], shares=(0.5, 0.5))
        >>> guide(batch, torch.tensor([[0.0]]))
        tensor(5.)
    """

    teachers: Callable[[Batch | FeatureBatch], Sequence[Tensor]]
    shares: tuple[float, ...]
    weight: float = 1.0
    kind: Literal["mse", "kl"] = "mse"
    temperature: float = 4.0
    reduction: Reduction = "sum"
    hearing: Callable[[Batch | FeatureBatch], Sequence[Tensor]] | None = None

    def __call__(self, batch: Batch | FeatureBatch, logits: Tensor) -> Tensor:
        """Return what to add to the loss of a batch whose logits are ``[B, L]``."""
        measure = partial(distance, kind=self.kind, temperature=self.temperature, reduction=self.reduction)
        everywhere = [None] * len(self.shares)
        heard = everywhere if self.hearing is None else self.hearing(batch)
        distances = [
            share * measure(logits, told, heard=where)
            for share, told, where in zip(self.shares, self.teachers(batch), heard, strict=True)
        ]
        return self.weight * torch.stack(distances).sum()

    def __deepcopy__(self, memo: object) -> Distillation:
        """Stay the same: the average of a task's weights is a copy of the task, which needs no other teachers."""
        return self
