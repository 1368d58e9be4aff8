"""How the learning rate rises and falls: from the share of training that is done to a share of the maximum."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

__all__ = ["Schedule", "constant", "cosine", "make_schedule", "one_cycle"]

Schedule: TypeAlias = Literal["one_cycle", "cosine", "constant"]

FIRST, LAST = 1 / 25, 1 / 25e4  # where a one-cycle schedule starts and ends, as in torch's


def one_cycle(done: float, *, warmup: float) -> float:
    """Return the share of the maximum: from 1/25 up to 1 and down to 1/250,000, along half cosines.

    Smith and Topin, "Super-Convergence" (https://arxiv.org/abs/1708.07120), as torch's `OneCycleLR`; the momentum stays
    what it is set to.

    Args:
        done: The share of training that is done.
        warmup: The share of training in which it rises.

    Examples:
        >>> [round(one_cycle(done, warmup=0.2), 3) for done in (0, 0.1, 0.2, 0.6, 1)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if done < warmup:
        return _between(FIRST, 1.0, done / warmup)
    return _between(1.0, LAST, (done - warmup) / (1 - warmup))


def cosine(done: float, *, warmup: float) -> float:
    """Return the share of the maximum: from 0 up to 1 along a line, then down to 0 along half a cosine.

    Args:
        done: The share of training that is done.
        warmup: The share of training in which it rises.

    Examples:
        >>> [round(cosine(done, warmup=0.2), 3) for done in (0, 0.1, 0.2, 0.6, 1)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return done / warmup if done < warmup else _between(1.0, 0.0, (done - warmup) / (1 - warmup))


def constant(done: float, *, warmup: float) -> float:
    """Return the share of the maximum: from 0 up to 1 along a line, then 1.

    Args:
        done: The share of training that is done.
        warmup: The share of training in which it rises.

    Examples:
        >>> constant(0.1, warmup=0.2), constant(0.7, warmup=0.2), constant(0.0, warmup=0.0)
        (0.5, 1.0, 1.0)
    """
    return done / warmup if done < warmup else 1.0


SCHEDULES: dict[Schedule, Callable[..., float]] = {"constant": constant, "cosine": cosine, "one_cycle": one_cycle}


def make_schedule(optimizer: Optimizer, *, schedule: Schedule, warmup: float, total_steps: int) -> LambdaLR:
    """Return a scheduler to be stepped after each optimizer step; the learning rates there are the maxima.

    Args:
        optimizer: What to schedule.
        schedule: ``"one_cycle"``, ``"cosine"`` or ``"constant"``.
        warmup: The share of training in which the rates rise.
        total_steps: Optimizer steps of the whole training.

    Examples:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        >>> scheduler = make_schedule(optimizer, schedule="one_cycle", warmup=0.2, total_steps=11)
        >>> round(scheduler.get_last_lr()[0], 6)
        0.02
    """
    return LambdaLR(optimizer, partial(_at_step, SCHEDULES[schedule], warmup, max(total_steps - 1, 1)))


def _at_step(shape: Callable[..., float], warmup: float, last_step: int, step: int) -> float:
    return shape(min(step / last_step, 1.0), warmup=warmup)


def _between(start: float, end: float, share: float) -> float:
    """Go from `start` to `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
