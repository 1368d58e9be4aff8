"""How well the labels of each picture are ordered: ranking loss, coverage and one-error.

Letters in shape comments: N pictures, L labels, n pictures of a block.
"""

import torch
from torch import Tensor

from manylabel.metrics.accumulated import AccumulatedMetric
from manylabel.metrics.decisions import top_labels
from manylabel.metrics.inputs import Judged, check
from manylabel.metrics.ranks import rank_positives

__all__ = [
    "Coverage",
    "OneError",
    "RankingLoss",
    "coverage",
    "coverage_depths",
    "one_error",
    "ranking_loss",
    "ranking_losses",
]


def ranking_loss(scores: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
    """Compute the share of (present, absent) pairs of labels in the wrong order, averaged over pictures.

    As in scikit-learn, equal scores are in the wrong order, and a picture without such pairs counts with 0.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other labels are in no pair.

    Examples:
        >>> ranking_loss(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]])).item()
        0.5
    """
    return _mean(ranking_losses(check(scores, targets, known)))


def ranking_losses(judged: Judged) -> Tensor:
    """Return each picture's share of (present, absent) pairs of labels in the wrong order, ``[N]``.

    Examples:
        >>> judged = Judged(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[True, True, False]]), known=None)
        >>> ranking_losses(judged)
        tensor([0.5000])
    """
    losses = [judged.scores.new_zeros(0, dtype=torch.float32)]
    for block in judged.by_picture():
        ranks = rank_positives(block._replace(scores=block.scores.clone()))
        wrong = torch.where(ranks.real, ranks.above - ranks.positives_above, 0).sum(dim=1)  # [n]
        pairs = ranks.counts * block.negatives.sum(dim=1)
        losses.append(wrong / pairs.clamp(min=1))
    return torch.cat(losses)


def coverage(scores: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
    """Compute how many labels one must take from the top to have all that are present, averaged over pictures.

    As in scikit-learn, equal scores are taken together, and a picture without positives counts with 0.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other labels are not counted.

    Examples:
        >>> coverage(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]])).item()
        3.0
    """
    return _mean(coverage_depths(check(scores, targets, known)).float())


def coverage_depths(judged: Judged) -> Tensor:
    """Return how many labels of each picture one must take from the top to have all that are present, ``[N]``.

    Examples:
        >>> judged = Judged(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[True, True, False]]), known=None)
        >>> coverage_depths(judged)
        tensor([3])
    """
    depths = [torch.zeros(0, dtype=torch.int64, device=judged.scores.device)]
    for block in judged.by_picture():
        lowest = torch.where(block.positives, block.scores, torch.inf).amin(dim=1, keepdim=True)  # [n, 1]
        taken = (block.scores >= lowest) & (block.positives | block.negatives)
        depths.append(torch.where(block.positives.any(dim=1), taken.sum(dim=1), 0))
    return torch.cat(depths)


def one_error(scores: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
    """Compute the share of pictures whose highest score is of a label that is absent.

    Pictures without a known positive are left out: they could only be wrong. Of equal scores the first counts.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other labels are passed over.

    Examples:
        >>> one_error(torch.tensor([[0.9, 0.5], [0.2, 0.7]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.5
    """
    judged = check(scores, targets, known)
    errors = [scores.new_zeros(0, dtype=torch.float32)]
    for block in judged.by_picture():
        some = block.positives.any(dim=1)
        errors.append((~_best_is_present(block))[some].float())
    return _mean(torch.cat(errors))


class RankingLoss(AccumulatedMetric):
    """`ranking_loss` over everything taken in.

    Examples:
        >>> metric = RankingLoss()
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    higher_is_better = False

    def compute(self) -> Tensor:
        """Compute the ranking loss."""
        return ranking_loss(*self.collected)


class Coverage(AccumulatedMetric):
    """`coverage` over everything taken in.

    Examples:
        >>> metric = Coverage()
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute()
        tensor(2.)
    """

    higher_is_better = False

    def compute(self) -> Tensor:
        """Compute the coverage."""
        return coverage(*self.collected)


class OneError(AccumulatedMetric):
    """`one_error` over everything taken in.

    Examples:
        >>> metric = OneError()
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute()
        tensor(0.)
    """

    higher_is_better = False

    def compute(self) -> Tensor:
        """Compute the one-error."""
        return one_error(*self.collected)


def _best_is_present(block: Judged) -> Tensor:
    """Say for each picture whether the highest score among its known labels is of one that is present, ``[n]``."""
    scores = block.scores if block.known is None else block.scores.masked_fill(~block.known, -torch.inf)
    return (top_labels(scores, 1) & block.positives).any(dim=1)


def _mean(values: Tensor) -> Tensor:
    """Return the mean; 0 of nothing."""
    return values.sum() / max(1, len(values))
