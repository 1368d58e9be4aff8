"""The heads by name, their saved configuration ``{"name": ..., "settings": {...}}``, and heads that fit a backbone.

A head stores each constructor argument under its own name, from where its settings are read. A setting that is itself a
module, such as an inner head, is described in the same way.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError, ManyLabelError, ModelFormatError, list_choices
from manylabel.heads.csra import CSRA
from manylabel.heads.head import stages_of
from manylabel.heads.hsq import HybridSharingQuery
from manylabel.heads.linear import LinearClassifier
from manylabel.heads.ml_decoder import MLDecoder
from manylabel.heads.open_vocabulary import ConSE, TextMap
from manylabel.heads.query2label import Query2Label
from manylabel.heads.representation_mixup import RepresentationMixup
from manylabel.heads.token_encoder import TokenEncoder
from manylabel.plugins import Registry

HEADS: Registry[type[nn.Module]] = Registry(
    "manylabel.heads",
    {
        "conse": ConSE,
        "csra": CSRA,
        "hsq": HybridSharingQuery,
        "linear": LinearClassifier,
        "ml_decoder": MLDecoder,
        "q2l": Query2Label,
        "rm": RepresentationMixup,
        "text_map": TextMap,
        "token_encoder": TokenEncoder,
    },
)
"""The heads by the name that the command line and saved models use, with those of installed packages."""

LARGEST_SETTING = 10_000_000  # constructors loop over numbers; no width and no number of labels comes near this


class HeadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Head of a saved model.

    Attributes:
        name: Name in `HEADS`, or ``module:Class`` for a custom head.
        settings: Constructor arguments, except tensors, which are saved with the weights.
    """

    name: str
    settings: dict[str, Any]


def describe_head(head: nn.Module) -> HeadConfig:
    """Return the configuration of a head, for `restore_head`.

    Raises:
        ConfigError: The head does not store an argument under its own name.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> describe_head(LinearClassifier(8, 2))
        HeadConfig(name='linear', settings={'in_channels': 8, 'num_labels': 2, 'pooling': 'average'})
    """
    kind = type(head)
    settings: dict[str, Any] = {}
    for name in inspect.signature(kind).parameters:
        if not hasattr(head, name):
            raise ConfigError(
                f"{kind.__name__} cannot be saved: it does not store its argument {name!r}; "
                f"write self.{name} = {name} in its constructor"
            )
        value = getattr(head, name)
        if isinstance(value, nn.Module):
            settings[name] = msgspec.structs.asdict(describe_head(value))
        elif not isinstance(value, Tensor):
            settings[name] = value
    return HeadConfig(HEADS.name_of(kind) or f"{kind.__module__}:{kind.__qualname__}", settings)


def restore_head(config: HeadConfig, given: type[nn.Module] | None = None) -> nn.Module:
    """Build a head from its configuration; its weights are not loaded.

    Args:
        config: Configuration that `describe_head` returned.
        given: Class of a custom head; code is never imported because a file names it.

    Raises:
        ModelFormatError: The head is unknown, or not the one that was passed.
    """
    if config.name in HEADS:
        kind = HEADS[config.name]
    elif ":" not in config.name:
        choices = list_choices(config.name, HEADS)
        raise ModelFormatError(f"no head {config.name!r} in this version and the installed packages; {choices}")
    else:
        wanted = config.name.partition(":")[2]
        if given is None or given.__qualname__ != wanted:
            got = "none was passed" if given is None else f"{given.__module__}:{given.__qualname__} was passed"
            raise ModelFormatError(
                f"the model has a custom head, {config.name}, but {got}; import it and pass head={wanted}"
            )
        kind = given
    numbers = tree_leaves({name: value for name, value in config.settings.items() if name != "seed"})
    if any(isinstance(number, int) and abs(number) > LARGEST_SETTING for number in numbers):
        raise ModelFormatError(f"a setting of the head {config.name} is above {LARGEST_SETTING:,}; it is damaged")
    is_head = {name: isinstance(value, dict) and value.keys() == _FIELDS for name, value in config.settings.items()}
    settings = {
        name: restore_head(msgspec.convert(value, HeadConfig), given) if is_head[name] else value
        for name, value in config.settings.items()
    }
    return kind(**settings)


_FIELDS = set(HeadConfig.__struct_fields__)


@contextmanager
def naming_settings(title: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Turn an error of a constructor into one that names the settings.

    Args:
        title: Name of the class.
        settings: Settings given by the user; without any, errors pass unchanged.

    Raises:
        ConfigError: A value is invalid.

    Examples:
        >>> with naming_settings("AsymmetricLoss", {"clip": "low"}):
        ...     0 <= "low"
        Traceback (most recent call last):
        manylabel.errors.ConfigError: AsymmetricLoss cannot be created with clip='low' ('<=' not supported ...); ...
    """
    try:
        yield
    except ManyLabelError:
        raise
    except (TypeError, ValueError) as error:
        if not settings:
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ConfigError(f"{title} cannot be created with {given} ({error}); change the value or omit it") from error


def check_settings(kind: Callable[..., object], settings: Mapping[str, Any]) -> None:
    """Raise unless a class has all of these settings.

    Raises:
        ConfigError: It has no such setting; the message suggests the nearest ones.
    """
    known = inspect.signature(kind).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for name in () if takes_any else settings.keys() - known:
        raise ConfigError(f"{getattr(kind, '__name__', kind)} has no setting {name!r}; {list_choices(name, known)}")


def build_head(
    head: Callable[..., nn.Module], backbone: Backbone, *, num_labels: int, settings: Mapping[str, Any]
) -> nn.Module:
    """Build a head that fits a backbone's feature maps.

    Args:
        head: Class of the head.
        backbone: Backbone with selected stages.
        num_labels: Number of labels.
        settings: Further arguments of the head. An inner head may be given by name, or by name and settings as in a
            `HeadConfig`; it reads the final map.

    Raises:
        ConfigError: The head has no such setting, or a value is invalid.
    """
    check_settings(head, settings)
    known, title = inspect.signature(head).parameters, getattr(head, "__name__", repr(head))
    channels = backbone.channels[0] if len(backbone.channels) == 1 else backbone.channels
    usual = {"in_channels": backbone.channels[-1], "num_labels": num_labels}
    with naming_settings(title, settings):
        inner = {
            name: _inner_head(value, usual) if name in known and "Module" in str(known[name].annotation) else value
            for name, value in settings.items()
        }
        return head(channels, num_labels, **inner)


def _inner_head(value: object, usual: Mapping[str, Any]) -> object:
    described = {"name": value, "settings": {}} if isinstance(value, str) else value
    if not isinstance(described, Mapping):
        return value  # a module, or none
    return restore_head(HeadConfig(str(described.get("name")), {**usual, **described.get("settings", {})}))


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
    stages = stages_of(head, settings)
    check_settings(head, settings)
    backbone = Backbone(model, stages=stages)
    top = build_head(head, backbone, num_labels=num_labels, settings=settings)
    return nn.Sequential(OrderedDict(backbone=backbone, head=top.to(next(backbone.parameters()).device)))
