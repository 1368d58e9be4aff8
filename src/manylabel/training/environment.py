"""What a run ran on: versions, machine and device."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import torch

__all__ = ["describe_environment"]

PACKAGES = ("manylabel", "torch", "torchvision", "timm", "lightning", "torchmetrics", "numpy", "pillow", "onnxruntime")


def describe_environment() -> dict[str, object]:
    """Return versions of Python and the libraries that shape the numbers, the machine and its GPUs.

    Examples:
        >>> describe_environment()["python"] == platform.python_version()
        True
    """
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
