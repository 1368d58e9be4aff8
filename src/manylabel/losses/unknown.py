"""What a loss does with labels that nobody looked for: leave them out, take them for absent, or a bit of both.

The selective way follows Ben-Baruch and others, "Multi-label Classification with Partial Annotations using Class-aware
Selective Loss" (CVPR 2022, arXiv:2110.10955): most unknown labels are absent, but the likeliest of them may well be
present, so these are left out and the rest is taken for absent. Likelihood is the model's own, at this step. Two
deviations: the likeliest `num_likely` are chosen for each picture, not over the batch, so that the loss of a picture
does not depend on its neighbours or on the number of processes; and the paper's second rule, to leave out labels that
are frequent everywhere, is not used, as it needs frequencies that another model, trained before, has estimated.

Letters in shape comments: B pictures, L labels.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from manylabel.errors import ConfigError, list_choices

__all__ = ["Unknown", "check_unknown", "resolve_unknown"]

Unknown = Literal["ignore", "negative", "selective"]


def check_unknown(unknown: str, num_likely: int) -> None:
    """Refuse a wrong way to treat unknown labels.

    Args:
        unknown: The way.
        num_likely: How many unknown labels of a picture the selective way leaves out.

    Raises:
        ConfigError: There is no such way, or the number is not positive.

    Examples:
        >>> check_unknown("positive", 5)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: unknown='positive' is not a way to treat unknown labels; there is: ...
    """
    if unknown not in get_args(Unknown):
        choices = list_choices(unknown, get_args(Unknown))
        raise ConfigError(f"unknown={unknown!r} is not a way to treat unknown labels; {choices}")
    if num_likely < 1:
        raise ConfigError(f"num_likely must be at least 1, got {num_likely}; unknown='negative' leaves none out")


def resolve_unknown(
    logits: Tensor, targets: Tensor, known: Tensor | None, *, unknown: Unknown, num_likely: int
) -> tuple[Tensor, Tensor]:
    """Decide which labels of which pictures count.

    Args:
        logits: ``[B, L]``; only their order within a picture matters, and no gradient comes of it.
        targets: ``[B, L]``, 1 where a label is present, else 0; what stands where it is not known is not looked at.
        known: ``[B, L]``, true where the target is known; everything is when left out.
        unknown: ``"ignore"`` leaves unknown labels out, ``"negative"`` takes them for absent, ``"selective"`` leaves
            the likeliest out and takes the others for absent.
        num_likely: How many unknown labels of each picture ``"selective"`` leaves out, all if there are fewer.

    Returns:
        Targets with 0 where nothing is known, in the precision of the logits, and a mask of what counts.

    Examples:
        >>> logits, targets = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> known = torch.tensor([[True, False, False]])
        >>> resolve_unknown(logits, targets, known, unknown="selective", num_likely=1)[1]
        tensor([[ True,  True, False]])
    """
    targets = targets.to(logits.dtype)
    everything = torch.ones_like(logits, dtype=torch.bool)
    if known is None:
        return targets, everything
    known = known.bool()
    targets = targets.masked_fill(~known, 0)
    if unknown == "ignore":
        return targets, known
    if unknown == "negative":
        return targets, everything
    candidates = logits.detach().masked_fill(known, -torch.inf)
    likeliest = candidates.topk(min(num_likely, logits.shape[1]), dim=1).indices
    return targets, known | everything.scatter(1, likeliest, False)
