"""Asymmetric loss (ASL): focal weights and a margin that down-weight easy negatives.

Ridnik et al., "Asymmetric Loss For Multi-Label Classification" (ICCV 2021, arXiv:2009.14119). Values are the
paper's. Deviations: they are computed from `logsigmoid` in float32, which neither overflows nor underflows and needs no
epsilon; gradients stop at the focusing weight by `detach`, which has no effect inside `no_grad`.
"""

import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.multilabel import MultiLabelLoss, Reduction, Unknown

__all__ = ["AsymmetricLoss"]

LEAST = 1e-12  # a root of exactly 0 has an infinite slope; the difference is below float32 precision


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
        unknown: Treatment of unknown labels: ``"ignore"``, ``"negative"`` or ``"selective"``; see `MultiLabelLoss`.
        num_likely: Number of unknown labels of an image that ``unknown="selective"`` ignores.
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
        num_likely: int = 5,
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown, num_likely=num_likely, positive_weights=positive_weights)
        for name, gamma in (("gamma_negative", gamma_negative), ("gamma_positive", gamma_positive)):
            if not gamma >= 0:
                raise ConfigError(f"{name} must be 0 or more, got {gamma}")
        if not 0 <= clip < 1:
            raise ConfigError(f"clip must be at least 0 and below 1, got {clip}; the paper uses 0.05")
        self.gamma_negative = gamma_negative
        self.gamma_positive = gamma_positive
        self.clip = clip
        self.detach_focus = detach_focus

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
