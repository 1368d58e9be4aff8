"""Model names for tables, and a guard against changing shared models in place."""

from collections.abc import Sequence
from pathlib import Path

from manylabel.builtin import BUILTIN, local_model
from manylabel.errors import ConfigError

__all__ = ["model_name", "model_names", "refuse_shared"]


def model_name(source: str) -> str:
    """Return the last part of the path of a model or its run.

    Examples:
        >>> model_name("runs/first/model"), model_name("runs/first"), model_name("builtin:coco80")
        ('first', 'first', 'builtin:coco80')
    """
    path = Path(source)
    return (path.parent.name if path.name == "model" else path.name) or path.name or source


def model_names(sources: Sequence[str]) -> list[str]:
    """Return a name per model: the last part of its path, or the whole path if that is ambiguous.

    Examples:
        >>> model_names(["runs/first", "runs/second"]), model_names(["a/first", "b/first"])
        (['first', 'second'], ['a/first', 'b/first'])
    """
    names = [model_name(source) for source in sources]
    return [name if names.count(name) == 1 else source for name, source in zip(names, sources, strict=True)]


def refuse_shared(model: str) -> None:
    """Refuse to change a built-in model or one from the hub cache.

    Raises:
        ConfigError: The model is shared; the message explains how to write a copy.

    Examples:
        >>> refuse_shared("builtin:coco80")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: builtin:coco80 is part of the package; write a changed copy with --out DIR
    """
    if model.startswith(BUILTIN):
        raise ConfigError(f"{model} is part of the package; write a changed copy with --out DIR")
    if local_model(model) is None:
        raise ConfigError(f"{model} is not a local folder; write a changed copy of the hub model with --out DIR")
