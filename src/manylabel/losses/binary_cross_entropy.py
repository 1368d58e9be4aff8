"""Binary cross-entropy, over all labels or averaged over each image first.

Letters in shape comments: B images, L labels.
"""

import torch.nn.functional as F
from torch import Tensor

from manylabel.losses.multilabel import MultiLabelLoss, reduce

__all__ = ["BinaryCrossEntropy", "MultiLabelSoftMargin"]


class BinaryCrossEntropy(MultiLabelLoss):
    """Binary cross-entropy: ``-log p`` for a present label of score p, ``-log(1 - p)`` for an absent one.

    Arguments are those of `MultiLabelLoss`.

    Examples:
        >>> import torch
        >>> loss = BinaryCrossEntropy()
        >>> logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
        >>> loss(logits, targets), loss(logits, targets, known=torch.tensor([[True, False]]))
        (tensor(1.4100), tensor(0.6931))
    """

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        return -F.logsigmoid(logits), -F.logsigmoid(-logits)


class MultiLabelSoftMargin(BinaryCrossEntropy):
    """Binary cross-entropy averaged over each image's labels first, as `torch.nn.MultiLabelSoftMarginLoss` does.

    Every image weighs the same. When everything is known, ``"mean"`` is the same number as that of
    `BinaryCrossEntropy`. When not, an image with one known label weighs here as much as one with all labels known.
    Arguments are those of `MultiLabelLoss`.

    Examples:
        >>> import torch
        >>> loss = MultiLabelSoftMargin(reduction="sum")
        >>> logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
        >>> loss(logits, targets), torch.nn.MultiLabelSoftMarginLoss(reduction="sum")(logits, targets)
        (tensor(1.4100), tensor(1.4100))
    """

    def reduce(self, values: Tensor, counted: Tensor) -> Tensor:
        """Average over each image's labels, then reduce over the images."""
        images = values.masked_fill(~counted, 0).sum(dim=1) / counted.sum(dim=1).clamp(min=1)  # [B]
        return reduce(images, counted.any(dim=1), self.reduction)
