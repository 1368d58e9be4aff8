"""Losses for incomplete tags, where a label that is not listed may still be present.

Such labels are unknown labels: ``tags=incomplete`` in a data spec makes every absent label one. Here they are mostly
treated as absent, since most of them are, and each method guards against the rest in its own way:

- Hill and SPLC: Zhang et al., "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels"
  (arXiv:2112.07368). SPLC follows the paper's equation; the authors' code leaves the margin out for corrected labels.
- Large loss: Kim et al., "Large Loss Matters in Weakly Supervised Multi-Label Classification" (CVPR 2022,
  arXiv:2206.03740). The rate is the second of the five values the authors try. Deviation: the mean of LL-R is over
  the labels that are left; the authors divide by the number of all labels.
- Entropy maximization: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels"
  (ECCV 2022, arXiv:2203.16219). `alpha` is that for COCO and NUS-WIDE, `beta` that for NUS-WIDE. Pseudo-labels come
  from the scores seen in the last epoch, where the authors pass over the training set once more.
- Class-aware selective: Ben-Baruch et al., "Multi-label Classification with Partial Annotations using Class-aware
  Selective Loss" (CVPR 2022, arXiv:2110.10955). Two deviations: the likeliest labels are chosen for each image, where
  the authors' code chooses as many over the batch; the prior of a label is its mean score in the last epoch, not that
  of another model, trained before.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from manylabel.errors import ConfigError, list_choices
from manylabel.losses.binary import BinaryCrossEntropy, focal
from manylabel.losses.loss import MultiLabelLoss, Reduction, Unknown, check_gamma
from manylabel.targets import Targets

Action = Literal["reject", "correct", "relabel"]

_SORTED_AT_ONCE = 2**24  # scores; their order takes 8 bytes each


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


class _UnobservedLabels(BinaryCrossEntropy):
    """Cross-entropy that treats unknown labels in its own way; there must be some."""

    def fit(self, targets: Targets) -> None:
        """Check that there are unknown labels."""
        if (targets.known == len(targets)).all():
            raise ConfigError(
                f"{type(self).__name__} is for incomplete tags, but no label of the training set is unknown; if absent "
                "tags may be present, add tags=incomplete to DATA, else use another loss"
            )

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Treat unknown labels as absent."""
        del logits, images
        return targets, torch.ones_like(known)


