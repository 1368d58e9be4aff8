"""Losses: logits and targets in, a scalar out. To add one: a class, a line in `LOSSES`, a name in `settings.LossName`.

A multi-label loss defines the loss of each label if it is present and if it is absent; `MultiLabelLoss` does the rest:
targets, unknown labels, weights, precision and the reduction.

Unknown labels, which were not annotated, are ignored, treated as absent (``"negative"``), or both (``"selective"``).
The selective mode follows Ben-Baruch et al., "Multi-label Classification with Partial Annotations using Class-aware
Selective Loss" (CVPR 2022, arXiv:2110.10955): most unknown labels are absent, but the likeliest of them may well be
present, so these are ignored and the rest is treated as absent. Likelihood is the model's own, at this step. Two
deviations: the likeliest `num_likely` are chosen for each image, not over the batch: the loss of an image must
not depend on its neighbours or on the number of processes; and the paper's second rule, to ignore labels that are
frequent everywhere, is not used, as it needs frequencies estimated by another model, trained before.

Lin et al., "Focal Loss for Dense Object Detection" (ICCV 2017, arXiv:1708.02002). Without its weight alpha:
`positive_weights` does that, for each label.

Ridnik et al., "Asymmetric Loss For Multi-Label Classification" (ICCV 2021, arXiv:2009.14119). Values are the
paper's. Deviations: they are computed from `logsigmoid` in float32, which neither overflows nor underflows and needs no
epsilon; gradients stop at the focusing weight by `detach`, which has no effect inside `no_grad`.

Letters in shape comments: B images, L labels.
"""

from abc import ABC, abstractmethod
from inspect import signature
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError, list_choices
from manylabel.plugins import Registry
from manylabel.targets import Targets

Reduction = Literal["mean", "sum"]
Unknown = Literal["ignore", "negative", "selective"]


LEAST = 1e-12  # a root of exactly 0 has an infinite slope; the difference is below float32 precision


class MultiLabelLoss(nn.Module, ABC):
    """A loss computed for every label of every image, then reduced.

    The loss is computed and returned in float32 (float64 for float64 logits), also for half-precision logits: a sum
    over a batch easily overflows float16. Targets between 0 and 1 mix the losses of present and absent labels.

    Args:
        reduction: ``"sum"`` over images and labels, or ``"mean"`` over those that count.
        unknown: Treatment of unknown labels: ``"ignore"``, ``"negative"`` or ``"selective"``.
        num_likely: Number of unknown labels of an image that ``unknown="selective"`` ignores.
        positive_weights: ``[L]``, weight of the loss of each label where it is present; see `positive_weights`.

    Raises:
        ConfigError: A setting is invalid.
    """

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        unknown: Unknown = "ignore",
        num_likely: int = 5,
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        if unknown not in get_args(Unknown):
            choices = list_choices(unknown, get_args(Unknown))
            raise ConfigError(f"unknown cannot be {unknown!r}; {choices}")
        if num_likely < 1:
            raise ConfigError(f"num_likely must be at least 1, got {num_likely}; unknown='negative' ignores no label")
        self.reduction: Reduction = reduction
        self.unknown: Unknown = unknown
        self.num_likely = num_likely
        self.positive_weights: Tensor | None
        self.register_buffer("positive_weights", positive_weights)

    @abstractmethod
    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent, ``[B, L]`` each."""

    def forward(self, logits: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: ``[B, L]``, before any sigmoid.
            targets: ``[B, L]``, 1 where a label is present, 0 where it is absent, -1 where it is unknown.
            known: ``[B, L]``, true where the target is known (default: where it is not negative).

        Returns:
            One number; 0, with a gradient of 0, if nothing counts.

        Raises:
            ConfigError: The shapes do not fit.
        """
        check_shapes(logits, targets, known, self.positive_weights)
        logits = full_precision(logits)
        targets, counted = resolve_unknown(logits, targets, known, unknown=self.unknown, num_likely=self.num_likely)
        if_present, if_absent = self.label_losses(logits)
        if self.positive_weights is not None:
            if_present = if_present * self.positive_weights.to(logits.dtype)
        return self.reduce(targets * if_present + (1 - targets) * if_absent, counted)

    def reduce(self, values: Tensor, counted: Tensor) -> Tensor:
        """Reduce losses ``[B, L]`` to one number."""
        return reduce(values, counted, self.reduction)

    def extra_repr(self) -> str:
        """Return the settings."""
        names = [name for name in signature(type(self)).parameters if name != "positive_weights"]
        settings = [f"{name}={getattr(self, name)!r}" for name in names]
        weighted = [] if self.positive_weights is None else [f"positive_weights=[{len(self.positive_weights)}]"]
        return ", ".join(settings + weighted)


