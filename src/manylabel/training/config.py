"""Settings as a dataclass, as a YAML file and as flags: one reader for all three, which lists all mistakes at once."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from manylabel.errors import ConfigError, list_choices

__all__ = ["OneOf", "Rule", "build", "check", "choices_of", "describe_type", "field_docs", "read_yaml", "to_dict", "to_yaml"]

Settings = TypeVar("Settings")
Annotation = Any  # typing has no type for annotations

_TRUTH = {"true": True, "yes": True, "false": False, "no": False}
_WORDS: dict[Annotation, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
    NoneType: "none",
    dict: "a mapping",
    tuple: "a list of numbers",
}


@dataclass(frozen=True)
class Rule:
    """What a value must fulfil beside its type; stands in ``Annotated[int, Rule(...)]``.

    Args:
        holds: Whether a value is right.
        words: How to say it, after "must be".

    Example:
        >>> Rule(lambda value: value > 0, "above 0").complaint(-1)
        'must be above 0, got -1'
    """

    holds: Callable[[Any], bool]
    words: str

    def complaint(self, value: object) -> str | None:
        """Say what is wrong with a value, if anything."""
        return None if self.holds(value) else f"must be {self.words}, got {value}"


@dataclass(frozen=True)
class OneOf:
    """A rule for names: one of those there are, or an import path (``package.module:Name``) of a user's own.

    Args:
        names: The names there are.
        own: Whether an import path will do.

    Example:
        >>> OneOf(["cat", "dog"]).complaint("cot")
        "cannot be 'cot'; did you mean 'cat'? There is: cat, dog"
    """

    names: Collection[str]
    own: bool = False

    def complaint(self, value: object) -> str | None:
        """Say what is wrong with a value, if anything."""
        if value in self.names or (self.own and ":" in str(value)):
            return None
        return f"cannot be {value!r}; {list_choices(str(value), self.names)}"


def build(kind: type[Settings], values: Mapping[str, object]) -> Settings:
    """Make settings from what a file or flags say; texts are read as the types that the fields have.

    Args:
        kind: A frozen dataclass that checks itself with `check`.
        values: Field names with values, or with texts of them.

    Returns:
        The settings.

    Raises:
        ConfigError: Something is wrong; the message lists all of it.

    Example:
        >>> from manylabel.training.settings import LoopSettings
        >>> build(LoopSettings, {"epochs": "3", "ema_decay": "0.9"}).epochs
        3
        >>> build(LoopSettings, {"epoch": 3, "batch_size": "0"})
        Traceback (most recent call last):
        manylabel.errors.ConfigError: 2 settings are wrong:
          no setting 'epoch'; did you mean 'epochs'? There is: ...
          batch_size must be at least 1, got 0
    """
    hints = _hints(kind)
    problems = [f"no setting {name!r}; {list_choices(name, hints)}" for name in values if name not in hints]
    read: dict[str, Any] = {}
    for name, value in values.items():
        if name in hints:
            try:
                read[name] = _read(value, hints[name])
            except ConfigError as error:
                problems.append(f"{name} {error}")
    for field in fields(kind):  # type: ignore[arg-type]  # any dataclass: typeshed's protocol for them is private
        required = field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in values:
            problems.append(f"{field.name} is missing; {_first_sentence(field_docs(kind)[field.name])}")
    problems += _rule_problems(read, hints)
    _raise(problems)
    return kind(**read)


def check(settings: object) -> None:
    """Check every value of a dataclass against its field's type and rule; for ``__post_init__``.

    Raises:
        ConfigError: Something is wrong; the message lists all of it.
    """
    hints = _hints(type(settings))
    problems = []
    for name, annotation in hints.items():
        value = getattr(settings, name)
        if not any(_fits(value, kind) for kind in _alternatives(annotation)):
            problems.append(f"{name} {_complaint(value, annotation)}")
    _raise(problems + _rule_problems(vars(settings), hints))


def to_dict(settings: object) -> dict[str, object]:
    """Return settings as plain values, as YAML can say them.

    Example:
        >>> from manylabel.training.settings import LoopSettings
        >>> to_dict(LoopSettings())["betas"]
        [0.9, 0.999]
    """
    return {name: _plain(getattr(settings, name)) for name in _hints(type(settings))}


def to_yaml(settings: object) -> str:
    """Write settings as YAML, every field with its explanation above it.

    Example:
        >>> from manylabel.training.settings import LoopSettings
        >>> print(to_yaml(LoopSettings()).splitlines()[1])
        epochs: 20
    """
    docs = field_docs(type(settings))
    lines = []
    for name, value in to_dict(settings).items():
        lines += textwrap.wrap(docs[name], width=118, initial_indent="# ", subsequent_indent="# ")
        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
        lines.append(f"{name}: " + text.removesuffix("...\n").rstrip())  # dots end a YAML document of one plain value
    return "\n".join(lines) + "\n"


def read_yaml(path: str | Path) -> dict[str, object]:
    """Read a mapping from a YAML file.

    Raises:
        ConfigError: The file cannot be read, or is no mapping.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the settings in {path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold settings as 'name: value' lines, got {type(values).__name__}")
    return values


@lru_cache(maxsize=32)
def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass and of those it inherits from.

    Example:
        >>> from manylabel.training.settings import LoopSettings
        >>> field_docs(LoopSettings)["epochs"]
        'How often every picture is seen.'
    """
    docs: dict[str, str] = {}
    for parent in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for statement, following in zip(statements, statements[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = following.value if isinstance(following, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    docs[statement.target.id] = " ".join(text.value.split())
    return docs


def choices_of(kind: type, name: str) -> tuple[str, ...]:
    """Return the names that a field can take, where they are listed.

    Example:
        >>> from manylabel.training.settings import LoopSettings
        >>> choices_of(LoopSettings, "optimizer")
        ('adam', 'adamw', 'sgd')
    """
    annotation = _hints(kind)[name]
    ruled = [rule.names for rule in getattr(annotation, "__metadata__", ()) if isinstance(rule, OneOf)]
    listed = [get_args(one) for one in _alternatives(annotation) if get_origin(one) is Literal]
    return tuple(str(choice) for names in [*ruled, *listed] for choice in names)


def describe_type(kind: type, name: str) -> str:
    """Say in a word or two what a field takes, for a line of help.

    Example:
        >>> from manylabel.training.settings import LoopSettings
        >>> describe_type(LoopSettings, "patience"), describe_type(LoopSettings, "logger")
        ('WHOLE NUMBER', 'auto|none|tensorboard|wandb')
    """
    kinds = [one for one in _alternatives(_hints(kind)[name]) if one is not NoneType]
    return "|".join(choices_of(kind, name)) or _WORDS[_plain_type(kinds[0])].removeprefix("a ").upper()


@lru_cache(maxsize=32)
def _hints(kind: type) -> dict[str, Annotation]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _alternatives(annotation: Annotation) -> tuple[Annotation, ...]:
    """Take ``Annotated`` and unions apart."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _plain_type(kind: Annotation) -> Annotation:
    """Return the class behind a generic alias."""
    origin = get_origin(kind) or kind
    return dict if origin is Mapping else origin


def _fits(value: object, kind: Annotation) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    kind = _plain_type(kind)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _read(value: object, annotation: Annotation) -> object:
    """Read a value, or a text of it, as the first of the annotated types that fits."""
    alternatives = _alternatives(annotation)
    if isinstance(value, str) and str not in alternatives:
        value = _parse(value, alternatives)
    for kind in alternatives:
        if _plain_type(kind) is tuple and isinstance(value, list | tuple):
            return tuple(_read(item, get_args(kind)[0]) for item in value)
        if _fits(value, kind):
            return float(value) if kind is float and isinstance(value, int) else value
    raise ConfigError(_complaint(value, annotation))


def _parse(text: str, alternatives: tuple[Annotation, ...]) -> object:
    """Read a text that a person wrote; what cannot be read stays a text, for the complaint."""
    kinds = [_plain_type(kind) for kind in alternatives]
    if any(text in get_args(kind) for kind in alternatives if get_origin(kind) is Literal):
        return text
    if NoneType in kinds and text.lower() in ("none", "null"):
        return None
    if bool in kinds and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    if tuple in kinds:
        return tuple(part.strip() for part in text.strip("()[]").split(","))
    return Path(text).expanduser() if Path in kinds else text


def _complaint(value: object, annotation: Annotation) -> str:
    alternatives = _alternatives(annotation)
    choices = [str(choice) for one in alternatives if get_origin(one) is Literal for choice in get_args(one)]
    if choices:
        return f"cannot be {value!r}; {list_choices(str(value), choices)}"
    return f"must be {' or '.join(_WORDS[_plain_type(one)] for one in alternatives)}, got {value!r}"


def _rule_problems(values: Mapping[str, Any], hints: Mapping[str, Annotation]) -> list[str]:
    problems = []
    for name, annotation in hints.items():
        value = values.get(name)
        kinds = _alternatives(annotation)
        if value is None or not any(_fits(value, kind) for kind in kinds):
            continue  # nothing to rule on, or complained about already
        rules = [rule for rule in getattr(annotation, "__metadata__", ()) if isinstance(rule, Rule | OneOf)]
        problems += [f"{name} {complaint}" for rule in rules if (complaint := rule.complaint(value))]
    return problems


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


def _first_sentence(text: str) -> str:
    sentence = text.partition(". ")[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]
