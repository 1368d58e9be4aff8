"""Focal loss: binary cross-entropy that down-weights labels already predicted correctly.

Lin et al., "Focal Loss for Dense Object Detection" (ICCV 2017, arXiv:1708.02002). Without its weight alpha:
`positive_weights` does that, for each label.
"""

import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.multilabel import MultiLabelLoss, Reduction, Unknown

__all__ = ["FocalLoss"]


class FocalLoss(MultiLabelLoss):
    """Focal loss ``-(1 - p)^gamma log p`` of a label, with p the score of its true state.

    Args:
        gamma: Focus on hard labels; 0 is binary cross-entropy.
        reduction: ``"sum"`` over images and labels, or ``"mean"`` over those that count.
        unknown: As for `MultiLabelLoss`.
        num_likely: Likewise.
        positive_weights: Likewise.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> loss = FocalLoss(gamma=2)
        >>> logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
        >>> loss(logits, targets)
        tensor(1.8234)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        reduction: Reduction = "sum",
        unknown: Unknown = "ignore",
        num_likely: int = 5,
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown, num_likely=num_likely, positive_weights=positive_weights)
        if not gamma >= 0:
            raise ConfigError(f"gamma must be 0 or more, got {gamma}")
        self.gamma = gamma

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        log_present, log_absent = F.logsigmoid(logits), F.logsigmoid(-logits)  # log p, log(1 - p)
        if_present = -(self.gamma * log_absent).exp() * log_present
        if_absent = -(self.gamma * log_present).exp() * log_absent
        return if_present, if_absent