class SelfPacedCorrection(_UnobservedLabels):
    """Self-paced loss correction (SPLC): an unknown label counts as present once its score exceeds a threshold.

    The loss is the focal loss, with a margin for present labels as in `Hill`.

    Args:
        threshold: Score above which an unknown label counts as present, tau in the paper.
        first_epoch: First epoch with corrections, counted from 0.
        margin: Margin of present labels.
        gamma: Focus on hard labels.
        reduction: ``"sum"`` over images and labels, as the authors do, or ``"mean"``.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> loss = SelfPacedCorrection(first_epoch=0)
        >>> loss(torch.tensor([[2.0, 4.0]]), torch.tensor([[1.0, -1.0]]))
        tensor(0.0228)
    """

    def __init__(
        self,
        threshold: float = 0.6,
        first_epoch: int = 1,
        margin: float = 1.0,
        gamma: float = 2.0,
        *,
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__(reduction=reduction)
        check_gamma(gamma=gamma)
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold must be above 0 and below 1, got {threshold}; the paper uses 0.6")
        self.threshold, self.first_epoch, self.margin, self.gamma = threshold, first_epoch, margin, gamma

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        return focal(logits - self.margin, self.gamma), focal(-logits, self.gamma)

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Turn unknown labels of high score into present ones."""
        targets, counted = super().treat_unknown(logits, targets, known, images)
        if self.training and self.epoch >= self.first_epoch:
            targets = targets.masked_fill(~known & (logits.detach().sigmoid() > self.threshold), 1)
        return targets, counted


class LargeLoss(_UnobservedLabels):
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
            remembered = _recall(self, "relabelled", images).to(known.device)
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


class EntropyMaximization(_UnobservedLabels):
    """Binary cross-entropy of known labels; the scores of unknown ones are kept uncertain (EM).

    An unknown label costs ``-alpha`` times the entropy of its score. With asymmetric pseudo-labels (APL), after a
    fraction `warmup` of all epochs, each epoch turns the unknown labels of lowest score into pseudo-labels, with that
    score as target, until a fraction `negatives` of each label's images has one. They keep four bytes for each label of
    each image.

    Args:
        alpha: Weight of the entropy.
        beta: Weight of the cross-entropy of pseudo-labels.
        negatives: Fraction of unknown labels with pseudo-labels in the end, theta in the paper; 0 for EM alone.
        warmup: Fraction of epochs without pseudo-labels.
        reduction: ``"sum"`` over images and labels, or ``"mean"``, as the authors do.

    Raises:
        ConfigError: A setting is invalid; or pseudo-labels lack the positions of images.

    Examples:
        >>> EntropyMaximization(negatives=0)(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, -1.0]]))
        tensor(0.0288)
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 0.2,
        *,
        negatives: float = 0.9,
        warmup: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        for name, value in (("negatives", negatives), ("warmup", warmup)):
            if not 0 <= value < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1, got {value}")
        self.alpha, self.beta, self.negatives, self.warmup = alpha, beta, negatives, warmup
        self._pseudo: Tensor | None = None  # of this batch, [B, L]; below 0 where there is none

    def fit(self, targets: Targets) -> None:
        """Prepare the memory of scores and pseudo-labels; both are -1 where there is none."""
        super().fit(targets)
        if self.negatives:
            self.memory["scores"] = torch.full(targets.shape, -1, dtype=torch.float16)
            self.memory["pseudo"] = torch.full(targets.shape, -1, dtype=torch.float16)
            self.memory["num_unknown"] = torch.from_numpy(len(targets) - targets.known)

    def start_epoch(self, epoch: int, num_epochs: int) -> None:
        """Turn the unknown labels of lowest score into pseudo-labels."""
        super().start_epoch(epoch, num_epochs)
        first = math.ceil(self.warmup * num_epochs)
        if not self.memory or epoch < max(first, 1):
            return
        scores, pseudo = self.memory["scores"], self.memory["pseudo"]
        numbers = (self.negatives * self.memory["num_unknown"] / (num_epochs - first)).long()  # [L]
        ranks = torch.arange(len(scores))[:, None]
        for some in torch.split(torch.arange(len(numbers)), max(1, _SORTED_AT_ONCE // len(scores))):
            waiting = scores[:, some].masked_fill(pseudo[:, some] >= 0, -1)
            lowest = waiting.masked_fill(waiting < 0, torch.inf).argsort(dim=0, stable=True)  # [N, l]
            is_low = torch.zeros_like(waiting, dtype=torch.bool).scatter_(0, lowest, ranks < numbers[some])
            pseudo[:, some] = torch.where(is_low & (waiting >= 0), waiting, pseudo[:, some])

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Remember the scores of unknown labels, and look up their pseudo-labels."""
        self._pseudo = None
        if self.training and self.negatives:
            self._pseudo = _recall(self, "pseudo", images).to(logits)
            scores = logits.detach().sigmoid().masked_fill(known, -1)
            self.memory["scores"][[] if images is None else images.cpu()] = scores.cpu().half()
        return super().treat_unknown(logits, targets, known, images)

    def values(self, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Return the loss of each label."""
        if_present, if_absent = self.label_losses(logits)
        scores = logits.sigmoid()
        entropy = scores * if_present + (1 - scores) * if_absent
        unknown = -self.alpha * entropy
        if self._pseudo is not None:
            mixed = self._pseudo * if_present + (1 - self._pseudo) * if_absent
            unknown = torch.where(self._pseudo >= 0, self.beta * mixed, unknown)
        return torch.where(known, targets * if_present + (1 - targets) * if_absent, unknown)


class ClassAwareSelective(_UnobservedLabels):
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


def _recall(loss: MultiLabelLoss, name: str, images: Tensor | None) -> Tensor:
    """Return what a loss remembers of the images of a batch, ``[B, L]``."""
    if images is None or name not in loss.memory:
        raise ConfigError(
            f"{type(loss).__name__} remembers images; call fit(targets) before training, and pass the positions of the "
            "images of a batch as images="
        )
    return loss.memory[name][images.cpu()]
