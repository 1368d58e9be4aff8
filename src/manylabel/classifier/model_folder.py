"""A model on disk: a folder of tensors and JSON. Nothing is pickled, so loading one can never run code.

model/
├── model.safetensors   the weights
├── config.json         format version, backbone, head, their settings, input, thresholds, calibration, library versions
└── labels.json         the label space
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from manylabel.errors import LabelError, ModelFormatError
from manylabel.storage import replacing_folder, write_text
from manylabel.types import LabelSpace

__all__ = [
    "FORMAT_VERSION",
    "MODEL_FILES",
    "SavedModel",
    "StoredForm",
    "change_config",
    "read_model",
    "stored_form",
    "write_model",
]

FORMAT_VERSION = 1
MODEL_FILES = WEIGHTS, CONFIG, LABELS = "model.safetensors", "config.json", "labels.json"


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds.

    Args:
        config: The backbone, the head, their settings and all else but weights and labels.
        labels: The labels, in the order of the logits.
        tensors: The weights, by their name in the state dict.
    """

    config: Mapping[str, Any]
    labels: LabelSpace
    tensors: Mapping[str, Tensor]


def write_model(model: SavedModel, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model folder in one move.

    Args:
        model: What to write.
        folder: Where; its parents are made.
        overwrite: Whether the model in a folder that is there may be replaced; files of others in it stay.

    Returns:
        The folder.

    Raises:
        OutputExistsError: The folder is there and `overwrite` is false.
        ModelFormatError: A setting cannot be written as JSON.
    """
    header = {"format": "manylabel", "format_version": FORMAT_VERSION, "versions": _versions()}
    try:
        config = json.dumps(header | dict(model.config), indent=2)
    except TypeError as error:
        raise ModelFormatError(f"a setting of the model cannot be saved as JSON: {error}; use plain values") from error
    with replacing_folder(folder, overwrite=overwrite) as temporary:
        if Path(folder).is_dir():
            shutil.copytree(folder, temporary, ignore=_own_files(folder), symlinks=True, dirs_exist_ok=True)
        # Contiguous copies: safetensors refuses views that share memory.
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.tensors.items()}
        save_file(tensors, temporary / WEIGHTS)
        write_text(temporary / CONFIG, config + "\n")
        write_text(temporary / LABELS, json.dumps(model.labels.to_dict(), indent=2, ensure_ascii=False) + "\n")
    return Path(folder)


def read_model(folder: str | Path) -> SavedModel:
    """Read a model folder, refusing what this version does not understand.

    Args:
        folder: A folder that `write_model` wrote.

    Returns:
        What it holds, on the CPU.

    Raises:
        ModelFormatError: The folder is missing, damaged, not ours, or from a newer version.
    """
    folder = Path(folder)
    missing = [name for name in (CONFIG, LABELS, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else None
        found = "there is no such folder" if there is None else f"it holds: {', '.join(there) or 'nothing'}"
        raise ModelFormatError(f"{folder} is not a manylabel model: {' and '.join(missing)} missing; {found}")
    config = _read_json(folder / CONFIG)
    _check_version(folder, config)
    try:
        labels = LabelSpace.from_dict(_read_json(folder / LABELS))
    except (KeyError, LabelError) as error:
        raise ModelFormatError(f"{folder / LABELS} does not hold labels ({error}); the model is damaged") from error
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ModelFormatError(f"{folder / WEIGHTS} is damaged ({error}); copy or download it again") from error
    return SavedModel(config, labels, tensors)


@dataclass(frozen=True)
class StoredForm:
    """How much of a model is on disk: what `Classifier.save` was told.

    Args:
        include_backbone: Whether the backbone's weights are there.
        half: Whether weights are float16.
    """

    include_backbone: bool
    half: bool


def stored_form(folder: str | Path) -> StoredForm:
    """Return the form that a model folder has, to write it in the same one again.

    Raises:
        ModelFormatError: The folder is missing, damaged, not ours, or from a newer version.
    """
    saved = read_model(folder)
    kinds = {tensor.dtype for tensor in saved.tensors.values() if tensor.is_floating_point()}
    return StoredForm(saved.config["backbone"]["fingerprint"] is None, kinds == {torch.float16})


def change_config(folder: str | Path, changes: Mapping[str, Any]) -> None:
    """Change settings of a model on disk, such as its thresholds; all else stays as it is.

    Args:
        folder: A folder that `write_model` wrote.
        changes: The settings by their names in ``config.json``.

    Raises:
        ModelFormatError: The folder is not a model of this version.
    """
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ModelFormatError(f"{folder} is not a manylabel model: {CONFIG} missing")
    config = _read_json(path)
    _check_version(Path(folder), config)
    write_text(path, json.dumps(config | dict(changes), indent=2) + "\n", overwrite=True)


def _own_files(folder: str | Path) -> Callable[[str, list[str]], Sequence[str]]:
    """Return what tells `shutil.copytree` to leave out the model in a folder, but not other models below it."""
    return lambda visited, _: MODEL_FILES if Path(visited) == Path(folder) else ()


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object or say that the file is damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFormatError(f"{path} is damaged ({error}); copy or download it again") from error
    if not isinstance(values, dict):
        raise ModelFormatError(
            f"{path} should hold a JSON object, got a {type(values).__name__}; is it another tool's?"
        )
    return values


def _check_version(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse folders of other tools and of newer versions."""
    if config.get("format") != "manylabel":
        raise ModelFormatError(f"{folder / CONFIG} was not written by manylabel; give a folder that `save` wrote")
    found = config.get("format_version")
    if found != FORMAT_VERSION:
        writer = config.get("versions", {}).get("manylabel", "another version")
        raise ModelFormatError(
            f"{folder} has format version {found}, written by manylabel {writer}; this version reads {FORMAT_VERSION}: "
            "update manylabel (pip install --upgrade manylabel) or save the model again"
        )


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that shape the numbers."""
    return {name: version(name) for name in ("manylabel", "torch", "torchvision", "timm")}
