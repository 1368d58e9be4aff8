"""Binary cross-entropy: every label a yes-or-no question of its own."""

import torch.nn.functional as F
from torch import Tensor

from manylabel.losses.multilabel import MultiLabelLoss
from manylabel.losses.reduction import Reduction
from manylabel.losses.unknown import Unknown

__all__ = ["BinaryCrossEntropy"]


class BinaryCrossEntropy(MultiLabelLoss):
    """With p the score, a present label costs ``-log p`` and an absent one ``-log(1 - p)``.

    Args:
        reduction: ``"sum"`` over pictures and labels, or ``"mean"`` over those that count.
        unknown: What to do with unknown labels: see `manylabel.losses.unknown`.
        num_likely: How many unknown labels of a picture ``unknown="selective"`` leaves out.
        positive_weights: ``[L]``, what the cost of a present label is multiplied by; see `positive_weights`.

    Raises:
        ConfigError: A setting is wrong.

    Examples:
        >>> import torch
        >>> loss = BinaryCrossEntropy()
        >>> logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
        >>> loss(logits, targets), loss(logits, targets, known=torch.tensor([[True, False]]))
        (tensor(1.4100), tensor(0.6931))
    """

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        unknown: Unknown = "ignore",
        num_likely: int = 5,
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown, num_likely=num_likely, positive_weights=positive_weights)

    def costs(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each label costs if it is present, and if it is absent."""
        return -F.logsigmoid(logits), -F.logsigmoid(-logits)