class BinaryCrossEntropy(MultiLabelLoss):
    """Binary cross-entropy: ``-log p`` for a present label of score p, ``-log(1 - p)`` for an absent one.

    Arguments are those of `MultiLabelLoss`.

    Examples:
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
        num_likely: Likewise.
        positive_weights: Likewise.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
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
        num_likely: int = 5,
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, unknown=unknown, num_likely=num_likely, positive_weights=positive_weights)
        _check_gamma(gamma=gamma)
        self.gamma = gamma

    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent."""
        log_present, log_absent = F.logsigmoid(logits), F.logsigmoid(-logits)  # log p, log(1 - p)
        if_present = -(self.gamma * log_absent).exp() * log_present
        if_absent = -(self.gamma * log_present).exp() * log_absent
        return if_present, if_absent


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
        _check_gamma(gamma_negative=gamma_negative, gamma_positive=gamma_positive)
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


class CrossEntropy(nn.Module):
    """Cross-entropy: ``-log p`` of the image's label, with p the softmax over the labels.

    Images whose label is unknown do not count; there is no other treatment of unknown labels, since one known label
    rules out the rest. For an image with several labels it is the mean over them.

    Args:
        reduction: ``"sum"`` or ``"mean"`` over the images that count.
        positive_weights: ``[L]``, factor of the loss of a label; the mean is not divided by them.

    Raises:
        ConfigError: The reduction is invalid.

    Examples:
        >>> loss = CrossEntropy()
        >>> logits, targets = torch.zeros(2, 4), torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
        >>> loss(logits, targets)
        tensor(1.3863)
    """

    def __init__(self, *, reduction: Reduction = "mean", positive_weights: Tensor | None = None) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction: Reduction = reduction
        self.positive_weights: Tensor | None
        self.register_buffer("positive_weights", positive_weights)

    def forward(self, logits: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: ``[B, L]``, before any softmax.
            targets: ``[B, L]``, 1 for the image's label, 0 for the others, -1 where it is unknown.
            known: ``[B, L]``, true where the target is known (default: where it is not negative).

        Returns:
            One number; 0, with a gradient of 0, if no image counts.

        Raises:
            ConfigError: The shapes do not fit.
        """
        check_shapes(logits, targets, known, self.positive_weights)
        logits = full_precision(logits)
        targets = targets.to(logits.dtype)
        known = targets >= 0 if known is None else known.bool()
        targets = targets.masked_fill(~known, 0)
        losses = -F.log_softmax(logits, dim=1)  # [B, L]
        if self.positive_weights is not None:
            losses = losses * self.positive_weights.to(logits.dtype)
        num_labels = targets.sum(dim=1)  # [B]
        images = (targets * losses).sum(dim=1) / num_labels.clamp(min=1)
        return reduce(images, num_labels > 0, self.reduction)

    def extra_repr(self) -> str:
        """Return the settings."""
        weighted = "" if self.positive_weights is None else f", positive_weights=[{len(self.positive_weights)}]"
        return f"reduction={self.reduction!r}{weighted}"


LOSSES: Registry[type[nn.Module]] = Registry(
    "manylabel.losses",
    {
        "asymmetric": AsymmetricLoss,
        "binary_cross_entropy": BinaryCrossEntropy,
        "cross_entropy": CrossEntropy,
        "focal": FocalLoss,
        "soft_margin": MultiLabelSoftMargin,
    },
)
"""The losses by the name that the command line and run folders use, with those of installed packages."""


def resolve_unknown(
    logits: Tensor, targets: Tensor, known: Tensor | None, *, unknown: Unknown, num_likely: int
) -> tuple[Tensor, Tensor]:
    """Return the targets and the mask of labels that count.

    Args:
        logits: ``[B, L]``; only their order within an image matters, and no gradient flows through them.
        targets: ``[B, L]``, 1 where a label is present, 0 where it is absent; values of unknown labels are ignored.
        known: ``[B, L]``, true where the target is known (default: where it is not negative).
        unknown: Treatment of unknown labels.
        num_likely: Number of unknown labels of each image that ``"selective"`` ignores, all if there are fewer.

    Returns:
        Targets in the precision of the logits, 0 where unknown, and the mask of labels that count.

    Examples:
        >>> logits, targets = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> known = torch.tensor([[True, False, False]])
        >>> resolve_unknown(logits, targets, known, unknown="selective", num_likely=1)[1]
        tensor([[ True,  True, False]])
    """
    targets = targets.to(logits.dtype)
    everything = torch.ones_like(logits, dtype=torch.bool)
    known = targets >= 0 if known is None else known.bool()
    targets = targets.masked_fill(~known, 0)
    if unknown == "ignore":
        return targets, known
    if unknown == "negative":
        return targets, everything
    candidates = logits.detach().masked_fill(known, -torch.inf)
    likeliest = candidates.topk(min(num_likely, logits.shape[1]), dim=1).indices
    return targets, known | everything.scatter(1, likeliest, False)


def reduce(values: Tensor, counted: Tensor, reduction: Reduction) -> Tensor:
    """Sum or average the values that count; 0, with a gradient of 0, if none does.

    Examples:
        >>> values, counted = torch.tensor([1.0, 3.0, 9.0]), torch.tensor([True, True, False])
        >>> reduce(values, counted, "mean"), reduce(values, ~counted & counted, "mean")
        (tensor(2.), tensor(0.))
    """
    total = values.masked_fill(~counted, 0).sum()
    return total if reduction == "sum" else total / counted.sum().clamp(min=1)


def full_precision(logits: Tensor) -> Tensor:
    """Return logits in float32, or in float64 if they already are.

    Examples:
        >>> full_precision(torch.zeros(1, dtype=torch.float16)).dtype
        torch.float32
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def check_reduction(reduction: str) -> None:
    """Raise unless a reduction is ``"mean"`` or ``"sum"``.

    Examples:
        >>> check_reduction("men")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: reduction cannot be 'men'; did you mean 'mean'? Available: mean, sum
    """
    if reduction not in get_args(Reduction):
        raise ConfigError(f"reduction cannot be {reduction!r}; {list_choices(reduction, get_args(Reduction))}")


def check_shapes(logits: Tensor, targets: Tensor, known: Tensor | None, weights: Tensor | None) -> None:
    """Raise if the shapes of logits, targets, mask and weights do not match.

    Raises:
        ConfigError: The logits are not ``[B, L]``, or something else does not fit them.

    Examples:
        >>> check_shapes(torch.zeros(2, 3), torch.zeros(2), None, None)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: targets must have the shape of the logits, [2, 3], got [2]
    """
    if logits.ndim != 2:
        raise ConfigError(f"logits must be [images, labels], got {list(logits.shape)}")
    for what, tensor in (("targets", targets), ("known", known)):
        if tensor is not None and tensor.shape != logits.shape:
            raise ConfigError(
                f"{what} must have the shape of the logits, {list(logits.shape)}, got {list(tensor.shape)}"
            )
    if weights is not None and weights.shape != logits.shape[1:]:
        raise ConfigError(
            f"positive_weights must hold one number for each of {logits.shape[1]} labels, got {list(weights.shape)}"
        )


def positive_weights(targets: Targets, *, maximum: float = 100.0) -> Tensor:
    """Return the ratio of absent to present images of each label.

    As the `positive_weights` of a loss, they give a label's present and absent images the same total weight.

    Args:
        targets: The labels of the training images; unknown ones are not counted.
        maximum: Maximum weight, to keep a label of one image in a million from outweighing all others.

    Returns:
        ``[L]``, float32; 1 for a label that is never present or never absent.

    Raises:
        ConfigError: `maximum` is not positive.

    Examples:
        >>> positive_weights(Targets.from_lists([[0], [0], [0, 1], []], num_labels=3))
        tensor([0.3333, 3.0000, 1.0000])
    """
    if not maximum > 0:
        raise ConfigError(f"maximum must be above 0, got {maximum}")
    present = targets.positives
    absent = targets.known - present
    ratios = absent / np.maximum(present, 1)
    weights = np.where((present > 0) & (absent > 0), np.minimum(ratios, maximum), 1.0)
    return torch.from_numpy(weights.astype(np.float32))


def _check_gamma(**gammas: float) -> None:
    for name, gamma in gammas.items():
        if not gamma >= 0:
            raise ConfigError(f"{name} must be 0 or more, got {gamma}")
