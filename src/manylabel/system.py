"""The machine and its installed packages: available cores, devices and optional dependencies."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from manylabel.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:  # imported only when a device is selected
    import torch

GPU_FILES = ("/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/dxg", "/dev/kfd")  # NVIDIA, its Jetson, in WSL, AMD


def available_cores() -> int:
    """Return the number of cores available to this process; containers and batch jobs often allow fewer than exist.

    Examples:
        >>> available_cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(*, on_gpu: bool = False) -> int:
    """Return the default number of decoding processes, at most 8: half of the cores, or all if the model is on a GPU.

    Args:
        on_gpu: Whether the model runs on a GPU.

    Examples:
        >>> 1 <= default_workers() <= default_workers(on_gpu=True) <= 8
        True
    """
    cores = available_cores()
    return min(8, cores if on_gpu else max(1, cores // 2))


def device_name(name: str = "auto") -> str:
    """Return the device that a name stands for; torch is not imported where there can be no GPU.

    Args:
        name: As in `find_device`.

    Raises:
        ConfigError: There is no such device.

    Examples:
        >>> device_name("cpu")
        'cpu'
    """
    return "cpu" if name == "cpu" or (name == "auto" and not _may_have_gpu()) else str(find_device(name))


def _may_have_gpu() -> bool:
    """Return whether this machine may have a GPU that torch can use; only torch knows if it has."""
    if find_spec("torch") is None:
        return False
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    return shutil.which("nvidia-smi") is not None or any(Path(file).exists() for file in GPU_FILES)


def find_device(name: "str | torch.device", *, count: int = 1) -> "torch.device":
    """Return a torch device, after checking that this machine has it.

    Args:
        name: Name such as ``"cpu"``, ``"cuda"`` or ``"cuda:1"``, or ``"auto"`` for a GPU if there is one.
        count: Number of devices of this kind to use; any number of CPU processes.

    Raises:
        ConfigError: There is no such device, or there are fewer than `count`.

    Examples:
        >>> find_device("cpu")
        device(type='cpu')
        >>> find_device("gpu")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: there is no device 'gpu'; use cpu, cuda, cuda:NUMBER or mps
    """
    import torch

    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    counts = {"cuda": num_gpus, "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    try:
        device = torch.device(next(kind for kind, found in counts.items() if found) if name == "auto" else name)
    except RuntimeError:
        raise ConfigError(f"there is no device {str(name)!r}; use cpu, cuda, cuda:NUMBER or mps") from None
    found = counts.get(device.type, 0)
    if not found:
        raise ConfigError(f"this machine has no {device.type} device that torch can use; use auto or cpu")
    if device.type != "cpu" and (device.index or 0) >= found:
        raise ConfigError(f"there is no device {device}: this machine has {found}, counted from 0")
    if device.type != "cpu" and count > found:
        raise ConfigError(f"devices is {count}, but this machine has {found} of type {device.type}; lower devices")
    return device


def require(module: str, *, extra: str | None = None) -> ModuleType:
    """Import an optional dependency.

    Args:
        module: Import name of the module, such as ``"onnxruntime"``.
        extra: Extra of manylabel that installs it (default: the package itself).

    Returns:
        The module.

    Raises:
        MissingExtraError: The module is not installed.

    Examples:
        >>> require("json", extra="text").dumps([1])
        '[1]'
        >>> require("no_such_module", extra="text")
        Traceback (most recent call last):
        manylabel.errors.MissingExtraError: no_such_module is not installed; run: pip install "manylabel[text]"
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or package != error.name.partition(".")[0]:
            raise  # installed, but broken inside: do not hide that
        name = package if extra is None else f'"manylabel[{extra}]"'
        raise MissingExtraError(f"{package} is not installed; run: pip install {name}") from error


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn a missing module into an error that names the extra ``train``; modules of other extras are for `require`.

    Raises:
        MissingExtraError: A module is not installed.

    Examples:
        >>> with naming_extras():
        ...     raise ModuleNotFoundError("No module named 'torch'", name="torch")
        Traceback (most recent call last):
        manylabel.errors.MissingExtraError: torch is not installed; run: pip install "manylabel[train]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(f'{error.name} is not installed; run: pip install "manylabel[train]"') from error
