"""Settings from Python, YAML files and flags, validated alike; errors list all problems at once.

Settings are frozen dataclasses whose types carry limits and whose fields carry help:
``batch_size: Count = setting(64, "Images per batch.")``. A subclass may change the default alone:
``batch_size: Count = 32``.
"""

import dataclasses
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING
from functools import cache, partial
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

import msgspec
import yaml
from msgspec import Meta, inspect

from manylabel.errors import ConfigError, list_choices
from manylabel.plugins import plugins

Settings = TypeVar("Settings")

Count: TypeAlias = Annotated[int, Meta(ge=1)]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]

PARTS = ("head", "loss")  # components with settings of their own
ALIASES = {"lr": "learning_rate", "bs": "batch_size", "wd": "weight_decay"}


def setting(
    default: Any,  # noqa: ANN401 (of any type, as is the field)
    help: str,  # noqa: A002 (the name of the attribute of `Field`)
    *,
    is_flag: bool = True,
    may_change: bool = False,
    is_object: bool = False,
) -> Any:  # noqa: ANN401 (as `dataclasses.field`)
    """Return a dataclass field that `Field` describes.

    Args:
        default: Default; ``MISSING`` if required.
        help: One line of help.
        is_flag: True if the command line has a flag for it.
        may_change: True if a resumed run may change the value.
        is_object: True if the value may name a Python object, as ``module:name``.
    """
    described = {"help": help, "is_flag": is_flag, "may_change": may_change, "is_object": is_object}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=partial(dict, default), metadata=described)
    return dataclasses.field(default=default, metadata=described)


@dataclasses.dataclass(frozen=True)
class Field:
    """Description of a setting.

    Args:
        name: Name.
        type: Annotation.
        default: Default; ``MISSING`` if required.
        group: Heading in the help.
        help: One line of help.
        is_flag: True if the command line has a flag for it.
        may_change: True if a resumed run may change the value.
        is_object: True if the value may name a Python object, as ``module:name``.
    """

    name: str
    type: Any
    default: object
    group: str
    help: str
    is_flag: bool
    may_change: bool
    is_object: bool

    @property
    def choices(self) -> tuple[str, ...]:
        """Allowed names, empty if not an enumeration; losses of installed packages are among them."""
        names = tuple(name for kind in _kinds(self.type) for name in getattr(kind, "values", ()))
        return (*names, *plugins("manylabel.losses")) if self.name == "loss" else names

    @property
    def is_switch(self) -> bool:
        """True for booleans."""
        return any(isinstance(kind, inspect.BoolType) for kind in _kinds(self.type))

    @property
    def metavar(self) -> str:
        """Placeholder for the value in the help."""
        words = {inspect.IntType: "INTEGER", inspect.FloatType: "FLOAT", inspect.CustomType: "PATH"}
        return "|".join(self.choices) or words.get(type(_kinds(self.type)[0]), "TEXT")

    def convert(self, value: object, *, strict: bool) -> object:
        """Convert a value to the type of the field, and check its limits.

        Args:
            value: Value, or its text.
            strict: Refuse texts in place of other types.

        Raises:
            ConfigError: The value is invalid; the message continues the field's name.
        """
        texts_fit = any(isinstance(kind, inspect.StrType) for kind in _kinds(self.type)) or "none" in self.choices
        is_none = not strict and isinstance(value, str) and value.lower() == "none" and not texts_fit
        try:
            return msgspec.convert(None if is_none else value, self.type, strict=strict, dec_hook=_to_path)
        except msgspec.ValidationError:
            if self.is_object and (":" in str(value) or value in self.choices):
                return value
        if self.choices:
            raise ConfigError(f"cannot be {value!r}; {list_choices(str(value), self.choices)}")
        raise ConfigError(f"must be {' or '.join(map(_words, _kinds(self.type)))}, got {value!r}")


def settings_fields(kind: type) -> dict[str, Field]:
    """Return the fields of settings by name.

    Examples:
        >>> from manylabel.settings import LoopSettings
        >>> field = settings_fields(LoopSettings)["accumulate"]
        >>> field.metavar, field.default, field.help
        ('INTEGER', 1, 'Batches per optimizer step (gradient accumulation).')
    """
    return _read_fields(kind)


