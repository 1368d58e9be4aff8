"""Feature maps of image classifiers that are not timm's: torchvision's, by name or as an object, and others.

Letters in shape comments: B images, C channels, H and W positions of a map, N tokens.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torchvision import models

from manylabel.backbone.blueprint import TimmModel, build_on_meta, module_outputs
from manylabel.backbone.split import Call, trace_calls, without_rest
from manylabel.errors import ConfigError, list_choices

TORCHVISION = "torchvision:"  # prefix of the names of its models
# Names of the parts that turn features into logits, in torchvision's models
CLASSIFIERS = ("AuxLogits", "aux1", "aux2", "classifier", "fc", "head", "heads")
USUAL_WEIGHTS = models.ResNet50_Weights.IMAGENET1K_V1  # trained at 224 pixels, as most models are


def build_torchvision(name: str, image_size: int | None, *, pretrained: bool) -> "FeatureExtractor":
    """Build a torchvision model without its classifier.

    Args:
        name: ``"torchvision:"`` and a name in torchvision.
        image_size: Input size, for models built for a fixed one.
        pretrained: Load the pretrained weights.

    Raises:
        ConfigError: There is no such model.
        OSError: The pretrained weights are not on this machine and cannot be downloaded.
    """
    short, known = name.removeprefix(TORCHVISION), models.list_models(module=models)
    if short not in known:
        raise ConfigError(f"torchvision has no model {short!r}; {list_choices(short, known)}")
    weights = models.get_model_weights(short).DEFAULT
    model = _torchvision(short, image_size, weights if pretrained else None)
    return FeatureExtractor(model, image_size=image_size, preset=weights.transforms())


def find_name(model: TimmModel, image_size: int | None) -> str | None:
    """Return the name by which timm or torchvision builds a model with the same layers, or None.

    Args:
        model: A model of `adopt_model`.
        image_size: Its input size, if it was built for a fixed one.
    """
    if not isinstance(model, FeatureExtractor):
        name: str = model.pretrained_cfg["architecture"]
        return name if timm.is_model(name) and _shapes(build_on_meta(name, image_size)) == _shapes(model) else None
    names = models.list_models(module=models)
    for name in sorted(names, key=lambda name: models.get_model_weights(name).DEFAULT.meta["num_params"]):
        if models.get_model_builder(name).__module__ == model.pretrained_cfg["module"]:
            try:
                with torch.device("meta"):
                    built = _torchvision(name, image_size, None)
            except NotImplementedError:  # RegNet computes its widths with tensors
                built = _torchvision(name, image_size, None)
            same_shapes = _shapes(built) == _shapes(model.model)
            if same_shapes and repr(FeatureExtractor(built, image_size=image_size).model) == repr(model.model):
                return f"{TORCHVISION}{name}"
    return None


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    tensors = model.state_dict().items()
    return {name: tensor.shape for name, tensor in tensors if not name.startswith(CLASSIFIERS)}


def _torchvision(name: str, image_size: int | None, weights: models.WeightsEnum | None) -> nn.Module:
    options: dict[str, Any] = {"image_size": image_size} if image_size and name.startswith("vit_") else {}
    if name in {"googlenet", "inception_v3"} and weights is None:
        options["init_weights"] = True  # else it warns
    model: nn.Module = models.get_model(name, weights=weights, **options)
    return model


def adopt_model(model: nn.Module, image_size: int | None = None) -> TimmModel:
    """Return a ready model with timm's interface and without its classifier.

    Args:
        model: A model of timm's, which loses its classifier, or another image classifier, which stays as it is.
        image_size: Input size to examine it at, if it is not timm's.
    """
    if not hasattr(model, "forward_features") or not hasattr(model, "pretrained_cfg"):
        return FeatureExtractor(model, image_size=image_size)
    timm_model: TimmModel = model
    timm_model.reset_classifier(0)
    return timm_model


class FeatureExtractor(nn.Module):
    """An image classifier behind the part of timm's interface that a backbone needs.

    Its modules are found by running it once on shapes. The final map is the last output, before the classifier, that
    still has positions: the input of the pooling, or a transformer's tokens without the class token. Earlier stages
    are the last outputs of each resolution. Code between modules is not seen: torchvision's DenseNet applies its last
    ReLU there, so its final map is the one before it.

    Args:
        model: A model that maps images ``[B, 3, H, W]`` to logits. It stays as it is; its modules up to the final map
            are shared.
        image_size: Input size to examine it at (default: the one that it was made or trained for, or 224).
        preset: Transform of the images that it was trained on, as torchvision describes it.

    Raises:
        ConfigError: It does not run on images, or has no feature map.

    Examples:
        >>> from torchvision.models import resnet18
        >>> extractor = FeatureExtractor(resnet18())
        >>> [stage["reduction"] for stage in extractor.feature_info]
        [2, 4, 8, 16, 32]
        >>> extractor.forward_features(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 512, 2, 2])
    """

    def __init__(self, model: nn.Module, *, image_size: int | None = None, preset: Any = None) -> None:  # noqa: ANN401 (untyped in torchvision)
        super().__init__()
        name = type(model).__name__
        preset = preset or USUAL_WEIGHTS.transforms()
        side = image_size or getattr(model, "image_size", preset.crop_size[0])
        try:
            calls, _ = trace_calls(model, lambda other, images: other(images), size=(side, side))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{name} cannot be run on images [2, 3, {side}, {side}] ({error}); pass an image classifier"
            ) from error
        maps = {path: seen[-1] for path, seen in calls.items() if _has_positions(path, seen[-1].output)}
        if not maps:
            raise ConfigError(f"{name} has no feature map at {side} x {side} pixels for a head; choose another model")
        final = max(maps, key=lambda path: maps[path].end)
        self.model = without_rest(model, calls, final)
        self.feature_info = _stages(maps, final, side)
        self.num_features = self.feature_info[-1]["num_chs"]
        self.pretrained_cfg = {
            "architecture": name,
            "classifier": CLASSIFIERS,
            "module": type(model).__module__,
            "input_size": (3, side, side),
            "mean": tuple(preset.mean),
            "std": tuple(preset.std),
            "interpolation": preset.interpolation.value,
            "crop_pct": preset.crop_size[0] / preset.resize_size[0],
        }
        self.train(model.training)

    def forward(self, images: Tensor) -> Tensor:
        """Return the final map; see `forward_features`."""
        return self.forward_features(images)

    def forward_features(self, images: Tensor) -> Tensor:
        """Return the final map ``[B, C, H, W]``."""
        (final,), _ = module_outputs(self, [self.feature_info[-1]["module"]], lambda: self.model(images))
        if final.ndim == 4:
            return final
        side = isqrt(final.shape[1])  # tokens [B, N, C]
        return final[:, -(side**2) :].transpose(1, 2).reshape(-1, final.shape[2], side, side)


def _has_positions(path: str, output: object) -> bool:
    """Return whether a module before the classifier returns a map of more than one position, or tokens."""
    if path == "" or not {*CLASSIFIERS}.isdisjoint(path.split(".")) or not isinstance(output, Tensor):
        return False
    return output.ndim == 3 or (output.ndim == 4 and output.shape[2:].numel() > 1)


def _stages(maps: Mapping[str, Call], final: str, side: int) -> list[dict[str, Any]]:
    """List the stages as timm does: channels, stride and module of each, the final one last."""
    output = maps[final].output
    channels, rows = (output.shape[2], isqrt(output.shape[1])) if output.ndim == 3 else output.shape[1:3]
    chain = {"", final, final.rpartition(".")[0]}  # inside a stage there are maps of the resolution before it
    ends: dict[int, dict[str, Any]] = {}  # by stride
    for path, call in sorted(maps.items(), key=lambda item: item[1].end):
        # images are square, and so are maps [B, C, H, W]
        is_map = call.output.ndim == 4 and call.output.shape[2] == call.output.shape[3] > rows
        if is_map and path.rpartition(".")[0] in chain:
            stride = round(side / call.output.shape[2])
            ends[stride] = {"num_chs": call.output.shape[1], "reduction": stride, "module": f"model.{path}"}
    last = {"num_chs": channels, "reduction": max(1, round(side / rows)), "module": f"model.{final}"}
    return [*(ends[stride] for stride in sorted(ends)), last]
