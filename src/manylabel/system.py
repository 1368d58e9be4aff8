"""The machine and its installed packages: cores this process may use, and optional dependencies."""

import os
from importlib import import_module
from types import ModuleType

from manylabel.errors import MissingExtraError

__all__ = ["available_cores", "require"]


def available_cores() -> int:
    """Return the number of cores that this process may use; containers and batch jobs often allow fewer than exist.

    Examples:
        >>> available_cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require(module: str, *, extra: str) -> ModuleType:
    """Import a module of an optional dependency.

    Args:
        module: Import name of the module, such as ``"onnxruntime"``.
        extra: Extra of manylabel that installs it.

    Returns:
        The module.

    Raises:
        MissingExtraError: The module is not installed.

    Examples:
        >>> require("json", extra="onnx").dumps([1])
        '[1]'
        >>> require("no_such_module", extra="onnx")
        Traceback (most recent call last):
        manylabel.errors.MissingExtraError: no_such_module is not installed; run: pip install "manylabel[onnx]"
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or package != error.name.partition(".")[0]:
            raise  # the extra is installed, but something inside it is broken: do not hide that
        raise MissingExtraError(f'{package} is not installed; run: pip install "manylabel[{extra}]"') from error
