"""Two-way loss: present labels are compared with absent ones, within images and within labels.

Kobayashi, "Two-way Multi-Label Loss" (CVPR 2023). Values are the paper's. Deviation: labels that do not count are
left out exactly, where the authors' code subtracts 100 from their logits.
"""

import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.loss import (
    MultiLabelLoss,
    Reduction,
    Unknown,
    check_shapes,
    full_precision,
    reduce,
    split_unknown,
)

LOWEST = -1e30  # in place of minus infinity, whose logsumexp has no gradient


class TwoWayLoss(MultiLabelLoss):
    """Two-way loss: the present labels of an image against its absent ones, and the images of a label likewise.

    Each comparison costs ``softplus(Tn * logsumexp(x / Tn) + Tp * logsumexp(-x / Tp))``, with the first sum over logits
    of absent labels, the second over those of present ones. An image or a label without positives does not count.
    Comparisons between images depend on the batch: use large ones.

    Args:
        positive_temperature: Temperature of present labels, Tp in the paper.
        negative_temperature: Temperature of absent labels, Tn in the paper.
        reduction: ``"mean"``, over images plus over labels, or ``"sum"`` of both.
        unknown: As for `MultiLabelLoss`.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> loss = TwoWayLoss()
        >>> loss(torch.tensor([[2.0, -1.0], [0.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor(0.1211)
    """

    def __init__(
        self,
        positive_temperature: float = 4.0,
        negative_temperature: float = 1.0,
        *,
        reduction: Reduction = "mean",
        unknown: Unknown = "ignore",
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown)
        for name, value in (("positive", positive_temperature), ("negative", negative_temperature)):
            if not value > 0:
                raise ConfigError(f"{name}_temperature must be above 0, got {value}; the paper uses 4 and 1")
        self.positive_temperature, self.negative_temperature = positive_temperature, negative_temperature

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scaled logits that the comparisons of a present and of an absent label sum up."""
        return -logits / self.positive_temperature, logits / self.negative_temperature

    def forward(
        self, logits: Tensor, targets: Tensor, known: Tensor | None = None, images: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch; arguments as for `MultiLabelLoss`."""
        check_shapes(logits, targets, known, None)
        logits = full_precision(logits)
        targets, known = split_unknown(logits, targets, known)
        targets, counted = self.treat_unknown(logits, targets, known, images)
        is_present, is_absent = counted & (targets > 0), counted & (targets <= 0)
        present, absent = self.label_losses(logits)
        present, absent = present.masked_fill(~is_present, LOWEST), absent.masked_fill(~is_absent, LOWEST)
        total = logits.new_zeros(())
        for dim in (0, 1):  # of each label, over images; of each image, over labels
            hard_present = self.positive_temperature * present.logsumexp(dim)
            hard_absent = self.negative_temperature * absent.logsumexp(dim)
            total = total + reduce(F.softplus(hard_present + hard_absent), is_present.any(dim), self.reduction)
        return total
