"""Architecture of a timm model, found on torch's meta device, and its feature maps in one layout.

timm's models give NCHW, NHWC or tokens, with or without prefix tokens; heads get ``[B, C, H, W]`` from all of them.

Letters in shape comments: B images, C channels, H and W positions of a map, N tokens.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias, TypeVar

import timm
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manylabel.errors import ConfigError, list_choices

Layout = Literal["NCHW", "NHWC", "tokens"]
# timm's models have attributes and methods that the type nn.Module lacks
TimmModel: TypeAlias = Any
Result = TypeVar("Result")

# Options that let a model take other sizes than the one it was built for; each family has one of them at most.
FREEING_OPTIONS: tuple[dict[str, bool], ...] = ({"dynamic_img_size": True}, {"strict_img_size": False})
# Errors of a meta run with a size that a model does not take: timm asserts, torch finds shapes that do not fit.
SIZE_ERRORS = (AssertionError, RuntimeError, ValueError)


@dataclass(frozen=True)
class Blueprint:
    """Architecture of a timm model.

    Args:
        options: Arguments to build it with.
        entries: Positions of the stages in timm's list of features; -1 for the final one.
        modules: Path of the module that ends each stage before the final one.
        channels: Channels per stage.
        strides: Pixels per position and stage.
        layout: Layout of the final features.
        size: Height and width it was built for.
        size_step: 1 takes images of any size, n multiples of n, 0 only the size it was built for.
        unused: Parameters that no map depends on, such as a norm after the pooling.
    """

    options: Mapping[str, Any]
    entries: tuple[int, ...]
    modules: tuple[str, ...]
    channels: tuple[int, ...]
    strides: tuple[int, ...]
    layout: Layout
    size: tuple[int, int]
    size_step: int
    unused: frozenset[str]


@lru_cache(maxsize=64)
def examine(name: str, image_size: int | None = None) -> Blueprint:
    """Examine a timm model on the meta device, where nothing is allocated or computed.

    Args:
        name: Name in timm, with or without the tag of its weights.
        image_size: Input size, where a model is built for one.

    Returns:
        The blueprint.

    Raises:
        ConfigError: timm has no such model, or it does not give feature maps.

    Examples:
        >>> blueprint = examine("resnet10t")
        >>> blueprint.channels, blueprint.strides
        ((64, 128, 256, 512), (4, 8, 16, 32))
    """
    _check_name(name)
    config = timm.get_pretrained_cfg(name)
    bound = config is not None and config.fixed_input_size
    sized: dict[str, Any] = {"img_size": image_size} if bound and image_size else {}
    candidates = [{**sized, **options} for options in FREEING_OPTIONS] if bound else []
    for options in [*candidates, sized]:
        try:
            model = _build(name, options)
        except TypeError:  # a family that does not know the option
            continue
        size = _own_size(model, image_size)
        step = _size_step(model, size)
        if step or options is sized:
            break
    return _describe(model, options, size, step)


def examine_model(model: TimmModel, image_size: int | None = None) -> Blueprint:
    """Examine an existing model, on a copy on the meta device.

    Args:
        model: A timm model, or one with the same methods.
        image_size: Input size (default: the one that it was built for).

    Raises:
        ConfigError: It does not give feature maps.
    """
    model = on_meta(model)
    built_for = getattr(getattr(model, "patch_embed", None), "img_size", None)
    size = tuple(built_for) if built_for and not image_size else _own_size(model, image_size)
    return _describe(model, {}, size, _size_step(model, size))


def build_on_meta(name: str, image_size: int | None) -> TimmModel:
    """Build a timm model on the meta device, as `examine` found that it takes images of this size."""
    return _build(name, examine(name, image_size).options)


def _check_name(name: str) -> None:
    """Raise unless timm has the model and, where the name has a tag, the weights; suggest the nearest names."""
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise ConfigError(f"timm has no model {architecture!r}; {list_choices(architecture, timm.list_models())}")
    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise ConfigError(f"timm has no weights {tag!r} for {architecture}; {list_choices(tag, tags)}")


def _build(name: str, options: Mapping[str, Any]) -> TimmModel:
    with torch.device("meta"):
        return timm.create_model(name, pretrained=False, num_classes=0, **options).eval()


def _own_size(model: TimmModel, image_size: int | None) -> tuple[int, int]:
    height, width = model.pretrained_cfg["input_size"][1:]
    return (image_size, image_size) if image_size else (height, width)


def _size_step(model: TimmModel, size: tuple[int, int]) -> int:
    """Try images one pixel larger, then one position larger, from the finest stage to the coarsest."""
    for step in sorted({1, *(feature["reduction"] for feature in _features(model))}):
        try:
            model.forward_features(torch.empty(1, 3, size[0] + step, size[1] + step, device="meta"))
        except SIZE_ERRORS:
            continue
        return int(step)
    return 0


def _features(model: TimmModel) -> list[dict[str, Any]]:
    """Return timm's list of features; where there is none, only the final one, at the customary stride."""
    listed = getattr(model, "feature_info", None) or [{"num_chs": model.num_features, "reduction": 32}]
    return list(listed.get_dicts() if hasattr(listed, "get_dicts") else listed)


