"""The settings of backbones and heads: read from a module for saving, and turned into a module again.

Every module keeps each argument of its constructor under the argument's own name, so its settings can be read from it.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError, ManyLabelError, ModelFormatError, list_choices
from manylabel.heads import HEADS

__all__ = ["build_head", "describe_head", "head_class", "naming_settings", "settings_of", "stages_of"]


def settings_of(module: nn.Module) -> dict[str, Any]:
    """Return the constructor's arguments that a module was made with; tensors are left to the state dict.

    Raises:
        ConfigError: The module does not keep an argument under its own name.

    Examples:
        >>> from manylabel.heads import LinearHead
        >>> settings_of(LinearHead(8, 2))["num_labels"]
        2
    """
    names = list(inspect.signature(type(module)).parameters)
    lost = [name for name in names if not hasattr(module, name)]
    if lost:
        raise ConfigError(
            f"{type(module).__name__} cannot be saved: it does not keep its argument {lost[0]!r}; "
            f"write self.{lost[0]} = {lost[0]} in its constructor"
        )
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if not isinstance(value, Tensor)}


def stages_of(head: Callable[..., nn.Module], settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the backbone stages that a head will want: its setting ``stages``, or the final one alone.

    Raises:
        ConfigError: The setting is no list of numbers.

    Examples:
        >>> from manylabel.heads import LinearHead
        >>> stages_of(LinearHead, {}), stages_of(LinearHead, {"stages": [0, -1]})
        ((-1,), (0, -1))
    """
    parameter = inspect.signature(head).parameters.get("stages")
    default = (-1,) if parameter is None or parameter.default is parameter.empty else parameter.default
    stages = settings.get("stages", default)
    is_list = isinstance(stages, Sequence) and not isinstance(stages, str)
    if not is_list or not all(isinstance(stage, int) for stage in stages):
        raise ConfigError(f"stages must be a list of whole numbers such as [0, -1], got {stages!r}")
    return tuple(stages)


@contextmanager
def naming_settings(title: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Make what a constructor says of a value of the wrong type an error that names the settings.

    Args:
        title: What is built.
        settings: What the user gave; if nothing, errors are left as they are.

    Raises:
        ConfigError: A value does not fit.

    Examples:
        >>> with naming_settings("AsymmetricLoss", {"clip": "low"}):
        ...     0 <= "low"
        Traceback (most recent call last):
        manylabel.errors.ConfigError: AsymmetricLoss cannot be made with clip='low' ('<=' not supported ...); ...
    """
    try:
        yield
    except ManyLabelError:
        raise
    except (TypeError, ValueError) as error:
        if not settings:
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ConfigError(f"{title} cannot be made with {given} ({error}); change the value or leave it out") from error


def build_head(
    head: Callable[..., nn.Module], backbone: Backbone, *, num_labels: int, settings: Mapping[str, Any]
) -> nn.Module:
    """Build a head that fits the maps a backbone gives.

    Args:
        head: The head's class.
        backbone: The backbone, its stages chosen.
        num_labels: Labels.
        settings: Further arguments of the head.

    Returns:
        The head.

    Raises:
        ConfigError: The head has no such setting, or a value does not fit.
    """
    known = inspect.signature(head).parameters
    title = getattr(head, "__name__", repr(head))
    for name in settings:
        if name not in known:
            raise ConfigError(f"{title} has no setting {name!r}; {list_choices(name, known)}")
    channels = backbone.channels[0] if len(backbone.channels) == 1 else backbone.channels
    with naming_settings(title, settings):
        return head(channels, num_labels, **settings)


def describe_head(head: nn.Module) -> dict[str, Any]:
    """Return what a saved model says of its head: a name of ours or an import path, and the settings."""
    ours = {kind: name for name, kind in HEADS.items()}
    name = ours.get(type(head), f"{type(head).__module__}:{type(head).__qualname__}")
    return {"name": name, "settings": settings_of(head)}


def head_class(name: str, given: type[nn.Module] | None) -> type[nn.Module]:
    """Return the class that a saved model's head has; foreign code is used only when the user passes it.

    Raises:
        ModelFormatError: The head is not one of ours and the user did not pass it, or passed another.
    """
    if name in HEADS:
        return HEADS[name]
    if ":" not in name:
        raise ModelFormatError(f"no head {name!r} in this version; {list_choices(name, HEADS)}")
    path = None if given is None else f"{given.__module__}:{given.__qualname__}"
    if given is None or given.__qualname__ != name.partition(":")[2]:
        got = "none was passed" if given is None else f"{path} was passed"
        wanted = name.partition(":")[2]
        raise ModelFormatError(f"the model has a head of its own, {name}, but {got}; import it and pass head={wanted}")
    return given
