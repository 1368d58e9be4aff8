"""Ranking metrics: ranking loss, coverage, one-error and top-1 accuracy.

Images for which a metric is undefined are excluded. scikit-learn counts them as 0, the best value, in ranking loss and
coverage.

Letters in shape comments: N images, L labels, n images of a block.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics.inputs import Inputs, check, mean_over_images, top_labels


def ranking_loss(
    scores: Tensor, targets: Tensor, known: Tensor | None = None, *, weights: Tensor | None = None
) -> Tensor:
    """Compute the fraction of (present, absent) pairs of labels in the wrong order, averaged over images.

    Equal scores are in the wrong order. Images without such a pair are excluded; NaN if none has one.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other labels are in no pair.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).

    Examples:
        >>> ranking_loss(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]])).item()
        0.5
    """

    def wrong_pairs(block: Inputs) -> tuple[Tensor, Tensor]:
        absent = torch.where(block.negatives, block.scores, -torch.inf).sort(dim=1).values  # [n, L], the rest first
        num_absent = block.negatives.sum(dim=1, keepdim=True)
        not_below = absent.shape[1] - torch.searchsorted(absent, block.scores.contiguous())
        wrong = torch.where(block.positives, not_below.minimum(num_absent), 0).sum(dim=1)
        pairs = block.positives.sum(dim=1) * num_absent[:, 0]
        return wrong / pairs.clamp(min=1), pairs > 0

    return mean_over_images(wrong_pairs, check(scores, targets, known), weights)


def coverage(scores: Tensor, targets: Tensor, known: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
    """Compute the number of top-ranked labels needed to cover all present ones, averaged over images.

    Equal scores count together. Images without a known positive are excluded; NaN if none has one.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other labels are not counted.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).

    Examples:
        >>> coverage(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]])).item()
        3.0
    """

    def depths(block: Inputs) -> tuple[Tensor, Tensor]:
        present = torch.where(block.positives, block.scores, torch.inf)
        lowest = F.pad(present, (0, 1), value=torch.inf).amin(dim=1, keepdim=True)  # [n, 1], of no labels, too
        taken = (block.scores >= lowest) & (block.positives | block.negatives)
        has_label = block.positives.any(dim=1)
        return taken.sum(dim=1) * has_label, has_label

    return mean_over_images(depths, check(scores, targets, known), weights)


def one_error(scores: Tensor, targets: Tensor, known: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
    """Compute the fraction of images whose highest score is of an absent label.

    Images without a known positive are excluded; NaN if none has one. Of equal scores the first counts.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other labels are skipped.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).

    Examples:
        >>> one_error(torch.tensor([[0.9, 0.5], [0.2, 0.7]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.5
    """

    def errors(block: Inputs) -> tuple[Tensor, Tensor]:
        values = block.scores if block.known is None else block.scores.masked_fill(~block.known, -torch.inf)
        is_right = (top_labels(values, 1) & block.positives).any(dim=1)
        has_label = block.positives.any(dim=1)
        return has_label & ~is_right, has_label

    return mean_over_images(errors, check(scores, targets, known), weights)


def top_one_accuracy(
    scores: Tensor, targets: Tensor, known: Tensor | None = None, *, weights: Tensor | None = None
) -> Tensor:
    """Compute the fraction of images whose highest score is of their label, for images with one label each.

    Args:
        scores: ``[N, L]``; of equal ones, the first counts.
        targets: ``[N, L]``, at most one 1 per row; images without any are excluded; NaN if none has one.
        known: ``[N, L]``, true where the target is known; other labels are skipped.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).

    Raises:
        ConfigError: An image has more than one label.

    Examples:
        >>> top_one_accuracy(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.5
    """
    several = int((check(scores, targets, known).positives.sum(dim=1) > 1).sum())
    if several:
        raise ConfigError(f"top-1 accuracy needs one label per image, but {several} have several")
    return 1 - one_error(scores, targets, known, weights=weights)
