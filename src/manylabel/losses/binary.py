"""Losses of each label on its own: binary cross-entropy and its focused forms.

Lin et al., "Focal Loss for Dense Object Detection" (ICCV 2017, arXiv:1708.02002). Without its weight alpha:
`positive_weights` does that, for each label.

Ridnik et al., "Asymmetric Loss For Multi-Label Classification" (ICCV 2021, arXiv:2009.14119). Values are the
paper's. Deviations: they are computed from `logsigmoid` in float32, which neither overflows nor underflows and needs no
epsilon; gradients stop at the focusing weight by `detach`, which has no effect inside `no_grad`.
"""

import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.loss import MultiLabelLoss, Reduction, Unknown, check_gamma, reduce

LEAST = 1e-12  # a root of exactly 0 has an infinite slope; the difference is below float32 precision


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


class FocalLoss(MultiLabelLoss):
    """Focal loss ``-(1 - p)^gamma log p`` of a label, with p the score of its true state.

    Args:
        gamma: Focus on hard labels; 0 is binary cross-entropy.
        reduction: ``"sum"`` over images and labels, or ``"mean"`` over those that count.
        unknown: As for `MultiLabelLoss`.
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
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown, positive_weights=positive_weights)
        check_gamma(gamma=gamma)
        self.gamma = gamma

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        return focal(logits, self.gamma), focal(-logits, self.gamma)


class AsymmetricLoss(MultiLabelLoss):
    """Asymmetric loss (ASL), which focuses on present labels and on hard absent ones.

    With p the score, the loss of a present label is ``-(1 - p)^gamma_positive log p``, and that of an absent one
    ``-q^gamma_negative log(1 - q)`` with ``q = max(p - clip, 0)``, which is 0 below the margin. With (0, 0, 0) for the
    two gammas and the margin this is binary cross-entropy, with (g, g, 0) focal loss.

    Args:
        gamma_negative: Focus on hard absent labels.
        gamma_positive: Focus on hard present labels; at most `gamma_negative` as a rule.
        clip: The margin, m in the paper.
        detach_focus: Stop gradients at the focusing weights, as the authors do in training; values do not change.
        reduction: ``"sum"`` over images and labels, as the authors do, or ``"mean"`` over those that count.
        unknown: Treatment of unknown labels: ``"ignore"`` or ``"negative"``.
        positive_weights: ``[L]``, weight of the loss of each label where it is present.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> loss = AsymmetricLoss(gamma_negative=4, gamma_positive=0, clip=0.05)
        >>> logits, targets = torch.tensor([[2.0, -4.0]]), torch.tensor([[1.0, 0.0]])
        >>> loss(logits, targets)
        tensor(0.1269)
    """

    def __init__(
        self,
        gamma_negative: float = 4.0,
        gamma_positive: float = 0.0,
        clip: float = 0.05,
        *,
        detach_focus: bool = True,
        reduction: Reduction = "sum",
        unknown: Unknown = "ignore",
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown, positive_weights=positive_weights)
        check_gamma(gamma_negative=gamma_negative, gamma_positive=gamma_positive)
        if not 0 <= clip < 1:
            raise ConfigError(f"clip must be at least 0 and below 1, got {clip}; the paper uses 0.05")
        self.gamma_negative, self.gamma_positive = gamma_negative, gamma_positive
        self.clip, self.detach_focus = clip, detach_focus

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        log_present, log_absent = F.logsigmoid(logits), F.logsigmoid(-logits)  # log p, log(1 - p)
        focus_present = self._focus((self.gamma_positive * log_absent).exp())
        if not self.clip:
            focus_absent = self._focus((self.gamma_negative * log_present).exp())
            return -focus_present * log_present, -focus_absent * log_absent
        shifted = (logits.sigmoid() - self.clip).clamp(min=LEAST)  # q
        rest = ((-logits).sigmoid() + self.clip).clamp(max=1)  # 1 - q, without cancellation
        return -focus_present * log_present, -self._focus(shifted**self.gamma_negative) * rest.log()

    def _focus(self, weight: Tensor) -> Tensor:
        return weight.detach() if self.detach_focus else weight


def focal(logits: Tensor, gamma: float) -> Tensor:
    """Return ``-(1 - p)^gamma log p``, with p the score of the true state, given its logit.

    Examples:
        >>> import torch
        >>> focal(torch.zeros(1), gamma=2.0)
        tensor([0.1733])
    """
    return -(gamma * F.logsigmoid(-logits)).exp() * F.logsigmoid(logits)
