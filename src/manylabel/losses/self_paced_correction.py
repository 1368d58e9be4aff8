"""Self-paced loss correction (SPLC): confident unknown labels become present ones.

Zhang et al., "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels" (arXiv:2112.07368). This
follows the paper's equation; the authors' code leaves the margin out for corrected labels.
"""

from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.binary import focal
from manylabel.losses.incomplete import IncompleteTagsLoss
from manylabel.losses.loss import Reduction, check_gamma


class SelfPacedCorrection(IncompleteTagsLoss):
    """Self-paced loss correction (SPLC): an unknown label counts as present once its score exceeds a threshold.

    The loss is the focal loss, with a margin for present labels as in `Hill`.

    Args:
        threshold: Score above which an unknown label counts as present, tau in the paper.
        first_epoch: First epoch with corrections, counted from 0.
        margin: Margin of present labels.
        gamma: Focus on hard labels.
        reduction: ``"sum"`` over images and labels, as the authors do, or ``"mean"``.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> loss = SelfPacedCorrection(first_epoch=0)
        >>> loss(torch.tensor([[2.0, 4.0]]), torch.tensor([[1.0, -1.0]]))
        tensor(0.0228)
    """

    def __init__(
        self,
        threshold: float = 0.6,
        first_epoch: int = 1,
        margin: float = 1.0,
        gamma: float = 2.0,
        *,
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__(reduction=reduction)
        check_gamma(gamma=gamma)
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold must be above 0 and below 1, got {threshold}; the paper uses 0.6")
        self.threshold, self.first_epoch, self.margin, self.gamma = threshold, first_epoch, margin, gamma

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        return focal(logits - self.margin, self.gamma), focal(-logits, self.gamma)

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Turn unknown labels of high score into present ones."""
        targets, counted = super().treat_unknown(logits, targets, known, images)
        if self.training and self.epoch >= self.first_epoch:
            targets = targets.masked_fill(~known & (logits.detach().sigmoid() > self.threshold), 1)
        return targets, counted
