"""Heads, losses, readers and backbones that installed packages add by entry points."""

from collections import UserDict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from manylabel.errors import ConfigError

Value = TypeVar("Value")


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; nothing is imported.

    Args:
        group: Such as ``"manylabel.heads"``.
    """
    return {point.name: point for point in entry_points(group=group)}


class Registry(UserDict[str, Value]):
    """Objects by name: those of this package, then those of installed packages, imported on first use.

    Args:
        group: Group of entry points.
        own: Objects of this package; a plug-in cannot replace them.

    Examples:
        >>> numbers = Registry("manylabel.no_such_group", {"one": 1})
        >>> "one" in numbers, "two" in numbers, list(numbers)
        (True, False, ['one'])
    """

    def __init__(self, group: str, own: Mapping[str, Value]) -> None:
        super().__init__(own)
        self.group = group

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in plugins(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.data, **plugins(self.group)})

    def __len__(self) -> int:
        return len({**self.data, **plugins(self.group)})

    def __missing__(self, name: str) -> Value:
        point = plugins(self.group)[name]
        try:
            value: Value = point.load()
        except Exception as error:
            package = "an unknown package" if point.dist is None else point.dist.name
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"{name!r} of {package} ({self.group}, {point.value}) cannot be imported: {reason}; "
                "fix or uninstall that package"
            ) from error
        return self.data.setdefault(name, value)

    def name_of(self, value: Value) -> str | None:
        """Return the name of an object, or None; of the plug-ins, only those of its own package are imported."""
        package = str(getattr(value, "__module__", "")).partition(".")[0]
        near = (name for name, point in plugins(self.group).items() if point.module.partition(".")[0] == package)
        return next((name for name in (*self.data, *near) if self[name] is value), None)
