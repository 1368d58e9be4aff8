"""Contract of a loss: logits and targets in, a scalar out.

A multi-label loss defines the loss of each label if it is present and if it is absent; `MultiLabelLoss` does the rest:
targets, unknown labels, weights, precision and the reduction. To add one: a class in this package, a line in `LOSSES`,
a name in `settings.LossName`.

Some losses learn from the run. The training loop calls `fit` once with the targets of the training set, `start_epoch`
before every epoch, and passes the positions of the images with every batch. What a loss remembers it keeps in `memory`,
which is saved with checkpoints. In eval mode, a loss neither corrects targets nor remembers anything.

Letters in shape comments: B images of a batch, N images of the training set, L labels.
"""

from abc import ABC, abstractmethod
from inspect import signature
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError, list_choices
from manylabel.targets import Targets

Reduction = Literal["mean", "sum"]
Unknown = Literal["ignore", "negative"]


class MultiLabelLoss(nn.Module, ABC):
    """A loss computed for every label of every image, then reduced.

    The loss is computed and returned in float32 (float64 for float64 logits), also for half-precision logits: a sum
    over a batch easily overflows float16. Targets between 0 and 1 mix the losses of present and absent labels.

    Args:
        reduction: ``"sum"`` over images and labels, or ``"mean"`` over those that count.
        unknown: Treatment of unknown labels: ``"ignore"``, or ``"negative"`` to treat them as absent.
        positive_weights: ``[L]``, weight of the loss of each label where it is present; see `positive_weights`.

    Attributes:
        memory: Tensors that training fills, by name.

    Raises:
        ConfigError: A setting is invalid.
    """

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        unknown: Unknown = "ignore",
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        if unknown not in get_args(Unknown):
            choices = list_choices(unknown, get_args(Unknown))
            raise ConfigError(f"unknown cannot be {unknown!r}; {choices}")
        self.reduction: Reduction = reduction
        self.unknown: Unknown = unknown
        self.positive_weights: Tensor | None
        self.register_buffer("positive_weights", positive_weights)
        self.memory: dict[str, Tensor] = {}
        self.epoch, self.num_epochs = 0, 1

    def fit(self, targets: Targets) -> None:
        """Learn from the targets of the training set, ``[N, L]``; called once, before training.

        Raises:
            ConfigError: The loss does not fit the targets.
        """
        if self.unknown == "ignore" and targets.positive_unlabeled:
            raise ConfigError(
                "every label of the training set is present or unknown: with unknown labels ignored, nothing absent is "
                "left to learn from; set --loss.unknown negative, or --loss entropy_maximization, which auto picks for "
                "such data"
            )

    def start_epoch(self, epoch: int, num_epochs: int) -> None:
        """Note the epoch, counted from 0, and the total number of epochs."""
        self.epoch, self.num_epochs = epoch, num_epochs

    @abstractmethod
    def label_losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each label if it is present, and if it is absent, ``[B, L]`` each."""

    def forward(
        self, logits: Tensor, targets: Tensor, known: Tensor | None = None, images: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: ``[B, L]``, before any sigmoid.
            targets: ``[B, L]``, 1 where a label is present, 0 where it is absent, -1 where it is unknown.
            known: ``[B, L]``, true where the target is known (default: where it is not negative).
            images: ``[B]``, positions of the images in the training set, for losses that remember images.

        Returns:
            One number; 0, with a gradient of 0, if nothing counts.

        Raises:
            ConfigError: The shapes do not fit.
        """
        check_shapes(logits, targets, known, self.positive_weights)
        logits = full_precision(logits)
        targets, known = split_unknown(logits, targets, known)
        targets, counted = self.treat_unknown(logits, targets, known, images)
        return self.reduce(self.values(logits, targets, known), counted)

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the targets to train with, and the mask of labels that count, ``[B, L]`` each.

        Args:
            logits: ``[B, L]``.
            targets: ``[B, L]``, 0 where unknown.
            known: ``[B, L]``, true where the target is known.
            images: ``[B]``, positions of the images in the training set, if given.
        """
        del logits, images
        return targets, known if self.unknown == "ignore" else torch.ones_like(known)

    def values(self, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Return the loss of each label, ``[B, L]``, with the targets that `treat_unknown` returned."""
        del known
        if_present, if_absent = self.label_losses(logits)
        if self.positive_weights is not None:
            if_present = if_present * self.positive_weights.to(logits.dtype)
        return targets * if_present + (1 - targets) * if_absent

    def reduce(self, values: Tensor, counted: Tensor) -> Tensor:
        """Reduce losses ``[B, L]`` to one number."""
        return reduce(values, counted, self.reduction)

    def extra_repr(self) -> str:
        """Return the settings."""
        names = [name for name in signature(type(self)).parameters if name != "positive_weights"]
        settings = [f"{name}={getattr(self, name)!r}" for name in names]
        weighted = [] if self.positive_weights is None else [f"positive_weights=[{len(self.positive_weights)}]"]
        return ", ".join(settings + weighted)


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


def split_unknown(logits: Tensor, targets: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return targets in the precision of the logits, 0 where unknown, and the mask of known labels.

    Examples:
        >>> split_unknown(torch.zeros(1, 3), torch.tensor([[1, 0, -1]]), None)
        (tensor([[1., 0., 0.]]), tensor([[ True,  True, False]]))
    """
    targets = targets.to(logits.dtype)
    known = targets >= 0 if known is None else known.bool()
    return targets.masked_fill(~known, 0), known


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


def check_gamma(**gammas: float) -> None:
    """Raise if a focusing exponent is negative.

    Examples:
        >>> check_gamma(gamma=-1)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: gamma must be 0 or more, got -1
    """
    for name, gamma in gammas.items():
        if not gamma >= 0:
            raise ConfigError(f"{name} must be 0 or more, got {gamma}")
