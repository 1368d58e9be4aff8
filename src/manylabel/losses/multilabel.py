"""What the losses for many labels have in common: targets, unknown labels, weights, precision and the sum.

Such a loss says what each label costs if it is present and if it is absent; the rest is done here, once.

Letters in shape comments: B pictures, L labels.
"""

from abc import ABC, abstractmethod
from inspect import signature

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.losses.reduction import Reduction, check_reduction, reduce
from manylabel.losses.unknown import Unknown, check_unknown, resolve_unknown

__all__ = ["MultiLabelLoss", "check_shapes", "full_precision"]


class MultiLabelLoss(nn.Module, ABC):
    """A loss in which every label of every picture has a cost of its own.

    Costs are computed in float32 (in float64 for logits in float64), whatever the logits come in, and the result is in
    that precision too: a sum over a batch is soon more than float16 can hold. Targets between 0 and 1 mix both costs.

    Args:
        reduction: ``"sum"`` over pictures and labels, or ``"mean"`` over those that count.
        unknown: What to do with unknown labels: see `manylabel.losses.unknown`.
        num_likely: How many unknown labels of a picture ``unknown="selective"`` leaves out.
        positive_weights: ``[L]``, what the cost of a present label is multiplied by; see `positive_weights`.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(
        self, *, reduction: Reduction, unknown: Unknown, num_likely: int, positive_weights: Tensor | None
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        check_unknown(unknown, num_likely)
        self.reduction: Reduction = reduction
        self.unknown: Unknown = unknown
        self.num_likely = num_likely
        self.positive_weights: Tensor | None
        self.register_buffer("positive_weights", positive_weights)

    @abstractmethod
    def costs(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each label costs if it is present, and if it is absent, ``[B, L]`` each."""

    def forward(self, logits: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: ``[B, L]``, before any sigmoid.
            targets: ``[B, L]``, 1 where a label is present, else 0.
            known: ``[B, L]``, true where the target is known; everything is when left out.

        Returns:
            One number; 0, with a gradient of 0, if nothing counts.

        Raises:
            ConfigError: The shapes do not fit.
        """
        check_shapes(logits, targets, known, self.positive_weights)
        logits = full_precision(logits)
        targets, counted = resolve_unknown(logits, targets, known, unknown=self.unknown, num_likely=self.num_likely)
        if_present, if_absent = self.costs(logits)
        if self.positive_weights is not None:
            if_present = if_present * self.positive_weights.to(logits.dtype)
        return self.reduce(targets * if_present + (1 - targets) * if_absent, counted)

    def reduce(self, values: Tensor, counted: Tensor) -> Tensor:
        """Turn costs ``[B, L]`` into one number."""
        return reduce(values, counted, self.reduction)

    def extra_repr(self) -> str:
        """Say how the loss is set."""
        names = [name for name in signature(type(self)).parameters if name != "positive_weights"]
        settings = [f"{name}={getattr(self, name)!r}" for name in names]
        weighted = [] if self.positive_weights is None else [f"positive_weights=[{len(self.positive_weights)}]"]
        return ", ".join(settings + weighted)


def full_precision(logits: Tensor) -> Tensor:
    """Return logits in float32, or float64 if they are in it already.

    Examples:
        >>> full_precision(torch.zeros(1, dtype=torch.float16)).dtype
        torch.float32
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def check_shapes(logits: Tensor, targets: Tensor, known: Tensor | None, weights: Tensor | None) -> None:
    """Refuse tensors that would be broadcast to nonsense.

    Raises:
        ConfigError: The logits are not ``[B, L]``, or something else does not fit them.

    Examples:
        >>> check_shapes(torch.zeros(2, 3), torch.zeros(2), None, None)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: targets must have the shape of the logits, [2, 3], got [2]
    """
    if logits.ndim != 2:
        raise ConfigError(f"logits must be [pictures, labels], got {list(logits.shape)}")
    for what, tensor in (("targets", targets), ("known", known)):
        if tensor is not None and tensor.shape != logits.shape:
            raise ConfigError(
                f"{what} must have the shape of the logits, {list(logits.shape)}, got {list(tensor.shape)}"
            )
    if weights is not None and weights.shape != logits.shape[1:]:
        raise ConfigError(
            f"positive_weights must hold one number for each of {logits.shape[1]} labels, got {list(weights.shape)}"
        )
