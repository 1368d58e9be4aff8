"""Heads of this package in other people's models."""

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import nn

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError, list_choices
from manylabel.heads.traits import stages_of

__all__ = ["replace_head"]


def replace_head(
    model: nn.Module,
    head: Callable[..., nn.Module],
    num_labels: int,
    **settings: Any,  # noqa: ANN401 - each head has its own
) -> nn.Sequential:
    """Replace the classifier of a timm or torchvision model, convolutional or transformer, with a head.

    The head reads the feature maps before the model's pooling. The rest of the model keeps its weights and is trained
    with the head; freeze it with ``result.backbone.freeze()``.

    Args:
        model: The model; `manylabel.backbone.Backbone` describes what it shares with the result.
        head: Class of the head.
        num_labels: Number of labels.
        **settings: Further arguments of the head, such as ``num_groups`` or ``stages``.

    Returns:
        A module that maps images ``[B, 3, H, W]`` to logits ``[B, L]``, with the parts ``backbone`` and ``head``, on
        the device of the model.

    Raises:
        ConfigError: The model has no feature maps, or the head rejects the settings.

    Examples:
        >>> import torch
        >>> from torchvision.models import resnet18
        >>> from manylabel.heads import MLDecoder
        >>> model = replace_head(resnet18(), MLDecoder, num_labels=20, width=64)
        >>> model(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 20])
    """
    stages, known = stages_of(head, settings), inspect.signature(head).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for name in () if takes_any else settings.keys() - known:
        raise ConfigError(f"{getattr(head, '__name__', head)} has no setting {name!r}; {list_choices(name, known)}")
    backbone = Backbone(model, stages=stages)
    channels = backbone.channels[0] if len(backbone.channels) == 1 else backbone.channels
    device = next(backbone.parameters()).device
    return nn.Sequential(OrderedDict(backbone=backbone, head=head(channels, num_labels, **settings).to(device)))
