"""Optimizers, without weight decay on biases and norms, and learning rate schedules."""

import math
from collections.abc import Callable
from functools import partial

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from manylabel.settings import LoopSettings, ScheduleName

MOMENTUM = 0.9  # of SGD

FIRST, LAST = 1 / 25, 1 / 25e4  # start and end of the one-cycle schedule, as in torch


def parameter_groups(
    model: nn.Module, *, learning_rate: float, weight_decay: float, backbone_scale: float = 1.0
) -> list[dict[str, object]]:
    """Divide trainable parameters into groups by learning rate and weight decay.

    Args:
        model: Classifier or head.
        learning_rate: Learning rate of all parameters but the backbone.
        weight_decay: Weight decay; 0 for vectors and scalars (biases, norms).
        backbone_scale: Factor of the learning rate for parameters under ``backbone.``.

    Returns:
        Non-empty parameter groups for a torch optimizer.

    Examples:
        >>> groups = parameter_groups(nn.Linear(3, 2), learning_rate=0.1, weight_decay=0.01)
        >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
        [(1, 0.01), (1, 0.0)]
    """
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name.startswith("backbone."), parameter.ndim <= 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": learning_rate * (backbone_scale if in_backbone else 1.0),
            "weight_decay": 0.0 if is_vector else weight_decay,
        }
        for (in_backbone, is_vector), parameters in groups.items()
    ]


def make_optimizer(model: nn.Module, settings: LoopSettings, *, backbone_scale: float = 1.0) -> Optimizer:
    """Build the optimizer that the settings name.

    Args:
        model: Classifier or head.
        settings: Optimizer, learning rate and weight decay.
        backbone_scale: Factor of the learning rate for the backbone.

    Examples:
        >>> make_optimizer(nn.Linear(3, 2), LoopSettings(optimizer="sgd")).defaults["momentum"]
        0.9
    """
    rate, decay = settings.peak_learning_rate, settings.weight_decay
    groups = parameter_groups(model, learning_rate=rate, weight_decay=decay, backbone_scale=backbone_scale)
    if settings.optimizer == "sgd":
        return SGD(groups, lr=rate, momentum=MOMENTUM)
    kind = Adam if settings.optimizer == "adam" else AdamW
    return kind(groups, lr=rate, betas=settings.betas)


def one_cycle(done: float, *, warmup: float) -> float:
    """Return the fraction of the peak learning rate: from 1/25 up to 1 and down to 1/250,000, along half cosines.

    Smith and Topin, "Super-Convergence" (https://arxiv.org/abs/1708.07120), as torch's `OneCycleLR`; momentum stays
    constant.

    Args:
        done: Completed fraction of training.
        warmup: Fraction of training spent on warmup.

    Examples:
        >>> [round(one_cycle(done, warmup=0.2), 3) for done in (0, 0.1, 0.2, 0.6, 1)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if done < warmup:
        return _between(FIRST, 1.0, done / warmup)
    return _between(1.0, LAST, (done - warmup) / (1 - warmup))


def cosine(done: float, *, warmup: float) -> float:
    """Return the fraction of the peak learning rate: linearly from 0 to 1, then down to 0 along half a cosine.

    Args:
        done: Completed fraction of training.
        warmup: Fraction of training spent on warmup.

    Examples:
        >>> [round(cosine(done, warmup=0.2), 3) for done in (0, 0.1, 0.2, 0.6, 1)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return done / warmup if done < warmup else _between(1.0, 0.0, (done - warmup) / (1 - warmup))


def constant(done: float, *, warmup: float) -> float:
    """Return the fraction of the peak learning rate: linearly from 0 to 1, then constant.

    Args:
        done: Completed fraction of training.
        warmup: Fraction of training spent on warmup.

    Examples:
        >>> constant(0.1, warmup=0.2), constant(0.7, warmup=0.2), constant(0.0, warmup=0.0)
        (0.5, 1.0, 1.0)
    """
    return done / warmup if done < warmup else 1.0


SCHEDULES: dict[ScheduleName, Callable[..., float]] = {"constant": constant, "cosine": cosine, "one_cycle": one_cycle}


def make_schedule(optimizer: Optimizer, *, schedule: ScheduleName, warmup: float, total_steps: int) -> LambdaLR:
    """Return a scheduler to step after each optimizer step; the optimizer's learning rates are the peaks.

    Args:
        optimizer: Optimizer to schedule.
        schedule: ``"one_cycle"``, ``"cosine"`` or ``"constant"``.
        warmup: Fraction of training spent on warmup.
        total_steps: Total number of optimizer steps.

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


def _between(start: float, end: float, fraction: float) -> float:
    """Interpolate from `start` to `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2
