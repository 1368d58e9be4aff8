"""Distribution-balanced loss (DB), for rare labels.

Wu et al., "Distribution-Balanced Loss for Multi-Label Classification in Long-Tailed Datasets" (ECCV 2020,
arXiv:2007.09654). Values are those of the authors' settings for COCO-MLT. As in their code, the bias of the logits is
divided by the scale of absent labels, and the focal loss is doubled. The authors combine it with class-aware sampling.
"""

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.binary import focal
from manylabel.losses.loss import MultiLabelLoss, Reduction, Unknown, check_gamma
from manylabel.targets import Targets

DOUBLED = 2.0  # balance_param of the released code


class DistributionBalancedLoss(MultiLabelLoss):
    """Distribution-balanced loss (DB): focal loss, weighted against frequent labels, tolerant of easy absent ones.

    A label i of n_i images weighs ``overall + sigmoid(slope * (r - midpoint))``, where r is 1 / n_i relative to the sum
    of 1 / n_j over the labels j of the image: the correction for having drawn the image for the sake of rarer labels.
    Logits are shifted by the label's prior log-odds times `bias`; those of absent labels are multiplied by
    `absent_scale`, and their loss is divided by it.

    Args:
        gamma: Focus on hard labels.
        overall: Least weight, alpha in the paper.
        slope: Slope of the weights, beta in the paper.
        midpoint: Midpoint of the weights, mu in the paper.
        bias: Factor of the prior log-odds, kappa in the paper.
        absent_scale: Scale of the logits of absent labels, lambda in the paper.
        reduction: ``"sum"`` over images and labels, or ``"mean"`` over those that count.
        unknown: As for `MultiLabelLoss`.

    Raises:
        ConfigError: A setting is invalid; or `fit` was not called before the first batch.

    Examples:
        >>> loss = DistributionBalancedLoss()
        >>> loss.fit(Targets.from_lists([[0], [0], [0, 1], []], num_labels=2))
        >>> loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(2.2801)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        overall: float = 0.1,
        slope: float = 10.0,
        midpoint: float = 0.2,
        bias: float = 0.05,
        absent_scale: float = 2.0,
        reduction: Reduction = "mean",
        unknown: Unknown = "ignore",
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown)
        check_gamma(gamma=gamma)
        if not absent_scale > 0:
            raise ConfigError(f"absent_scale must be above 0, got {absent_scale}; the paper uses 2")
        self.gamma, self.overall, self.slope, self.midpoint = gamma, overall, slope, midpoint
        self.bias, self.absent_scale = bias, absent_scale
        self.rarity: Tensor | None
        self.prior_logits: Tensor | None
        self.register_buffer("rarity", None)
        self.register_buffer("prior_logits", None)

    def fit(self, targets: Targets) -> None:
        """Count the images of each label."""
        super().fit(targets)
        present = torch.from_numpy(targets.positives).clamp(min=1).float()  # n_i
        self.rarity = 1 / present
        self.prior_logits = -((len(targets) - present).clamp(min=1) / present).log()

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the focal loss of each label if it is present, and if it is absent, without its weight."""
        if self.prior_logits is None:
            raise ConfigError("DistributionBalancedLoss needs the frequency of each label; call fit(targets) first")
        shifted = logits + self.prior_logits.to(logits.dtype) * self.bias / self.absent_scale
        scaled = shifted * self.absent_scale
        return DOUBLED * focal(shifted, self.gamma), DOUBLED * focal(-scaled, self.gamma) / self.absent_scale

    def values(self, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Return the weighted loss of each label."""
        losses = super().values(logits, targets, known)
        rarity = torch.ones_like(logits[0]) if self.rarity is None else self.rarity.to(logits.dtype)  # [L]
        repeats = (targets @ rarity).clamp(min=torch.finfo(logits.dtype).tiny)  # [B]
        weights = self.overall + (self.slope * (rarity / repeats[:, None] - self.midpoint)).sigmoid()
        return weights * losses
