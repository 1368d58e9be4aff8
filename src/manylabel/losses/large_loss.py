"""Large loss: unknown labels of large loss are rejected or corrected (LL-R, LL-Ct and LL-Cp).

Kim et al., "Large Loss Matters in Weakly Supervised Multi-Label Classification" (CVPR 2022, arXiv:2206.03740). The rate
is the second of the five values the authors try. Deviation: the mean of LL-R is over the labels that are left; the
authors divide by the number of all labels.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from manylabel.errors import ConfigError, list_choices
from manylabel.losses.incomplete import IncompleteTagsLoss
from manylabel.losses.loss import Reduction
from manylabel.targets import Targets

Action = Literal["reject", "correct", "relabel"]


class LargeLoss(IncompleteTagsLoss):
    """Binary cross-entropy that mistrusts unknown labels of large loss, from the second epoch on.

    Args:
        action: Treatment of these labels: ``"reject"`` ignores them (LL-R), ``"correct"`` counts them as present in
            this step (LL-Ct), ``"relabel"`` from now on (LL-Cp). The last keeps a byte for each label of each image.
        rate: Fraction of all labels of a batch that is added with each epoch, Delta_rel in the paper; with
            ``"relabel"``, the fraction in every epoch.
        reduction: ``"sum"`` over images and labels, or ``"mean"`` over those that count.

    Raises:
        ConfigError: A setting is invalid; or ``"relabel"`` lacks the positions of images.

    Examples:
        >>> loss = LargeLoss(rate=0.5)
        >>> loss.start_epoch(1, 10)
        >>> loss(torch.tensor([[2.0, 4.0]]), torch.tensor([[1.0, -1.0]]))
        tensor(0.1269)
    """

    def __init__(self, action: Action = "reject", rate: float = 0.002, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        if action not in get_args(Action):
            raise ConfigError(f"action cannot be {action!r}; {list_choices(action, get_args(Action))}")
        if not 0 < rate < 1:
            raise ConfigError(f"rate must be above 0 and below 1, got {rate}; the paper uses 0.001 to 0.005")
        self.action: Action = action
        self.rate = rate

    def fit(self, targets: Targets) -> None:
        """Prepare the memory of relabelled labels."""
        super().fit(targets)
        if self.action == "relabel":
            self.memory["relabelled"] = torch.zeros(targets.shape, dtype=torch.bool)

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Reject or correct the unknown labels of the largest loss, that is, of the largest logit."""
        targets, counted = super().treat_unknown(logits, targets, known, images)
        if not self.training or self.epoch == 0:
            return targets, counted
        if self.action == "relabel":
            remembered = self.recall("relabelled", images).to(known.device)
            known, targets = known | remembered, targets.masked_fill(remembered, 1)
        fraction = self.rate if self.action == "relabel" else self.rate * self.epoch
        number = min(math.ceil(fraction * logits.numel()), int((~known).sum()))
        candidates = logits.detach().masked_fill(known, -torch.inf).flatten()
        chosen = torch.zeros_like(known).flatten()
        chosen[candidates.topk(number).indices] = True
        chosen = chosen.view_as(known)
        if self.action == "reject":
            return targets, ~chosen
        if self.action == "relabel" and images is not None:
            self.memory["relabelled"][images.cpu()] |= chosen.cpu()
        return targets.masked_fill(chosen, 1), counted
