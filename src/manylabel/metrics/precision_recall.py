"""Precision, recall and F1, averaged over labels (CP, CR, CF1) and over everything (OP, OR, OF1).

Letters in shape comments: N pictures, L labels.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.metrics.accumulated import AccumulatedMetric
from manylabel.metrics.decisions import Threshold, decide
from manylabel.metrics.inputs import check
from manylabel.metrics.per_label import PerLabel

__all__ = ["F1AtK", "PrecisionRecall", "PrecisionRecallF1", "f1_at_k", "precision_recall"]


class PrecisionRecall(NamedTuple):
    """Precision and recall of each label, from which the averages of the papers follow.

    Args:
        precision: Of each label; 0 for a label that is never predicted. Labels without positives have none.
        recall: Of each label. Labels without positives have none.
        overall_precision: OP, right predictions among all predictions.
        overall_recall: OR, right predictions among all positives.
    """

    precision: PerLabel
    recall: PerLabel
    overall_precision: Tensor
    overall_recall: Tensor

    @property
    def class_precision(self) -> Tensor:
        """CP, the mean precision of the labels that have positives."""
        return self.precision.mean()

    @property
    def class_recall(self) -> Tensor:
        """CR, the mean recall of the labels that have positives."""
        return self.recall.mean()

    @property
    def class_f1(self) -> Tensor:
        """CF1, the harmonic mean of CP and CR (not the mean of the labels' F1)."""
        return _harmonic_mean(self.class_precision, self.class_recall)

    @property
    def overall_f1(self) -> Tensor:
        """OF1, the harmonic mean of OP and OR."""
        return _harmonic_mean(self.overall_precision, self.overall_recall)


def precision_recall(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    threshold: Threshold | None = None,
    top_k: int | None = None,
) -> PrecisionRecall:
    """Compute precision and recall of each label and overall.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; predictions elsewhere count neither as right nor as wrong.
        threshold: Predict what reaches it, one number or one for each label; 0.5 if `top_k` is not given either.
        top_k: Instead, predict the labels with the highest scores of each picture, known or not.

    Returns:
        The results; nothing in them is NaN.

    Raises:
        ConfigError: The shapes differ, a score is NaN, or both `threshold` and `top_k` are given.

    Example:
        >>> scores = torch.tensor([[0.9, 0.6], [0.8, 0.1]])
        >>> result = precision_recall(scores, torch.tensor([[1, 0], [1, 1]]))
        >>> result.precision.values.tolist(), result.recall.values.tolist()
        ([1.0, 0.0], [1.0, 0.0])
        >>> round(result.class_f1.item(), 3), round(result.overall_f1.item(), 3)
        (0.5, 0.667)
    """
    judged = check(scores, targets, known)
    predicted = decide(judged.scores, threshold=threshold, top_k=top_k)
    right = (predicted & judged.positives).sum(dim=0)  # [L]
    named = (predicted if judged.known is None else predicted & judged.known).sum(dim=0)
    there = judged.positives.sum(dim=0)
    defined = there > 0
    return PrecisionRecall(
        precision=PerLabel(torch.where(defined, _ratio(right, named), 0), defined),
        recall=PerLabel(_ratio(right, there), defined),
        overall_precision=_ratio(right.sum(), named.sum()),
        overall_recall=_ratio(right.sum(), there.sum()),
    )


def f1_at_k(scores: Tensor, targets: Tensor, known: Tensor | None = None, *, k: int = 3) -> Tensor:
    """Compute the overall F1 of the `k` highest scores of each picture, as the zero-shot papers report it.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known.
        k: How many labels to predict for each picture.

    Example:
        >>> f1_at_k(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]), k=2).item()
        0.6666666865348816
    """
    return precision_recall(scores, targets, known, top_k=k).overall_f1


class PrecisionRecallF1(AccumulatedMetric):
    """CP, CR, CF1, OP, OR and OF1 by `precision_recall`.

    Args:
        threshold: See `precision_recall`.
        top_k: See `precision_recall`.

    Example:
        >>> metric = PrecisionRecallF1(top_k=1)
        >>> metric.update(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 1]]))
        >>> {name: round(value.item(), 2) for name, value in metric.compute().items()}
        {'CP': 0.5, 'CR': 0.5, 'CF1': 0.5, 'OP': 1.0, 'OR': 0.5, 'OF1': 0.67}
    """

    def __init__(self, *, threshold: Threshold | None = None, top_k: int | None = None) -> None:
        super().__init__()
        self.threshold = threshold
        self.top_k = top_k

    def compute(self) -> dict[str, Tensor]:
        """Compute all six."""
        result = precision_recall(*self.collected, threshold=self.threshold, top_k=self.top_k)
        return {
            "CP": result.class_precision,
            "CR": result.class_recall,
            "CF1": result.class_f1,
            "OP": result.overall_precision,
            "OR": result.overall_recall,
            "OF1": result.overall_f1,
        }


class F1AtK(AccumulatedMetric):
    """`f1_at_k` over everything taken in.

    Args:
        k: How many labels to predict for each picture.

    Example:
        >>> metric = F1AtK(k=1)
        >>> metric.update(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 0]]))
        >>> metric.compute()
        tensor(1.)
    """

    higher_is_better = True

    def __init__(self, *, k: int = 3) -> None:
        super().__init__()
        self.k = k

    def compute(self) -> Tensor:
        """Compute F1@K."""
        return f1_at_k(*self.collected, k=self.k)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Divide, and say 0 where there is nothing to divide by."""
    return part / whole.clamp(min=1)


def _harmonic_mean(first: Tensor, second: Tensor) -> Tensor:
    both = first + second
    return torch.where(both > 0, 2 * first * second / torch.where(both > 0, both, 1), 0)
