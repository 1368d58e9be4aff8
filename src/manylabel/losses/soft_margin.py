"""The soft margin loss for many labels, as in `torch.nn.MultiLabelSoftMarginLoss`, with unknown labels."""

import torch.nn.functional as F
from torch import Tensor

from manylabel.losses.multilabel import MultiLabelLoss
from manylabel.losses.reduction import Reduction, reduce
from manylabel.losses.unknown import Unknown

__all__ = ["MultiLabelSoftMargin"]


class MultiLabelSoftMargin(MultiLabelLoss):
    """Binary cross-entropy averaged over each picture's labels first: every picture weighs the same.

    When everything is known, ``"mean"`` is the same number as that of `BinaryCrossEntropy`. When not, a picture with
    one known label weighs here as much as one with all labels known.

    Args:
        reduction: ``"sum"`` or ``"mean"`` over the pictures that count, of the mean over a picture's labels that count.
        unknown: What to do with unknown labels: see `manylabel.losses.unknown`.
        num_likely: How many unknown labels of a picture ``unknown="selective"`` leaves out.
        positive_weights: ``[L]``, what the cost of a present label is multiplied by; see `positive_weights`.

    Raises:
        ConfigError: A setting is wrong.

    Examples:
        >>> import torch
        >>> loss = MultiLabelSoftMargin(reduction="sum")
        >>> logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
        >>> loss(logits, targets), torch.nn.MultiLabelSoftMarginLoss(reduction="sum")(logits, targets)
        (tensor(1.4100), tensor(1.4100))
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

    def reduce(self, values: Tensor, counted: Tensor) -> Tensor:
        """Average over each picture's labels, then turn the pictures into one number."""
        pictures = values.masked_fill(~counted, 0).sum(dim=1) / counted.sum(dim=1).clamp(min=1)  # [B]
        return reduce(pictures, counted.any(dim=1), self.reduction)