@torch.enable_grad()
def _describe(model: TimmModel, options: Mapping[str, Any], size: tuple[int, int], step: int) -> Blueprint:
    images = torch.empty(1, 3, *size, device="meta")
    layout, features = _final_layout(model, images), _features(model)
    # a stem is no stage: the first block group works at stride 4 or coarser in every family
    entries = [entry for entry, feature in enumerate(features[:-1]) if feature["reduction"] >= 4]
    maps = _all_maps(model, images, entries, layout)
    entries = entries if len(maps) > 1 else []
    return Blueprint(
        options=options,
        entries=(*entries, -1),
        modules=tuple(features[entry]["module"] for entry in entries),
        channels=tuple(stage.shape[1] for stage in maps),
        strides=tuple(features[entry]["reduction"] for entry in (*entries, -1)),
        layout=layout,
        size=size,
        size_step=step,
        unused=unused_parameters(model, maps),
    )


def _final_layout(model: TimmModel, images: Tensor) -> Layout:
    """Return the layout of a model's final features.

    Raises:
        ConfigError: They are not a map.
    """
    try:
        if hasattr(model, "forward_intermediates"):
            final, (grid,) = model.forward_intermediates(images, indices=[-1])
        else:
            final = grid = model.forward_features(images)
    except SIZE_ERRORS:
        final = None
    if isinstance(final, Tensor) and final.ndim == 4:
        return "NHWC" if final.shape[-1] == model.num_features != final.shape[1] else "NCHW"
    if isinstance(final, Tensor) and final.ndim == 3 and final.shape[1] >= grid.shape[-2:].numel():
        return "tokens"
    raise ConfigError(f"{model.pretrained_cfg['architecture']} has no feature map for a head; choose another model")


def _all_maps(model: TimmModel, images: Tensor, entries: Sequence[int], layout: Layout) -> list[Tensor]:
    """Return the maps of all stages, or the final one alone where a model cannot give the others."""
    if hasattr(model, "forward_intermediates"):
        return stage_maps(model, images, [*entries, -1], layout=layout)
    try:
        maps = stage_maps(model, images, [*entries, -1], layout=layout)
    except (ConfigError, KeyError):  # its list has modules that do not exist
        return stage_maps(model, images, [-1], layout=layout)
    listed = [_features(model)[entry]["num_chs"] for entry in entries]
    return maps if [stage.shape[1] for stage in maps[:-1] if stage.ndim == 4] == listed else maps[-1:]


def unused_parameters(model: TimmModel, maps: Sequence[Tensor]) -> frozenset[str]:
    """Return the names of parameters that none of a model's maps depends on."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad([stage.sum() for stage in maps], parameters, allow_unused=True)
    return frozenset(name for name, gradient in zip(names, gradients, strict=True) if gradient is None)


def stage_maps(model: TimmModel, images: Tensor, entries: Sequence[int], *, layout: Layout) -> list[Tensor]:
    """Return a timm model's maps ``[B, C, H, W]`` of some stages, the final one as its classifier would pool it.

    Args:
        model: A timm model.
        images: ``[B, 3, H, W]``.
        entries: Positions in timm's list of features, ascending; -1 at the end stands for the final map.
        layout: Layout of the model's final features.

    Returns:
        One map per entry.
    """
    if not hasattr(model, "forward_intermediates"):
        paths = [model.feature_info[entry]["module"] for entry in entries if entry != -1]
        maps, final = module_outputs(model, paths, lambda: model.forward_features(images))
        return [*maps, as_nchw(final, layout)] if entries[-1] == -1 else maps
    if entries[-1] != -1:  # compute nothing after the last of them
        options = {"intermediates_only": True, "stop_early": True}
        return list(model.forward_intermediates(images, indices=list(entries), **options))
    # the last intermediate map has the grid of the final tokens
    final, maps = model.forward_intermediates(images, indices=list(entries))
    return [*maps[:-1], as_map(final, layout, like=maps[-1])]


def layout_like(output: Tensor, expected: Tensor) -> Layout:
    """Return the layout of a module's output of which a map ``[B, C, H, W]`` was made."""
    if output.ndim == 3:
        return "tokens"
    return "NCHW" if output.shape == expected.shape else "NHWC"


