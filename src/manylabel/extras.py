"""Optional dependencies: imported only where they are used, with an error that names the install line."""

from importlib import import_module
from types import ModuleType

from manylabel.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str) -> ModuleType:
    """Import a module of an optional dependency.

    Args:
        module: The module's import name, such as ``"onnxruntime"``.
        extra: The extra of manylabel that installs it.

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
        if error.name is None or module.partition(".")[0] != error.name.partition(".")[0]:
            raise  # the extra is there, something inside it is broken: do not hide that
        package = module.partition(".")[0]
        raise MissingExtraError(f'{package} is not installed; run: pip install "manylabel[{extra}]"') from error
