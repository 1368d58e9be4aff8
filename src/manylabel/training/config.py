"""Settings as a dataclass, as a YAML file and as flags: one reader for all three, which lists all mistakes at once."""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from manylabel.errors import ConfigError, list_choices
from manylabel.training.fields import Annotation, complaint, fits, read, rule_complaints

__all__ = ["annotations", "build", "check", "field_docs", "parse_yaml", "read_yaml", "to_dict", "to_yaml"]

Settings = TypeVar("Settings")


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number, as everybody but YAML 1.1 does."""


class _Dumper(yaml.SafeDumper):
    """Puts quotes around texts that `_Loader` would read as numbers."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def build(kind: type[Settings], values: Mapping[str, object]) -> Settings:
    """Make settings from what a file or flags say; texts are read as the types that the fields have.

    Args:
        kind: A frozen dataclass that checks itself with `check`.
        values: Field names with values, or with texts of them.

    Returns:
        The settings.

    Raises:
        ConfigError: Something is wrong; the message lists all of it.

    Examples:
        >>> from manylabel.training.settings import LoopSettings
        >>> build(LoopSettings, {"epochs": "3", "ema_decay": "0.9"}).epochs
        3
        >>> build(LoopSettings, {"epoch": 3, "batch_size": "0"})
        Traceback (most recent call last):
        manylabel.errors.ConfigError: 2 settings are wrong:
          no setting 'epoch'; did you mean 'epochs'? There is: ...
          batch_size must be at least 1, got 0
    """
    hints = annotations(kind)
    problems = [f"no setting {name!r}; {list_choices(name, hints)}" for name in values if name not in hints]
    understood: dict[str, Any] = {}
    for name in [name for name in values if name in hints]:
        try:
            understood[name] = read(values[name], hints[name])
        except ConfigError as error:
            problems.append(f"{name} {error}")
    problems += [f"{name} is missing: {field_docs(kind)[name]}" for name in _required(kind) if name not in values]
    problems += [f"{name} {words}" for name in understood for words in rule_complaints(understood[name], hints[name])]
    _raise(problems)
    return kind(**understood)


def check(settings: object) -> None:
    """Check every value of a dataclass against its field's type and rule; for ``__post_init__``.

    Raises:
        ConfigError: Something is wrong; the message lists all of it.
    """
    problems = []
    for name, annotation in annotations(type(settings)).items():
        value = getattr(settings, name)
        wrong = rule_complaints(value, annotation) if fits(value, annotation) else [complaint(value, annotation)]
        problems += [f"{name} {words}" for words in wrong]
    _raise(problems)


def to_dict(settings: object) -> dict[str, object]:
    """Return settings as plain values, as YAML can say them.

    Examples:
        >>> from manylabel.training.settings import LoopSettings
        >>> to_dict(LoopSettings())["betas"]
        [0.9, 0.999]
    """
    return {name: _plain(getattr(settings, name)) for name in annotations(type(settings))}


def to_yaml(settings: object) -> str:
    """Write settings as YAML, every field with its explanation above it.

    Examples:
        >>> from manylabel.training.settings import LoopSettings
        >>> print(to_yaml(LoopSettings()).splitlines()[1])
        epochs: 20
    """
    docs = field_docs(type(settings))
    lines = []
    for name, value in to_dict(settings).items():
        lines += textwrap.wrap(docs[name], width=118, initial_indent="# ", subsequent_indent="# ")
        text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10_000)
        lines.append(f"{name}: " + text.removesuffix("...\n").rstrip())  # dots end a document of one plain value
    return "\n".join(lines) + "\n"


def parse_yaml(text: str) -> object:
    """Read a value written as YAML.

    Raises:
        yaml.YAMLError: The text is no YAML.

    Examples:
        >>> parse_yaml("[1e-3, 2, text, null]")
        [0.001, 2, 'text', None]
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader


def read_yaml(path: str | Path) -> dict[str, object]:
    """Read a mapping from a YAML file.

    Raises:
        ConfigError: The file cannot be read, or is no mapping.
    """
    try:
        values = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the settings in {path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold settings as 'name: value' lines, got {type(values).__name__}")
    return values


def annotations(kind: type) -> dict[str, Annotation]:
    """Return the annotation of each field of a dataclass.

    Examples:
        >>> from manylabel.training.settings import LoopSettings
        >>> annotations(LoopSettings)["seed"].__origin__
        <class 'int'>
    """
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass and of those it inherits from.

    Examples:
        >>> from manylabel.training.settings import LoopSettings
        >>> field_docs(LoopSettings)["batch_size"]
        'Pictures per step, on each device.'
    """
    docs: dict[str, str] = {}
    for parent in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
        for statement, following in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = following.value if isinstance(following, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    docs[statement.target.id] = " ".join(text.value.split())
    return docs


def _required(kind: type) -> list[str]:
    return [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]


def _raise(problems: list[str]) -> None:
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError("\n  ".join([f"{len(problems)} settings are wrong:", *problems]))


def _plain(value: object) -> object:
    """Turn a value into what YAML can say."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return value