def build(kind: type[Settings], values: Mapping[str, object]) -> Settings:
    """Build settings from values of a file or flags; texts are converted to the types of the fields.

    Args:
        kind: Frozen dataclass that calls `check` in ``__post_init__``.
        values: Values, or their texts, by field name.

    Raises:
        ConfigError: Settings are invalid; the message lists all problems.

    Examples:
        >>> from manylabel.settings import LoopSettings
        >>> build(LoopSettings, {"epochs": "3", "ema_decay": "0.9"}).epochs
        3
        >>> build(LoopSettings, {"epoch": 3, "batch_size": "0"})
        Traceback (most recent call last):
        manylabel.errors.ConfigError: 2 invalid settings:
          no setting 'epoch'; did you mean 'epochs'? Available: ...
          batch_size must be a whole number of at least 1, got '0'
    """
    fields = settings_fields(kind)
    values = {ALIASES.get(name, name): value for name, value in values.items()}
    problems = [f"no setting {name!r}; {list_choices(name, fields)}" for name in values if name not in fields]
    given = {name: value for name, value in values.items() if name in fields}
    understood, invalid = _convert(fields, given, strict=False)
    missing = [each for each in fields.values() if each.default is MISSING and each.name not in values]
    _raise([*problems, *invalid, *(f"{each.name} is missing: {each.help}" for each in missing)])
    return kind(**understood)


def check(settings: object) -> None:
    """Check the types and limits of all fields of a dataclass, in its ``__post_init__``.

    Raises:
        ConfigError: Settings are invalid; the message lists all problems.
    """
    _raise(_convert(settings_fields(type(settings)), vars(settings), strict=True)[1])


def read_settings(
    kind: type[Settings],
    flags: Mapping[str, object],
    *,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    preset: str | None = None,
    file: Path | None = None,
) -> Settings:
    """Merge settings: flags override the file, which overrides the preset.

    Args:
        kind: Settings class.
        flags: Values by field name. A name such as ``head.num_groups`` is an argument of the head, its text parsed as
            YAML.
        presets: Presets by name.
        preset: Name of a preset (default: none).
        file: YAML file, such as config.yaml of another run (default: none).

    Raises:
        ConfigError: Settings are invalid; the message lists all problems.

    Examples:
        >>> from manylabel.settings import PRESETS, Finetune
        >>> flags = {"data": "scenes:10", "lr": "3e-4", "head.num_shared_experts": "4"}
        >>> settings = read_settings(Finetune, flags, presets=PRESETS["finetune"], preset="hsq")
        >>> settings.epochs, settings.learning_rate, settings.head_settings
        (100, 0.0003, {'num_shared_experts': 4})
    """
    if preset is not None and preset not in (presets or {}):
        raise ConfigError(f"no preset {preset!r}; {list_choices(preset, presets or {})}")
    values: dict[str, Any] = {}
    plain = {ALIASES.get(name, name): value for name, value in flags.items() if not _part(name)}
    below = {} if preset is None or presets is None else presets[preset]
    for layer in (below, {} if file is None else read_yaml(file), plain):
        values = _overlay(values, layer, kind)
    for name, text in flags.items():
        if part := _part(name):
            field = f"{part}_settings"
            before: Any = values[field] if field in values else settings_fields(kind)[field].default
            values[field] = {**before, name.partition(".")[2]: _read_part(name, str(text))}
    return build(kind, values)


def read_flags(arguments: Sequence[str], *, switches: Collection[str] = ()) -> tuple[list[str], dict[str, object]]:
    """Parse arguments into inputs and flags; unknown names are left to `build`.

    Args:
        arguments: Command line arguments, such as ``["labels.csv", "--head.num-groups", "20"]``.
        switches: Names of boolean settings, which take a value only as ``--name=VALUE``.

    Returns:
        Arguments that are no flags, and texts by name, without dashes; empty for a flag without a value.

    Examples:
        >>> read_flags(["labels.csv", "--head.stages", "[1, -1]", "--loss.clip=0"])
        (['labels.csv'], {'head.stages': '[1, -1]', 'loss.clip': '0'})
        >>> read_flags(["--no-augment", "--resume", "labels.csv"], switches=["augment", "resume"])
        (['labels.csv'], {'augment': False, 'resume': True})
    """
    inputs: list[str] = []
    found: dict[str, object] = {}
    remaining = list(arguments)
    while remaining:
        flag = remaining.pop(0)
        if not flag.startswith("--"):
            inputs.append(flag)
            continue
        name, equals, text = flag.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if equals:
            found[name] = text
        elif name in switches or name.removeprefix("no_") in switches:
            found[name.removeprefix("no_")] = name in switches
        else:
            found[name] = remaining.pop(0) if remaining and not remaining[0].startswith("--") else ""
    return inputs, found


def to_dict(settings: object) -> dict[str, object]:
    """Return settings as plain values for YAML or JSON.

    Examples:
        >>> from manylabel.settings import LoopSettings
        >>> to_dict(LoopSettings())["betas"]
        [0.9, 0.999]
    """
    values = {name: getattr(settings, name) for name in settings_fields(type(settings))}
    plain: dict[str, object] = msgspec.json.decode(msgspec.json.encode(values, enc_hook=str))
    return plain


