"""Losses that compare logits with each other: cross-entropy over the labels, and the two-way loss.

Kobayashi, "Two-way Multi-Label Loss" (CVPR 2023). Values are the paper's. Deviation: labels that do not count are
left out exactly, where the authors' code subtracts 100 from their logits.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.losses.loss import (
    MultiLabelLoss,
    Reduction,
    Unknown,
    check_reduction,
    check_shapes,
    full_precision,
    reduce,
    split_unknown,
)

LOWEST = -1e30  # in place of minus infinity, whose logsumexp has no gradient


class CrossEntropy(nn.Module):
    """Cross-entropy: ``-log p`` of the image's label, with p the softmax over the labels.

    Images whose label is unknown do not count; there is no other treatment of unknown labels, since one known label
    rules out the rest. For an image with several labels it is the mean over them.

    Args:
        reduction: ``"sum"`` or ``"mean"`` over the images that count.
        positive_weights: ``[L]``, factor of the loss of a label; the mean is not divided by them.

    Raises:
        ConfigError: The reduction is invalid.

    Examples:
        >>> import torch
        >>> loss = CrossEntropy()
        >>> logits, targets = torch.zeros(2, 4), torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
        >>> loss(logits, targets)
        tensor(1.3863)
    """

    def __init__(self, *, reduction: Reduction = "mean", positive_weights: Tensor | None = None) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction: Reduction = reduction
        self.positive_weights: Tensor | None
        self.register_buffer("positive_weights", positive_weights)

    def forward(self, logits: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: ``[B, L]``, before any softmax.
            targets: ``[B, L]``, 1 for the image's label, 0 for the others, -1 where it is unknown.
            known: ``[B, L]``, true where the target is known (default: where it is not negative).

        Returns:
            One number; 0, with a gradient of 0, if no image counts.

        Raises:
            ConfigError: The shapes do not fit.
        """
        check_shapes(logits, targets, known, self.positive_weights)
        logits = full_precision(logits)
        targets, _ = split_unknown(logits, targets, known)
        losses = -F.log_softmax(logits, dim=1)  # [B, L]
        if self.positive_weights is not None:
            losses = losses * self.positive_weights.to(logits.dtype)
        num_labels = targets.sum(dim=1)  # [B]
        images = (targets * losses).sum(dim=1) / num_labels.clamp(min=1)
        return reduce(images, num_labels > 0, self.reduction)

    def extra_repr(self) -> str:
        """Return the settings."""
        weighted = "" if self.positive_weights is None else f", positive_weights=[{len(self.positive_weights)}]"
        return f"reduction={self.reduction!r}{weighted}"


class TwoWayLoss(MultiLabelLoss):
    """Two-way loss: the present labels of an image against its absent ones, and the images of a label likewise.

    Each comparison costs ``softplus(Tn * logsumexp(x / Tn) + Tp * logsumexp(-x / Tp))``, with the first sum over logits
    of absent labels, the second over those of present ones. An image or a label without positives does not count.
    Comparisons between images depend on the batch: use large ones.

    Args:
        positive_temperature: Temperature of present labels, Tp in the paper.
        negative_temperature: Temperature of absent labels, Tn in the paper.
        reduction: ``"mean"``, over images plus over labels, or ``"sum"`` of both.
        unknown: As for `MultiLabelLoss`.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> loss = TwoWayLoss()
        >>> loss(torch.tensor([[2.0, -1.0], [0.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor(0.1211)
    """

    def __init__(
        self,
        positive_temperature: float = 4.0,
        negative_temperature: float = 1.0,
        *,
        reduction: Reduction = "mean",
        unknown: Unknown = "ignore",
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown)
        for name, value in (("positive", positive_temperature), ("negative", negative_temperature)):
            if not value > 0:
                raise ConfigError(f"{name}_temperature must be above 0, got {value}; the paper uses 4 and 1")
        self.positive_temperature, self.negative_temperature = positive_temperature, negative_temperature

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scaled logits that the comparisons of a present and of an absent label sum up."""
        return -logits / self.positive_temperature, logits / self.negative_temperature

    def forward(
        self, logits: Tensor, targets: Tensor, known: Tensor | None = None, images: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch; arguments as for `MultiLabelLoss`."""
        check_shapes(logits, targets, known, None)
        logits = full_precision(logits)
        targets, known = split_unknown(logits, targets, known)
        targets, counted = self.treat_unknown(logits, targets, known, images)
        is_present, is_absent = counted & (targets > 0), counted & (targets <= 0)
        present, absent = self.label_losses(logits)
        present, absent = present.masked_fill(~is_present, LOWEST), absent.masked_fill(~is_absent, LOWEST)
        total = logits.new_zeros(())
        for dim in (0, 1):  # of each label, over images; of each image, over labels
            hard_present = self.positive_temperature * present.logsumexp(dim)
            hard_absent = self.negative_temperature * absent.logsumexp(dim)
            total = total + reduce(F.softplus(hard_present + hard_absent), is_present.any(dim), self.reduction)
        return total
