"""What a field of settings takes: read from its annotation, and told in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from manylabel.errors import ConfigError, list_choices

__all__ = ["Annotation", "OneOf", "Rule", "choices", "complaint", "describe", "fits", "read", "rule_complaints"]

Annotation: TypeAlias = Any  # typing has no type for annotations

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

    Examples:
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

    Examples:
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


def fits(value: object, annotation: Annotation) -> bool:
    """Say whether a value has one of the annotated types.

    Examples:
        >>> fits(3, float | None), fits("adam", Literal["adam", "sgd"]), fits(True, int)
        (True, True, False)
    """
    return any(_fits_one(value, kind) for kind in _alternatives(annotation))


def read(value: object, annotation: Annotation) -> object:
    """Read a value, or a text of it, as the first of the annotated types that fits.

    Raises:
        ConfigError: It is of none of them.

    Examples:
        >>> read("1e-3", float), read("none", int | None), read("0.9, 0.99", tuple[float, float])
        (0.001, None, (0.9, 0.99))
    """
    alternatives = _alternatives(annotation)
    if isinstance(value, str) and str not in alternatives:
        value = _parse(value, alternatives)
    for kind in alternatives:
        if _plain(kind) is tuple and isinstance(value, list | tuple):
            return tuple(read(item, get_args(kind)[0]) for item in value)
        if _fits_one(value, kind):
            return float(value) if kind is float and isinstance(value, int) else value
    raise ConfigError(complaint(value, annotation))


def complaint(value: object, annotation: Annotation) -> str:
    """Say that a value is of none of the annotated types.

    Examples:
        >>> complaint("many", int | None)
        "must be a whole number or none, got 'many'"
    """
    names = choices(annotation)
    if names:
        return f"cannot be {value!r}; {list_choices(str(value), names)}"
    return f"must be {' or '.join(_WORDS[_plain(one)] for one in _alternatives(annotation))}, got {value!r}"


def rule_complaints(value: object, annotation: Annotation) -> list[str]:
    """Say which rules a value breaks; None and values of a wrong type break none.

    Examples:
        >>> rule_complaints(0, Annotated[int, Rule(lambda value: value > 0, "above 0")])
        ['must be above 0, got 0']
    """
    if value is None or not fits(value, annotation):
        return []
    return [words for rule in _rules(annotation) if (words := rule.complaint(value))]


def choices(annotation: Annotation) -> tuple[str, ...]:
    """Return the names that a field can take, where they are listed.

    Examples:
        >>> choices(Literal["adam", "sgd"] | None), choices(int)
        (('adam', 'sgd'), ())
    """
    ruled = [rule.names for rule in _rules(annotation) if isinstance(rule, OneOf)]
    listed = [get_args(one) for one in _alternatives(annotation) if _origin(one) is Literal]
    return tuple(str(choice) for names in [*ruled, *listed] for choice in names)


def describe(annotation: Annotation) -> str:
    """Say in a word or two what a field takes, for a line of help.

    Examples:
        >>> describe(int | None), describe(Literal["adam", "sgd"])
        ('WHOLE NUMBER', 'adam|sgd')
    """
    kinds = [one for one in _alternatives(annotation) if one is not NoneType]
    return "|".join(choices(annotation)) or _WORDS[_plain(kinds[0])].removeprefix("a ").upper()


def _alternatives(annotation: Annotation) -> tuple[Annotation, ...]:
    """Take ``Annotated`` and unions apart."""
    if _origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_args(annotation) if _origin(annotation) in (Union, UnionType) else (annotation,)


def _origin(kind: Annotation) -> Annotation:
    return get_origin(kind)


def _rules(annotation: Annotation) -> list[Rule | OneOf]:
    return [rule for rule in getattr(annotation, "__metadata__", ()) if isinstance(rule, Rule | OneOf)]


def _plain(kind: Annotation) -> Annotation:
    """Return the class behind a generic alias."""
    origin = _origin(kind) or kind
    return dict if origin is Mapping else origin


def _fits_one(value: object, kind: Annotation) -> bool:
    if _origin(kind) is Literal:
        return value in get_args(kind)
    kind = _plain(kind)
    if kind in (int, float):  # truth values are numbers to Python, but not to people
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _parse(text: str, alternatives: tuple[Annotation, ...]) -> object:
    """Read a text that a person wrote; what cannot be read stays a text, for the complaint."""
    kinds = [_plain(kind) for kind in alternatives]
    if any(text in get_args(kind) for kind in alternatives if _origin(kind) is Literal):
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
