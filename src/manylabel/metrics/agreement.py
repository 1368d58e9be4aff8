"""How often predicted and true labels are the same: subset accuracy, Hamming loss and top-1 accuracy.

Letters in shape comments: N pictures, L labels.
"""

from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics.accumulated import AccumulatedMetric
from manylabel.metrics.decisions import Threshold, above_threshold, top_labels
from manylabel.metrics.inputs import Judged, check

__all__ = [
    "HammingLoss",
    "SubsetAccuracy",
    "TopOneAccuracy",
    "hamming_loss",
    "subset_accuracy",
    "top_one_accuracy",
]


def subset_accuracy(
    scores: Tensor, targets: Tensor, known: Tensor | None = None, *, threshold: Threshold = 0.5
) -> Tensor:
    """Compute the share of pictures of which every known label is predicted right.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; pictures of which nothing is known are left out.
        threshold: Predict what reaches it; one number or one for each label.

    Examples:
        >>> import torch
        >>> subset_accuracy(torch.tensor([[0.9, 0.1], [0.9, 0.8]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.5
    """
    judged = check(scores, targets, known)
    right = ~_wrong(judged, threshold).any(dim=1)  # [N]
    if judged.known is not None:
        right = right[judged.known.any(dim=1)]
    return right.sum() / max(1, len(right))


def hamming_loss(scores: Tensor, targets: Tensor, known: Tensor | None = None, *, threshold: Threshold = 0.5) -> Tensor:
    """Compute the share of all known entries that are predicted wrong.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is left out.
        threshold: Predict what reaches it; one number or one for each label.

    Examples:
        >>> import torch
        >>> hamming_loss(torch.tensor([[0.9, 0.1], [0.9, 0.8]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.25
    """
    judged = check(scores, targets, known)
    entries = scores.numel() if judged.known is None else int(judged.known.sum())
    return _wrong(judged, threshold).sum() / max(1, entries)


def top_one_accuracy(scores: Tensor, targets: Tensor) -> Tensor:
    """Compute the share of pictures whose highest score is of their label, for pictures with one label each.

    Args:
        scores: ``[N, L]``; of equal ones, the first counts.
        targets: ``[N, L]``, at most one 1 in each row; pictures without any, whose label is not known, are left out.

    Raises:
        ConfigError: A picture has more than one label.

    Examples:
        >>> import torch
        >>> top_one_accuracy(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.5
    """
    judged = check(scores, targets)
    counts = judged.positives.sum(dim=1)
    several = int((counts > 1).sum())
    if several:
        raise ConfigError(f"top-1 accuracy needs one label per picture, but {several} have several")
    return (top_labels(judged.scores, 1) & judged.positives).sum() / counts.sum().clamp(min=1)


class SubsetAccuracy(AccumulatedMetric):
    """`subset_accuracy` over everything taken in.

    Args:
        threshold: Predict what reaches it; one number or one for each label.

    Examples:
        >>> import torch
        >>> metric = SubsetAccuracy(threshold=0.4)
        >>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]]))
        >>> metric.compute()
        tensor(1.)
    """

    higher_is_better = True

    def __init__(self, *, threshold: Threshold = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def compute(self) -> Tensor:
        """Compute the subset accuracy."""
        return subset_accuracy(*self.collected, threshold=self.threshold)


class HammingLoss(AccumulatedMetric):
    """`hamming_loss` over everything taken in.

    Args:
        threshold: Predict what reaches it; one number or one for each label.

    Examples:
        >>> import torch
        >>> metric = HammingLoss()
        >>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 1]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    higher_is_better = False

    def __init__(self, *, threshold: Threshold = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def compute(self) -> Tensor:
        """Compute the Hamming loss."""
        return hamming_loss(*self.collected, threshold=self.threshold)


class TopOneAccuracy(AccumulatedMetric):
    """`top_one_accuracy` over everything taken in.

    Examples:
        >>> import torch
        >>> metric = TopOneAccuracy()
        >>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(0.)
    """

    higher_is_better = True

    def compute(self) -> Tensor:
        """Compute the top-1 accuracy."""
        judged = self.collected
        return top_one_accuracy(judged.scores, judged.positives)


def _wrong(judged: Judged, threshold: Threshold) -> Tensor:
    """Say where a known label is predicted wrong, ``[N, L]``."""
    wrong = above_threshold(judged.scores, threshold) != judged.positives
    return wrong if judged.known is None else wrong & judged.known
