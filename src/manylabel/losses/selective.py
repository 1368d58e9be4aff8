"""Class-aware selective loss (CSL): unknown labels are ignored where they are likely or frequent.

Ben-Baruch et al., "Multi-label Classification with Partial Annotations using Class-aware Selective Loss" (CVPR 2022,
arXiv:2110.10955). Two deviations: the likeliest labels are chosen for each image, where the authors' code chooses as
many over the batch; the prior of a label is its mean score in the last epoch, not that of another model, trained
before.
"""

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.incomplete import IncompleteTagsLoss
from manylabel.losses.loss import Reduction, check_gamma


class ClassAwareSelective(IncompleteTagsLoss):
    """Class-aware selective loss (CSL): unknown labels count as absent, except those that are likely or frequent.

    Ignored are the `num_likely` unknown labels of each image with the highest scores, and every unknown label whose
    mean score in the last epoch exceeds `prior_threshold`. Focal loss with an exponent for present, for absent and for
    unknown labels; gradients stop at the focusing weights.

    Args:
        gamma_positive: Focus on hard present labels.
        gamma_negative: Focus on hard labels known to be absent.
        gamma_unknown: Focus on hard unknown labels.
        num_likely: Number of unknown labels of an image to ignore; all if there are fewer.
        prior_threshold: Prior above which an unknown label is ignored.
        reduction: ``"sum"`` over images and labels, as the authors do, or ``"mean"`` over those that count.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> loss = ClassAwareSelective(num_likely=1)
        >>> loss(torch.tensor([[2.0, 4.0, -1.0]]), torch.tensor([[1.0, -1.0, -1.0]]))
        tensor(0.1286)
    """

    def __init__(
        self,
        gamma_positive: float = 0.0,
        gamma_negative: float = 1.0,
        gamma_unknown: float = 4.0,
        *,
        num_likely: int = 5,
        prior_threshold: float = 0.5,
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__(reduction=reduction)
        check_gamma(gamma_positive=gamma_positive, gamma_negative=gamma_negative, gamma_unknown=gamma_unknown)
        if num_likely < 1:
            raise ConfigError(f"num_likely must be at least 1, got {num_likely}; the paper uses 5")
        self.gamma_positive, self.gamma_negative, self.gamma_unknown = gamma_positive, gamma_negative, gamma_unknown
        self.num_likely, self.prior_threshold = num_likely, prior_threshold

    def start_epoch(self, epoch: int, num_epochs: int) -> None:
        """Compute the priors from the scores of the last epoch."""
        super().start_epoch(epoch, num_epochs)
        if "sum" in self.memory:
            self.memory["prior"] = self.memory.pop("sum") / self.memory.pop("count")

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Ignore unknown labels that are likely in this image, or frequent."""
        targets, counted = super().treat_unknown(logits, targets, known, images)
        candidates = logits.detach().masked_fill(known, -torch.inf)
        likeliest = candidates.topk(min(self.num_likely, logits.shape[1]), dim=1).indices
        counted = counted.scatter(1, likeliest, False)
        if self.training:
            total = logits.detach().sigmoid().sum(dim=0).float().cpu()
            self.memory["sum"] = self.memory.get("sum", 0) + total
            self.memory["count"] = self.memory.get("count", 0) + torch.tensor(len(logits))
        if "prior" in self.memory:
            counted = counted & (self.memory["prior"].to(logits.device) <= self.prior_threshold)
        return targets, known | counted

    def values(self, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Return the focused loss of each label."""
        if_present, if_absent = self.label_losses(logits)
        gamma_absent = torch.where(known, self.gamma_negative, self.gamma_unknown)
        focus_present = (-self.gamma_positive * if_absent).exp().detach()  # (1 - p)^gamma
        focus_absent = (-gamma_absent * if_present).exp().detach()  # p^gamma
        return targets * focus_present * if_present + (1 - targets) * focus_absent * if_absent
