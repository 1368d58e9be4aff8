"""Engines that score pixels: onnxruntime on a CPU, with a cache of exports, else torch.

Letters in shape comments: B images, H and W pixels, L labels.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.builtin import BUILTIN, CLIP, DEFAULT_MODEL, find_model
from manylabel.engine import Engine
from manylabel.errors import ConfigError, MissingExtraError, ModelFormatError
from manylabel.images import Pixels
from manylabel.onnx_files import open_session
from manylabel.predictions import METADATA_KEY, InferenceSpec
from manylabel.storage import cache_folder
from manylabel.system import device_name

if TYPE_CHECKING:  # a cached export must not wait for torch
    from manylabel.classifier import Classifier

logger = logging.getLogger(__name__)

EngineName = Literal["auto", "onnx", "torch"]
"""Inference backend; ``"auto"`` is onnxruntime on a CPU if worthwhile, else torch."""

EXPORTS = "models"  # folder of exported models in the cache
FEW_IMAGES = 200  # for fewer images, torch is faster than exporting first
ONE_BATCH = 32  # for fewer images, fusing does not pay off


class OnnxEngine(Engine):
    """Run an ONNX file written by `export_onnx` in onnxruntime.

    Args:
        path: The ``.onnx`` file.
        num_threads: Threads of onnxruntime (default: one per core).

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ModelFormatError: The file is missing, damaged, or not a manylabel export.
    """

    def __init__(self, path: str | Path, *, num_threads: int | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise ModelFormatError(f"there is no file {path}; write it with: manylabel export --model MODEL")
        try:
            self.session = open_session(path, num_threads=num_threads)
        except ImportError:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ModelFormatError(f"{path} cannot be opened by onnxruntime ({reason}); export it again") from error
        metadata = self.session.get_modelmeta().custom_metadata_map
        if METADATA_KEY not in metadata:
            raise ModelFormatError(f"{path} has no labels; use a file written by `manylabel export`")
        self.spec = InferenceSpec.from_json(metadata[METADATA_KEY], source=str(path))
        outputs = {output.name: output.shape[-1] for output in self.session.get_outputs()}
        if outputs.get("scores") != len(self.spec.labels):
            found = f"{outputs.get('scores', 'no')} scores for {len(self.spec.labels)} labels"
            raise ModelFormatError(f"{path} has {found}; export it again")

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for images ``[B, H, W, 3]``."""
        return self._run("scores", pixels)

    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return logits ``[B, L]`` before calibration."""
        return self._run("logits", pixels)

    def _run(self, output: str, pixels: Pixels) -> NDArray[np.float32]:
        (values,) = self.session.run([output], {"images": np.ascontiguousarray(pixels)})
        return np.asarray(values, dtype=np.float32)


def open_engine(
    model: str | Path = DEFAULT_MODEL,
    *,
    engine: EngineName = "auto",
    labels: Sequence[str] | None = None,
    device: str = "auto",
    num_threads: int | None = None,
    num_images: int | None = None,
    notify: Callable[[str], object] = logger.info,
) -> Engine:
    """Open a model for prediction.

    Args:
        model: An exported ``.onnx`` file, a model folder, ``builtin:NAME``, a name on the Hugging Face hub, or
            ``clip:MODEL``, an image-text model of open_clip, which needs labels.
        engine: Inference backend.
        labels: Labels to score instead of its own, for models with text queries.
        device: Torch device, such as ``"cuda"``; ``"auto"`` is a GPU if available, and the CPU for onnxruntime.
        num_threads: Threads on a CPU (default: one per core).
        num_images: Number of images to score, if known; few images do not justify an export.
        notify: Called with a status message when loading takes time.

    Raises:
        ModelFormatError: There is no such model.
        ConfigError: The engine or the device cannot run it, or it cannot score other labels.
        MissingExtraError: The model is not exported, and torch is not installed.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
        >>> engine = open_engine(model.save_pretrained(Path(tempfile.mkdtemp()) / "model"), engine="torch")
        >>> image, bad = engine.predict([Image.new("RGB", (64, 48)), b"no image"])
        >>> image.error, bad.error
        (None, "it is not an image in a supported format ...")
    """
    if is_exported(model) and (engine == "torch" or labels is not None):
        raise ConfigError(
            f"{model} is exported: it runs in onnxruntime on the CPU, with its own labels; pass the original model"
        )
    device = engine_device(model, device, engine=engine)
    if is_exported(model):
        return OnnxEngine(model, num_threads=num_threads)
    if str(model).startswith(CLIP):
        if engine == "onnx":
            raise ConfigError(f"{model} runs in torch; omit the engine")
        if labels is None:
            raise ConfigError(f"{model} has no labels of its own; give them, such as --labels 'zebra,sunset'")
        return _open_torch(str(model), labels, device, num_threads)
    folder = find_model(model)
    graph = folder / "model.onnx"
    if str(model).startswith(BUILTIN) and graph.is_file() and engine != "torch" and device == "cpu" and labels is None:
        return OnnxEngine(graph, num_threads=num_threads)  # needs neither torch nor an export
    if find_spec("torch") is None:
        raise MissingExtraError(
            f'{shown_name(model)} is not exported and needs torch; run: pip install "manylabel[train]", or export the '
            "model where torch is installed and pass the .onnx file"
        )
    if engine == "torch" or device != "cpu":
        return _open_torch(folder, labels, device, num_threads)
    path = export_path(folder, labels)
    if path.is_file():
        try:
            return OnnxEngine(path, num_threads=num_threads)
        except ModelFormatError as error:
            logger.warning("exporting the model again: %s", error)
    if engine == "auto" and num_images is not None and num_images < FEW_IMAGES:
        notify(f"Running the model in torch; an export to onnxruntime pays off from {FEW_IMAGES} images.")
        return _open_torch(folder, labels, device, num_threads, fuse=num_images >= ONE_BATCH)
    notify("Exporting the model to onnxruntime (once, about half a minute).")
    return _export(folder, labels, path, must=engine == "onnx", num_threads=num_threads)


def export_path(folder: Path, labels: Sequence[str] | None = None) -> Path:
    """Return the path of a model's export in the cache, unique for its weights, settings and versions.

    Args:
        folder: Model folder.
        labels: Labels to score instead of its own.
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
    """Return the public name of a model, never its path.

    Examples:
        >>> shown_name("builtin:everyday"), shown_name("someone/street-tagger")
        ('builtin:everyday', 'someone/street-tagger')
    """
    path = Path(model)
    if str(model).startswith(BUILTIN) or not path.exists():  # builtin, or on the hub
        return str(model)
    path = path.resolve()
    return path.parent.name if path.name == "model" and path.parent.name else path.stem


