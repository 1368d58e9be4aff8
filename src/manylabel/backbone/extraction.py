"""Feature maps out of a timm model, whatever its layout: NCHW, NHWC or tokens, with or without prefix tokens.

Letters in shape comments: B pictures, C channels, H and W cells of a map, N tokens.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

__all__ = ["Layout", "TimmModel", "as_map", "layout_of", "stage_maps"]

Layout = Literal["NCHW", "NHWC", "tokens"]
# timm's models share attributes and methods that nn.Module's type does not know of
TimmModel: TypeAlias = Any


def stage_maps(model: TimmModel, images: Tensor, entries: Sequence[int], *, layout: Layout) -> list[Tensor]:
    """Return a timm model's maps ``[B, C, H, W]`` of some stages, the final one as its classifier would pool it.

    Args:
        model: A timm model.
        images: ``[B, 3, H, W]``.
        entries: Positions in timm's list of features, rising; -1 at the end stands for the final map.
        layout: How the model lays out its final features.

    Returns:
        One map per entry.
    """
    *earlier, last = entries
    if last != -1:
        return _intermediate_maps(model, images, entries)
    if not hasattr(model, "forward_intermediates"):
        maps, final = _hooked_maps(model, images, earlier)
        return [*maps, as_map(final, layout, like=None)]
    # the last intermediate map tells the grid of the final tokens
    final, maps = model.forward_intermediates(images, indices=[*earlier, -1])
    return [*maps[:-1], as_map(final, layout, like=maps[-1])]


def layout_of(final: object, *, num_features: int, like: Tensor | None) -> Layout | None:
    """Say how a model lays out its final features; None where they are no map at all."""
    if not isinstance(final, Tensor):
        return None
    if final.ndim == 3:
        return "tokens" if like is not None and final.shape[1] >= like.shape[-2:].numel() else None
    if final.ndim != 4:
        return None
    return "NHWC" if final.shape[-1] == num_features != final.shape[1] else "NCHW"


def as_map(final: Tensor, layout: Layout, *, like: Tensor | None) -> Tensor:
    """Turn a model's final features into a map ``[B, C, H, W]``; prefix tokens are dropped.

    Args:
        final: What the model gives.
        layout: How it is laid out.
        like: A map of the same height and width; only tokens need it.

    Returns:
        The map.

    Examples:
        >>> import torch
        >>> tokens = torch.zeros(2, 1 + 6, 8)  # one class token, then a grid of 2 x 3
        >>> as_map(tokens, "tokens", like=torch.zeros(2, 8, 2, 3)).shape
        torch.Size([2, 8, 2, 3])
    """
    if layout == "NHWC":
        return final.permute(0, 3, 1, 2)
    if layout == "tokens" and like is not None:
        height, width = like.shape[-2:]
        tokens = final[:, -height * width :]  # [B, H * W, C]
        return tokens.transpose(1, 2).reshape(*like.shape[:1], -1, height, width)  # [B, C, H, W]
    return final


def _intermediate_maps(model: TimmModel, images: Tensor, entries: Sequence[int]) -> list[Tensor]:
    """Return maps before the final one, and compute nothing behind the last of them."""
    if not hasattr(model, "forward_intermediates"):
        return _hooked_maps(model, images, entries)[0]
    maps: list[Tensor] = model.forward_intermediates(
        images, indices=list(entries), intermediates_only=True, stop_early=True
    )
    return maps


def _hooked_maps(model: TimmModel, images: Tensor, entries: Sequence[int]) -> tuple[list[Tensor], Tensor]:
    """Catch maps on their way through a model of timm's that does not hand them out."""
    maps: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        maps.append(output)

    modules = [model.get_submodule(model.feature_info[entry]["module"]) for entry in entries]
    handles = [module.register_forward_hook(keep) for module in modules]
    try:
        final = model.forward_features(images)
    finally:
        for handle in handles:
            handle.remove()
    return maps, final
