"""Metrics of decisions by threshold or rank: CP, CR, CF1, OP, OR, OF1, subset accuracy and Hamming loss.

Letters in shape comments: N images, L labels, D weightings.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manylabel.metrics import inputs
from manylabel.metrics.inputs import Inputs, Threshold, above_threshold, check, decide, mean_over_images, weighted


class PrecisionRecall(NamedTuple):
    """Precision and recall of each label and overall; NaN where undefined.

    Attributes:
        precision: ``[L]``; 0 for a label that is never predicted, undefined for one without positives.
        recall: ``[L]``; undefined for a label without positives.
        overall_precision: OP, correct predictions among all; undefined without a prediction and a positive.
        overall_recall: OR, correct predictions among all positives; undefined without a positive.
    """

    precision: Tensor
    recall: Tensor
    overall_precision: Tensor
    overall_recall: Tensor

    @property
    def class_precision(self) -> Tensor:
        """CP, the mean precision of the labels that have positives."""
        return self.precision.nanmean(dim=-1)

    @property
    def class_recall(self) -> Tensor:
        """CR, the mean recall of the labels that have positives."""
        return self.recall.nanmean(dim=-1)

    @property
    def class_f1(self) -> Tensor:
        """CF1, the harmonic mean of CP and CR (not the mean of the labels' F1)."""
        return _harmonic_mean(self.class_precision, self.class_recall)

    @property
    def overall_f1(self) -> Tensor:
        """OF1, the harmonic mean of OP and OR; with ``top_k=3`` what zero-shot papers call F1@3."""
        return _harmonic_mean(self.overall_precision, self.overall_recall)

    @property
    def averages(self) -> dict[str, Tensor]:
        """The averages by the names of the papers: CP, CR, CF1, OP, OR and OF1."""
        return {
            "CP": self.class_precision,
            "CR": self.class_recall,
            "CF1": self.class_f1,
            "OP": self.overall_precision,
            "OR": self.overall_recall,
            "OF1": self.overall_f1,
        }

    @property
    def label_f1(self) -> Tensor:
        """The F1 of each label, ``[L]``."""
        return _harmonic_mean(self.precision, self.recall)


def precision_recall(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    threshold: Threshold | None = None,
    top_k: int | None = None,
) -> PrecisionRecall:
    """Compute precision and recall of each label and overall.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; other predictions are ignored.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).
        threshold: Predict labels whose score reaches it, one number or one for each label (default: 0.5).
        top_k: Instead, predict the labels with the highest scores of each image, known or not.

    Raises:
        ConfigError: The shapes differ, a score is NaN, or both `threshold` and `top_k` are given.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.6], [0.8, 0.1]])
        >>> result = precision_recall(scores, torch.tensor([[1, 0], [1, 1]]))
        >>> result.precision.tolist(), result.recall.tolist()
        ([1.0, 0.0], [1.0, 0.0])
        >>> round(result.class_f1.item(), 3), round(result.overall_f1.item(), 3)
        (0.5, 0.667)
    """
    given = check(scores, targets, known)
    predicted = decide(given.scores, threshold=threshold, top_k=top_k)
    known_predicted = predicted if given.known is None else predicted & given.known
    matrices = (predicted & given.positives, known_predicted, given.positives)
    sums = weighted(lambda counts: torch.stack([_sum(each, counts) for each in matrices]), weights, like=scores)
    hits, claims, positives = sums.unbind(dim=-2)  # [L] or [D, L] each
    all_hits, all_claims, all_positives = (each.sum(dim=-1) for each in (hits, claims, positives))
    return PrecisionRecall(
        precision=_ratio(hits, claims, where=positives > 0),
        recall=_ratio(hits, positives, where=positives > 0),
        overall_precision=_ratio(all_hits, all_claims, where=all_claims + all_positives > 0),
        overall_recall=_ratio(all_hits, all_positives, where=all_positives > 0),
    )


def subset_accuracy(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    threshold: Threshold = 0.5,
) -> Tensor:
    """Compute the fraction of images whose known labels are all predicted correctly; NaN if nothing is known.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; images without any are excluded.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).
        threshold: Predict labels whose score reaches it; one number or one for each label.

    Examples:
        >>> subset_accuracy(torch.tensor([[0.9, 0.1], [0.9, 0.8]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.5
    """

    def right(block: Inputs) -> tuple[Tensor, Tensor]:
        wrong, counted = _count_wrong(block, threshold)
        return (wrong == 0) & (counted > 0), counted > 0

    return mean_over_images(right, check(scores, targets, known), weights)


def hamming_loss(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    threshold: Threshold = 0.5,
) -> Tensor:
    """Compute the fraction of known entries (image, label) that are predicted wrongly; NaN if nothing is known.

    Args:
        scores: ``[N, L]``.
        targets: ``[N, L]``, 1 where a label is present, else 0.
        known: ``[N, L]``, true where the target is known; the rest is ignored.
        weights: ``[N]`` or ``[D, N]``, weight of each image (default: 1).
        threshold: Predict labels whose score reaches it; one number or one for each label.

    Examples:
        >>> hamming_loss(torch.tensor([[0.9, 0.1], [0.9, 0.8]]), torch.tensor([[1, 0], [1, 0]])).item()
        0.25
    """
    return mean_over_images(lambda block: _count_wrong(block, threshold), check(scores, targets, known), weights)


def _count_wrong(block: Inputs, threshold: Threshold) -> tuple[Tensor, Tensor]:
    """Return how many known labels of each image are predicted wrongly, and how many are known, ``[n]`` each."""
    entries = block.positives | block.negatives
    wrong = (above_threshold(block.scores, threshold) != block.positives) & entries
    return wrong.sum(dim=1), entries.sum(dim=1)


def _sum(matrix: Tensor, counts: Tensor) -> Tensor:
    """Return the weighted sum over images of each column, ``[L, D]``; in blocks of labels, to save memory."""
    step = max(1, inputs.BLOCK // max(1, len(matrix)))
    blocks = [matrix[:, start : start + step].t().to(counts.dtype) for start in range(0, matrix.shape[1], step)]
    return torch.cat([block @ counts for block in blocks]) if blocks else counts.new_zeros(0, counts.shape[1])


def _ratio(part: Tensor, whole: Tensor, *, where: Tensor) -> Tensor:
    """Divide whole numbers: 0 for 0 / 0, NaN outside of `where`."""
    return torch.where(where, part / whole.clamp(min=1), torch.nan)


def _harmonic_mean(first: Tensor, second: Tensor) -> Tensor:
    both = first + second
    return torch.where(both > 0, 2 * first * second / both, both)
