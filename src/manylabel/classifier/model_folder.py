"""Model folders: tensors and JSON, on disk or in a repository on the Hugging Face hub.

model/
├── model.safetensors   weights
├── config.json         `ModelConfig`: format version, backbone, head, input, thresholds, calibration, library versions
└── labels.json         label space

Nothing is pickled: loading a model never runs code. All JSON is checked against the types here.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from manylabel.builtin import MODEL_FILES
from manylabel.classifier.engine import ScoreCalibration
from manylabel.errors import LabelError, ModelFormatError
from manylabel.heads.config import HeadConfig
from manylabel.storage import decode_json, replacing_folder, write_text
from manylabel.text import TextVocabulary
from manylabel.types import InputSpec, LabelSpace

FORMAT_VERSION = 1
WEIGHTS, CONFIG, LABELS = MODEL_FILES
LARGEST_JSON = 256_000_000  # bytes; a million labels with thresholds and descriptions take less


class BackboneConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backbone of a saved model.

    Attributes:
        name: Name for `Backbone`.
        frozen: Whether its weights are not trained.
        stages: Stages that the head uses.
        image_size: Input size that it was built for.
        fingerprint: Fingerprint of its weights if the folder does not include them, else None.
    """

    name: str
    frozen: bool
    stages: tuple[int, ...]
    image_size: int | None
    fingerprint: str | None


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of ``config.json``: everything except weights and labels.

    Attributes:
        backbone: Backbone.
        head: Head.
        input: Size and normalisation of images.
        single_label: Whether every image has exactly one label.
        thresholds: Minimum score of each label to count as present.
        text: Text encoder of the labels, if they are text queries.
        calibration: Calibration of the scores, if any.
        format: Always ``"manylabel"``.
        format_version: Version of this layout.
        versions: Versions of the libraries that wrote the folder.
    """

    backbone: BackboneConfig
    head: HeadConfig
    input: InputSpec
    single_label: bool
    thresholds: tuple[float, ...] | None
    text: TextVocabulary | None = None
    calibration: ScoreCalibration | None = None
    format: str = "manylabel"
    format_version: int = FORMAT_VERSION
    versions: dict[str, str] = {}


class _Header(msgspec.Struct):
    """Part of ``config.json`` common to all versions."""

    format: str = ""
    format_version: int = 0
    versions: dict[str, str] = {}


@dataclass(frozen=True)
class SavedModel:
    """Content of a model folder.

    Args:
        config: Backbone, head and settings.
        labels: Labels, in the order of the logits.
        tensors: Weights, by their name in the state dict.
    """

    config: ModelConfig
    labels: LabelSpace
    tensors: Mapping[str, Tensor]

    @property
    def includes_backbone(self) -> bool:
        """True if the backbone's weights are among the tensors."""
        return self.config.backbone.fingerprint is None

    @property
    def is_half(self) -> bool:
        """True if weights are float16."""
        return {tensor.dtype for tensor in self.tensors.values() if tensor.is_floating_point()} == {torch.float16}


def write_model(model: SavedModel, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model folder atomically.

    Args:
        model: Model to write.
        folder: Destination; parent folders are created.
        overwrite: Whether to replace an existing model; other files in its folder stay.

    Returns:
        The folder.

    Raises:
        OutputExistsError: The folder exists and `overwrite` is false.
        ModelFormatError: A setting cannot be written as JSON.
    """
    versions = {name: version(name) for name in ("manylabel", "torch", "torchvision", "timm")}
    config = _encode(msgspec.structs.replace(model.config, versions=versions))

    def own_files(visited: str, _: list[str]) -> Sequence[str]:
        """Omit the model files of the folder, which may be links, but not those of its subfolders."""
        return MODEL_FILES if Path(visited) == Path(folder) else ()

    with replacing_folder(folder, overwrite=overwrite) as temporary:
        if Path(folder).is_dir():
            shutil.copytree(folder, temporary, ignore=own_files, symlinks=True, dirs_exist_ok=True)
        # Contiguous copies: safetensors refuses views that share memory.
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.tensors.items()}
        save_file(tensors, temporary / WEIGHTS)
        write_text(temporary / CONFIG, config)
        write_text(temporary / LABELS, _encode(model.labels.to_dict()))
    return Path(folder)


def read_model(folder: str | Path) -> SavedModel:
    """Read and validate a model folder.

    Args:
        folder: Folder that `write_model` wrote.

    Returns:
        The content, on the CPU.

    Raises:
        ModelFormatError: The folder is missing, damaged, not a manylabel model, or from a newer version.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFormatError(f"{folder} is not a manylabel model: there is no such folder")
    missing = [name for name in (CONFIG, LABELS, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:20]) or "nothing"
        raise ModelFormatError(f"{folder} is not a manylabel model: {', '.join(missing)} missing; it holds: {found}")
    config = decode_json(_checked_config(folder), ModelConfig, source=folder / CONFIG)
    values = decode_json(_read_json(folder / LABELS), dict[str, Any], source=folder / LABELS)
    try:
        labels = LabelSpace.from_dict(values)
    except LabelError as error:
        raise ModelFormatError(f"{folder / LABELS} does not hold labels ({error}); the model is damaged") from error
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelFormatError(f"{folder / WEIGHTS} is damaged ({error}); copy or download it again") from error
    # a finite sum is quick proof of finite values
    broken = [name for name, tensor in tensors.items() if not (tensor.sum().isfinite() or tensor.isfinite().all())]
    if broken:
        raise ModelFormatError(f"{folder / WEIGHTS} has weights of inf or nan ({broken[0]}); train the model again")
    return SavedModel(config, labels, tensors)


def change_config(folder: str | Path, changes: Mapping[str, Any]) -> None:
    """Change settings of a model on disk, such as its thresholds.

    Args:
        folder: Folder that `write_model` wrote.
        changes: Fields of `ModelConfig`.

    Raises:
        ModelFormatError: The folder is not a model of this version.
    """
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ModelFormatError(f"{folder} is not a manylabel model: {CONFIG} missing")
    old = decode_json(_checked_config(Path(folder)), ModelConfig, source=path)
    changed = decode_json(_encode(msgspec.structs.replace(old, **changes)), ModelConfig, source=path)
    write_text(path, _encode(changed), overwrite=True)


def _encode(values: object) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(values), indent=2).decode() + "\n"
    except (TypeError, ValueError) as error:
        raise ModelFormatError(f"a setting of the model cannot be saved as JSON: {error}; use plain values") from error


def _read_json(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ModelFormatError(f"{path} has {path.stat().st_size / 1e6:,.0f} MB, far too large; it is damaged")
        return path.read_bytes()
    except OSError as error:
        raise ModelFormatError(f"cannot read {path}: {error.strerror}") from error


def _checked_config(folder: Path) -> bytes:
    """Return ``config.json`` after checking its format and version."""
    content = _read_json(folder / CONFIG)
    header = decode_json(content, _Header, source=folder / CONFIG)
    if header.format != "manylabel":
        raise ModelFormatError(f"{folder / CONFIG} was not written by manylabel; pass a folder of `save_pretrained`")
    if header.format_version != FORMAT_VERSION:
        writer = header.versions.get("manylabel", "another version")
        raise ModelFormatError(
            f"{folder} has format version {header.format_version}, written by manylabel {writer}; this version reads "
            f"{FORMAT_VERSION}: update manylabel (pip install --upgrade manylabel) or save the model again"
        )
    return content
