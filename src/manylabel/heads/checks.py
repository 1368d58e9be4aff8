"""Checks of settings that several heads share; each raises an error that says what was given and what to do."""

from collections.abc import Iterable

from manylabel.errors import ConfigError, list_choices

__all__ = ["check_choice", "check_divides", "check_fraction", "check_positive"]


def check_positive(name: str, value: int) -> None:
    """Raise unless a setting is a whole number of at least 1.

    Examples:
        >>> check_positive("num_heads", 0)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: num_heads must be a whole number of at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_fraction(name: str, value: float) -> None:
    """Raise unless a setting lies in [0, 1).

    Examples:
        >>> check_fraction("dropout", 1.5)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: dropout must be at least 0 and below 1, got 1.5
    """
    if not 0.0 <= value < 1.0:
        raise ConfigError(f"{name} must be at least 0 and below 1, got {value!r}")


def check_divides(width: int, num_heads: int) -> None:
    """Raise unless the attention heads can share the width evenly.

    Examples:
        >>> check_divides(768, 5)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: width (768) must be a multiple of num_heads, got num_heads=5; try 4 or 6
    """
    check_positive("width", width)
    check_positive("num_heads", num_heads)
    if width % num_heads:
        below = next(count for count in range(num_heads, 0, -1) if width % count == 0)
        above = next(count for count in range(num_heads, width + 1) if width % count == 0)
        raise ConfigError(
            f"width ({width}) must be a multiple of num_heads, got num_heads={num_heads}; try {below} or {above}"
        )


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise unless a setting is one of the names there are.

    Examples:
        >>> check_choice("queries", "texts", ["random", "text"])
        Traceback (most recent call last):
        manylabel.errors.ConfigError: no queries 'texts'; did you mean 'text'? There is: random, text
    """
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"no {name} {value!r}; {list_choices(str(value), choices)}")
