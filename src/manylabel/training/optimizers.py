"""Optimizers, with no weight decay on biases and norms and smaller steps for the backbone."""

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from manylabel.training.settings import LoopSettings

__all__ = ["make_optimizer", "parameter_groups"]


def parameter_groups(
    model: nn.Module, *, learning_rate: float, weight_decay: float, backbone_scale: float = 1.0
) -> list[dict[str, object]]:
    """Divide what a model trains into groups of one learning rate and weight decay each.

    Args:
        model: A classifier, or a head alone.
        learning_rate: That of all but the backbone.
        weight_decay: That of weights; vectors and scalars (biases, norms) get none.
        backbone_scale: What the learning rate of parameters under ``backbone.`` is multiplied by.

    Returns:
        Groups as torch's optimizers take them; those without parameters are left out.

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
    """Make the optimizer that the settings ask for.

    Args:
        model: A classifier, or a head alone.
        settings: The kind, learning rate, weight decay, betas or momentum.
        backbone_scale: What the learning rate of the backbone is multiplied by.

    Examples:
        >>> make_optimizer(nn.Linear(3, 2), LoopSettings(optimizer="sgd")).defaults["momentum"]
        0.9
    """
    groups = parameter_groups(
        model,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        backbone_scale=backbone_scale,
    )
    if settings.optimizer == "sgd":
        return SGD(groups, lr=settings.learning_rate, momentum=settings.momentum)
    if settings.optimizer == "adam":
        return Adam(groups, lr=settings.learning_rate, betas=settings.betas)
    return AdamW(groups, lr=settings.learning_rate, betas=settings.betas)