def as_nchw(features: Tensor, layout: Layout) -> Tensor:
    """Return features as ``[B, C, H, W]``, tokens ``[B, N, C]`` as ``[B, C, N, 1]``.

    Examples:
        >>> as_nchw(torch.zeros(2, 197, 64), "tokens").shape
        torch.Size([2, 64, 197, 1])
    """
    if layout == "tokens":
        return features.transpose(1, 2).unsqueeze(3)
    return features.permute(0, 3, 1, 2) if layout == "NHWC" else features


def from_nchw(features: Tensor, layout: Layout) -> Tensor:
    """Undo `as_nchw`.

    Examples:
        >>> from_nchw(torch.zeros(2, 64, 197, 1), "tokens").shape
        torch.Size([2, 197, 64])
    """
    if layout == "tokens":
        return features.squeeze(3).transpose(1, 2)
    return features.permute(0, 2, 3, 1) if layout == "NHWC" else features


def as_map(features: Tensor, layout: Layout, *, like: Tensor) -> Tensor:
    """Turn features into a map ``[B, C, H, W]``; prefix tokens are dropped.

    Args:
        features: Features of a model.
        layout: Their layout.
        like: A map of the same height and width.

    Examples:
        >>> tokens = torch.zeros(2, 1 + 6, 8)  # one class token, then a grid of 2 x 3
        >>> as_map(tokens, "tokens", like=torch.zeros(2, 8, 2, 3)).shape
        torch.Size([2, 8, 2, 3])
    """
    maps, (height, width) = as_nchw(features, layout), like.shape[-2:]
    return maps[:, :, -height * width :].reshape(*maps.shape[:2], height, width) if layout == "tokens" else maps


def module_outputs(model: nn.Module, paths: Sequence[str], run: Callable[[], Result]) -> tuple[list[Tensor], Result]:
    """Return the outputs of some modules of a model during a run, and the result of the run.

    Raises:
        ConfigError: A path is of no module that runs and returns a tensor.
    """
    outputs: dict[str, Tensor] = {}

    def catch(path: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda _module, _inputs, output: outputs.update({path: output})

    try:
        modules = [model.get_submodule(path) for path in paths]
    except AttributeError as error:
        raise ConfigError(f"{type(model).__name__} does not have all of the modules {', '.join(paths)}") from error
    handles = [module.register_forward_hook(catch(path)) for path, module in zip(paths, modules, strict=True)]
    try:
        result = run()
    finally:
        for handle in handles:
            handle.remove()
    if wrong := [path for path in paths if not isinstance(outputs.get(path), Tensor)]:
        raise ConfigError(f"{', '.join(wrong)} of {type(model).__name__} returns no map")
    return [outputs[path] for path in paths], result


def on_meta(model: TimmModel) -> TimmModel:
    """Return a copy of a model in eval mode on the meta device, without copying its weights."""
    shapes: dict[int, Any] = {id(buffer): buffer.to("meta") for buffer in model.buffers()}
    for parameter in model.parameters():
        shape = parameter.detach().to("meta")
        shapes[id(parameter)] = nn.Parameter(shape, requires_grad=shape.is_floating_point())
    return copy.deepcopy(model, shapes).eval()


class FeatureModule(nn.Module):
    """Base of a backbone and of its parts, in which batch norms can keep their statistics during training."""

    frozen = False
    keeps_statistics = False

    def keep_statistics(self, keep: bool = True) -> None:
        """Freeze batch-norm statistics, also in training mode, or unfreeze them.

        Args:
            keep: Use the running means and variances instead of those of each batch.
        """
        self.keeps_statistics = keep
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch between training and eval mode; what is frozen stays in eval mode."""
        super().train(mode and not self.frozen)
        for module in self.modules():
            if self.keeps_statistics and isinstance(module, _BatchNorm):
                module.eval()
        return self