def is_exported(model: str | Path) -> bool:
    """Return whether a model is an exported file."""
    return Path(model).suffix.lower() == ".onnx"


def engine_device(model: str | Path, device: str = "auto", *, engine: EngineName = "auto") -> str:
    """Return the device that a model runs on; same arguments as `open_engine`.

    Raises:
        ConfigError: There is no such device, or onnxruntime, which runs on the CPU only, cannot use it.

    Examples:
        >>> engine_device("tagger.onnx")
        'cpu'
    """
    if not is_exported(model) and engine != "onnx":
        return device_name(device)
    if device not in ("auto", "cpu"):
        raise ConfigError(f"onnxruntime runs on the CPU only, got device {device}; omit the device or the engine")
    return "cpu"


def _load(folder: Path | str, labels: Sequence[str] | None) -> "Classifier":
    from manylabel.classifier import Classifier

    classifier = Classifier.from_pretrained(folder)
    return classifier if labels is None else classifier.with_labels(list(labels))


def _open_torch(
    folder: Path | str, labels: Sequence[str] | None, device: str, num_threads: int | None, *, fuse: bool = True
) -> Engine:
    import torch

    from manylabel.classifier import TorchEngine

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    return TorchEngine(_load(folder, labels), device=device, fuse=fuse)


def _export(folder: Path, labels: Sequence[str] | None, path: Path, *, must: bool, num_threads: int | None) -> Engine:
    """Export a model into the cache; fall back to torch if that fails and `must` is false."""
    from manylabel.classifier import TorchEngine
    from manylabel.inference.export import export_onnx

    classifier = _load(folder, labels)
    try:
        export = export_onnx(classifier, path, any_size=False, overwrite=True)
    except (ConfigError, OSError) as error:
        if must:
            raise
        logger.warning("torch runs the model: %s", error)
        return TorchEngine(classifier)
    logger.info("exported the model to %s; maximum score difference %.1e", path, export.difference)
    return OnnxEngine(path, num_threads=num_threads)
