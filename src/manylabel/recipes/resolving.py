"""From what a user said to settings: defaults, then a preset, then a file, then flags; each overrides those before."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from manylabel.errors import ConfigError, list_choices
from manylabel.recipes.names import Recipe
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.config import build, parse_yaml, read_yaml

__all__ = ["read_extra_flags", "resolve"]

PARTS = ("head", "loss")  # what has settings of its own, which depend on its name


def resolve(
    recipe: Recipe, flags: Mapping[str, object], *, preset: str | None = None, file: Path | None = None
) -> RecipeSettings:
    """Put settings together.

    Args:
        recipe: Whose settings.
        flags: Field names with what the flags say; texts are read as the fields' types. A name such as
            ``head.num_groups`` is a setting of the head, and its text is read as YAML.
        preset: The name of a preset of the recipe.
        file: A YAML file, such as the config.yaml of another run.

    Returns:
        The settings.

    Raises:
        ConfigError: Something is wrong; the message lists all of it.

    Examples:
        >>> from manylabel.recipes import RECIPES
        >>> flags = {"data": "scenes:10", "epochs": "3", "head.num_shared_experts": "4"}
        >>> settings = resolve(RECIPES["finetune"], flags, preset="hsq")
        >>> settings.epochs, settings.betas, settings.head_settings
        (3, (0.9, 0.9999), {'num_shared_experts': 4})
    """
    if preset is not None and preset not in recipe.presets:
        raise ConfigError(f"no preset {preset!r}; {list_choices(preset, recipe.presets)}")
    values: dict[str, Any] = {}
    plain = {name: value for name, value in flags.items() if not _part(name)}
    for layer in ({} if preset is None else recipe.presets[preset], {} if file is None else read_yaml(file), plain):
        values = _overlay(values, layer, recipe.settings)
    for name, text in flags.items():
        if part := _part(name):
            field = f"{part}_settings"
            before = values[field] if field in values else _default(recipe.settings, field)
            values[field] = {**before, name.partition(".")[2]: _read_part(name, str(text))}
    return build(recipe.settings, values)


def read_extra_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Read flags that the command line does not know: settings of the head and the loss, and mistakes.

    Args:
        arguments: Such as ``["--head.num-groups", "20"]``.

    Returns:
        Names, without dashes, and texts; a flag without a value has an empty one.

    Raises:
        ConfigError: Something is no flag.

    Examples:
        >>> read_extra_flags(["--head.stages", "[1, -1]", "--loss.clip=0", "--epoch", "3"])
        {'head.stages': '[1, -1]', 'loss.clip': '0', 'epoch': '3'}
    """
    found: dict[str, str] = {}
    remaining = list(arguments)
    while remaining:
        flag = remaining.pop(0)
        if not flag.startswith("--"):
            raise ConfigError(f"cannot make sense of {flag!r}; settings are flags, such as --epochs 10")
        name, equals, text = flag.removeprefix("--").partition("=")
        if not equals and remaining and not remaining[0].startswith("--"):
            text = remaining.pop(0)
        found[name.replace("-", "_")] = text
    return found


def _part(name: str) -> str | None:
    """Return the part, head or loss, that a flag is a setting of, if it is of one."""
    part, dot, _ = name.partition(".")
    return part if dot and part in PARTS else None


def _read_part(flag: str, text: str) -> object:
    """Read a setting of the head or the loss as YAML."""
    if not text.strip():
        raise ConfigError(f"--{flag} has no value; write one behind it, such as 0.1, true or null, or leave it out")
    try:
        return parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"cannot read the value of --{flag}, got {text!r}; write a number, a word, or a list such as '[0, -1]'"
        ) from error


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any], kind: type[RecipeSettings]) -> dict[str, Any]:
    """Put one layer over another; another head or loss forgets the settings and the rate of the one before."""
    values = {**below, **above}
    for part in PARTS:
        name = f"{part}_settings"
        if above.get(part, below.get(part, _default(kind, part))) != below.get(part, _default(kind, part)):
            values[name] = above.get(name, {})
            if part == "head" and "learning_rate" not in above and _default(kind, "learning_rate") is None:
                values.pop("learning_rate", None)  # it was filled in for the head before
    return values


def _default(kind: type[RecipeSettings], name: str) -> Any:  # noqa: ANN401 (any setting's value)
    field = next(each for each in fields(kind) if each.name == name)
    return field.default_factory() if callable(field.default_factory) else field.default