def to_yaml(settings: object) -> str:
    """Return settings as YAML, each field under its help text.

    Examples:
        >>> from manylabel.settings import LoopSettings
        >>> print(to_yaml(LoopSettings()).splitlines()[1])
        epochs: 20
    """
    lines = []
    for name, value in to_dict(settings).items():
        words = settings_fields(type(settings))[name].help
        lines += textwrap.wrap(words, width=118, initial_indent="# ", subsequent_indent="# ")
        text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10_000)
        lines.append(f"{name}: " + text.removesuffix("...\n").rstrip())  # YAML ends a plain scalar document with dots
    return "\n".join(lines) + "\n"


def parse_yaml(text: str) -> object:
    """Parse a YAML value.

    Raises:
        yaml.YAMLError: The text is not valid YAML.

    Examples:
        >>> parse_yaml("[1e-3, 2, text, null]")
        [0.001, 2, 'text', None]
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)


def read_yaml(path: str | Path) -> dict[str, object]:
    """Read a mapping from a YAML file.

    Raises:
        ConfigError: The file cannot be read, or is not a mapping.
    """
    try:
        values = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the settings in {path}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{path} must hold settings as 'name: value' lines, got {type(values).__name__}")
    return values


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-3 as a number, unlike YAML 1.1, and refuses aliases: 1 kB of them can expand to 1 TB."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name); write the value in full")
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes texts which `_Loader` would read as numbers, and writes repeated values in full."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (the same for all)
        return True


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


@cache
def _read_fields(kind: Any) -> dict[str, Field]:  # noqa: ANN401 (mypy does not consider types hashable)
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: _field(kind, each, hints[each.name]) for each in dataclasses.fields(kind)}


def _field(kind: type, field: dataclasses.Field[Any], hint: Any) -> Field:  # noqa: ANN401 (typing has no such type)
    owners = [each for each in kind.__mro__ if field.name in get_annotations(each)]
    described: Mapping[str, Any] = next(
        filter(None, (vars(each)["__dataclass_fields__"][field.name].metadata for each in owners))
    )
    default = field.default_factory() if callable(field.default_factory) else field.default
    return Field(field.name, hint, default, getattr(owners[-1], "GROUP", "Recipe"), **described)


def _convert(
    fields: Mapping[str, Field], values: Mapping[str, object], *, strict: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the converted values by name, and what is wrong with the others."""
    converted, problems = {}, []
    for name, value in values.items():
        try:
            converted[name] = fields[name].convert(value, strict=strict)
        except ConfigError as error:
            problems.append(f"{name} {error}")
    return converted, problems


@cache
def _kinds(annotation: Any) -> list[inspect.Type]:  # noqa: ANN401 (typing has no type for annotations)
    """Return the members of a union."""
    kind = inspect.type_info(annotation)
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def _words(kind: inspect.Type) -> str:
    """Describe a type and its limits in words."""
    names: dict[type[inspect.Type], str] = {
        inspect.IntType: "a whole number",
        inspect.FloatType: "a number",
        inspect.BoolType: "true or false",
        inspect.StrType: "a text",
        inspect.CustomType: "a path",
        inspect.NoneType: "none",
        inspect.DictType: "a mapping",
        inspect.TupleType: "a list of two numbers from 0 to below 1",
    }
    limits = {"ge": "of at least", "gt": "above", "lt": "and below", "le": "up to"}
    given = {name: getattr(kind, name, None) for name in limits}
    limited = [f"{limits[name]} {limit:g}" for name, limit in given.items() if limit is not None]
    return " ".join([names[type(kind)], *limited])


def _part(name: str) -> str | None:
    """Return ``head`` or ``loss`` for a flag of theirs, else None."""
    part, dot, _ = name.partition(".")
    return part if dot and part in PARTS else None


def _read_part(flag: str, text: str) -> object:
    """Parse an argument of the head or the loss as YAML."""
    if not text.strip():
        raise ConfigError(f"--{flag} needs a value, such as 0.1, true or null; add one or remove the flag")
    try:
        return parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"cannot parse the value of --{flag}, got {text!r}; use a number, a word, or a list such as '[0, -1]'"
        ) from error


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Overlay settings; changing the head or loss drops its previous arguments and default learning rate."""
    values, fields = {**below, **above}, settings_fields(kind)
    for part in PARTS:
        name, before = f"{part}_settings", below.get(part, fields[part].default)
        if above.get(part, before) != before:
            values[name] = above.get(name, {})
            if part == "head" and "learning_rate" not in above and fields["learning_rate"].default is None:
                values.pop("learning_rate", None)
    return values


def _to_path(kind: type, value: Any) -> Any:  # noqa: ANN401 (msgspec's)
    if kind is not Path:
        raise NotImplementedError
    return value if isinstance(value, Path) else Path(value).expanduser()


def _raise(problems: list[str]) -> None:
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError("\n  ".join([f"{len(problems)} invalid settings:", *problems]))
