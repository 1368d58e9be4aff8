"""Hill loss, for missing labels: the slope of an absent label fades for confident scores.

Zhang et al., "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels" (arXiv:2112.07368).
Values are the paper's.
"""

from torch import Tensor

from manylabel.losses.binary import focal
from manylabel.losses.loss import MultiLabelLoss, Reduction, Unknown, check_gamma


class Hill(MultiLabelLoss):
    """Hill loss: ``(scale - p) p^2`` for an absent label of score p, whose slope fades for confident scores.

    A confident score hints at a missing label. The slope is 0 at a score of 2/3 of the scale, 1 by default. A present
    label has the focal loss of ``sigmoid(logit - margin)``.

    Args:
        scale: Lambda in the paper.
        margin: Margin of present labels.
        gamma: Focus on hard present labels.
        reduction: ``"sum"`` over images and labels, as the authors do, or ``"mean"`` over those that count.
        unknown: As for `MultiLabelLoss`, but ``"negative"`` by default.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> Hill()(torch.tensor([[2.0, -4.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.0231)
    """

    def __init__(
        self,
        scale: float = 1.5,
        margin: float = 1.0,
        gamma: float = 2.0,
        *,
        reduction: Reduction = "sum",
        unknown: Unknown = "negative",
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown)
        check_gamma(gamma=gamma)
        self.scale, self.margin, self.gamma = scale, margin, gamma

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        scores = logits.sigmoid()
        return focal(logits - self.margin, self.gamma), (self.scale - scores) * scores**2
