"""Cross-entropy over the labels, for images with exactly one."""

import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.losses.loss import Reduction, check_reduction, check_shapes, full_precision, reduce, split_unknown


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
