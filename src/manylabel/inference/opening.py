"""From a model's name to what runs it: on a CPU an export in the cache, made once and checked, else torch."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from manylabel.builtin import BUILTIN, local_model
from manylabel.errors import ConfigError, ModelFormatError
from manylabel.inference.engines import Engine, OnnxEngine
from manylabel.storage import cache_folder

if TYPE_CHECKING:  # a model that was exported before must not wait for torch
    from manylabel.classifier import Classifier

__all__ = ["EXPORTS", "EngineName", "export_path", "open_engine", "shown_name"]

logger = logging.getLogger(__name__)

EngineName = Literal["auto", "onnx", "torch"]
"""What runs a model; ``"auto"`` is onnxruntime on a CPU where it is installed, else torch."""

EXPORTS = "models"  # the folder of exported models in the cache


def open_engine(
    model: str | Path,
    *,
    engine: EngineName = "auto",
    labels: Sequence[str] | None = None,
    device: str | None = None,
    num_threads: int | None = None,
) -> Engine:
    """Open a model for prediction.

    Args:
        model: An ``.onnx`` file that was exported, a model's folder, ``builtin:NAME``, or a name on the hub.
        engine: What to run it with.
        labels: Other labels than its own, for models that can tell labels they have not seen.
        device: Where torch runs it, such as ``"cuda"``; the CPU when left out.
        num_threads: Threads on a CPU; as many as there are cores when left out.

    Returns:
        What turns pixels into scores.

    Raises:
        ModelFormatError: There is no such model.
        ConfigError: The engine cannot run it, or it cannot tell other labels.
        MissingExtraError: The engine is ``"onnx"`` and onnxruntime is not installed.
    """
    if Path(model).suffix.lower() == ".onnx":
        if engine == "torch" or labels is not None:
            raise ConfigError(
                f"{model} is exported: it runs in onnxruntime, with its own labels; give the model itself"
            )
        return OnnxEngine(model, num_threads=num_threads)
    folder = local_model(model) or _download(model)
    is_cpu = device is None or device == "cpu"
    if engine == "onnx" and not is_cpu:
        raise ConfigError(f"onnxruntime runs models on the CPU here, not on {device}; leave out device or engine")
    if engine == "torch" or not is_cpu or (engine == "auto" and not _is_installed()):
        return _open_torch(folder, labels, device, num_threads)
    path = export_path(folder, labels)
    if path.is_file():
        try:
            return OnnxEngine(path, num_threads=num_threads)
        except ModelFormatError as error:
            logger.warning("the export in the cache is made again: %s", error)
    return _export(folder, labels, path, must=engine == "onnx", num_threads=num_threads)


def export_path(folder: Path, labels: Sequence[str] | None = None) -> Path:
    """Return where the export of a model is or will be: another place for other weights, settings or versions.

    Args:
        folder: The model's folder.
        labels: Other labels than its own.
    """
    digest = hashlib.blake2b(digest_size=12)
    for name in ("config.json", "labels.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ModelFormatError(f"{folder} is not a manylabel model: {name} missing")
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    versions = [version(package) for package in ("manylabel", "torch", "timm")]
    digest.update(repr((versions, None if labels is None else list(labels))).encode())
    return cache_folder() / EXPORTS / f"{digest.hexdigest()}.onnx"


def shown_name(model: str | Path) -> str:
    """Return what answers call a model: never where it lies.

    Examples:
        >>> shown_name("builtin:coco80"), shown_name("someone/street-tagger")
        ('builtin:coco80', 'someone/street-tagger')
    """
    path = Path(model)
    if str(model).startswith(BUILTIN) or not path.exists():  # of the package or the hub
        return str(model)
    path = path.resolve()
    return path.parent.name if path.name == "model" and path.parent.name else path.stem


def _is_installed() -> bool:
    found = all(find_spec(name) is not None for name in ("onnxruntime", "onnxscript"))
    if not found:
        logger.warning('torch runs the model; onnxruntime is twice as fast: pip install "manylabel[onnx]"')
    return found


def _download(model: str | Path) -> Path:
    from manylabel.classifier import find_model

    return find_model(model)


def _load(folder: Path, labels: Sequence[str] | None) -> Classifier:
    from manylabel.classifier import Classifier

    classifier = Classifier.load(folder)
    return classifier if labels is None else classifier.with_labels(list(labels))


def _open_torch(folder: Path, labels: Sequence[str] | None, device: str | None, num_threads: int | None) -> Engine:
    import torch

    from manylabel.inference.inference_module import TorchEngine

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    return TorchEngine(_load(folder, labels), device=device)


def _export(folder: Path, labels: Sequence[str] | None, path: Path, *, must: bool, num_threads: int | None) -> Engine:
    """Export a model into the cache; where that fails, torch runs it unless it must not."""
    from manylabel.inference.export import export_onnx
    from manylabel.inference.inference_module import TorchEngine

    classifier = _load(folder, labels)
    try:
        export = export_onnx(classifier, path, any_size=False, overwrite=True)
    except (ConfigError, OSError) as error:
        if must:
            raise
        logger.warning("torch runs the model: %s", error)
        return TorchEngine(classifier)
    logger.info("exported the model to %s; scores differ by %.1e at most", path, export.difference)
    return OnnxEngine(path, num_threads=num_threads)
