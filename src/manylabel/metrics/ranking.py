"""Ranking metrics: ranking loss, coverage, one-error and top-1 accuracy.

Images for which a metric is undefined are excluded. scikit-learn counts them as 0, the best value, in ranking loss and
coverage.

Letters in shape comments: N images, L labels, n images of a block.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.metrics.inputs import Inputs, check, top_labels, weighted_ratio

__all__ = ["coverage", "one_error", "ranking_loss", "top_one_accuracy"]


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
    losses, counted = [torch.zeros(0, device=scores.device)], [torch.zeros(0, device=scores.device)]
    for block in check(scores, targets, known).by_image():
        absent = torch.where(block.negatives, block.scores, -torch.inf).sort(dim=1).values  # [n, L], the rest first
        num_absent = block.negatives.sum(dim=1, keepdim=True)
        not_below = scores.shape[1] - torch.searchsorted(absent, block.scores.contiguous())
        wrong = torch.where(block.positives, not_below.minimum(num_absent), 0).sum(dim=1)
        pairs = block.positives.sum(dim=1) * num_absent[:, 0]
        losses.append(wrong / pairs.clamp(min=1))
        counted.append((pairs > 0).float())
    return weighted_ratio(torch.cat(losses), torch.cat(counted), weights, like=scores)


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
    given = check(scores, targets, known)
    depths = [torch.zeros(0, dtype=torch.int64, device=scores.device)]
    for block in given.by_image():
        present = torch.where(block.positives, block.scores, torch.inf)
        lowest = F.pad(present, (0, 1), value=torch.inf).amin(dim=1, keepdim=True)  # [n, 1], of no labels, too
        taken = (block.scores >= lowest) & (block.positives | block.negatives)
        depths.append(torch.where(block.positives.any(dim=1), taken.sum(dim=1), 0))
    return weighted_ratio(torch.cat(depths), given.positives.any(dim=1), weights, like=scores)


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
    given = check(scores, targets, known)
    has_label = given.positives.any(dim=1)
    return weighted_ratio(has_label & ~_best_is_present(given), has_label, weights, like=scores)


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


def _best_is_present(given: Inputs) -> Tensor:
    """Return for each image whether the highest score among its known labels is of a present one, ``[N]``."""
    found = [torch.zeros(0, dtype=torch.bool, device=given.scores.device)]
    for block in given.by_image():
        scores = block.scores if block.known is None else block.scores.masked_fill(~block.known, -torch.inf)
        found.append((top_labels(scores, 1) & block.positives).any(dim=1))
    return torch.cat(found)
