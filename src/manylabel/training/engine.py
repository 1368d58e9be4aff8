"""What runs a frozen backbone: torch, or onnxruntime on a CPU where it pays and agrees."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError, MissingExtraError
from manylabel.training.onnx_backbone import TOLERANCE, OnnxBackbone, export_path, relative_difference

__all__ = ["Engine", "ready"]

logger = logging.getLogger(__name__)

Engine = Literal["auto", "torch", "onnx"]
"""What runs the backbone; ``"auto"`` is onnxruntime on a CPU for more than a few pictures, else torch."""

Run = Callable[[Tensor], list[Tensor]]

FEW_PICTURES = 500  # an export takes about as long as torch needs for these
CHECKED_PICTURES = 8


def ready(backbone: Backbone, images: Tensor, *, engine: Engine, exports: Path, num_pictures: int) -> Run:
    """Make a frozen backbone ready to see many pictures.

    Args:
        backbone: The backbone.
        images: ``[B, 3, H, W]``, the first pictures; onnxruntime and torch are compared on them.
        engine: What to run it with.
        exports: Where exported backbones are kept.
        num_pictures: How many pictures it will see.

    Returns:
        A function from pictures to maps ``[B, C, H, W]`` per stage.

    Raises:
        MissingExtraError: The engine is ``"onnx"`` and onnxruntime is not installed.

    Example:
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> run = ready(backbone, torch.rand(2, 3, 64, 64), engine="auto", exports=Path("exports"), num_pictures=9)
        >>> run(torch.rand(3, 3, 64, 64))[0].shape
        torch.Size([3, 512, 2, 2])
    """
    plain = _torch_run(backbone)
    if engine == "torch" or (engine == "auto" and not _pays(backbone, images, exports, num_pictures)):
        return plain
    height, width = images.shape[-2:]
    try:
        fast = OnnxBackbone(backbone, size=(height, width), folder=exports)
    except MissingExtraError as error:
        if engine == "onnx":
            raise
        logger.warning("features are computed by torch; onnxruntime would be twice as fast: %s", error)
        return plain
    except (ConfigError, OSError) as error:
        logger.warning("features are computed by torch: %s", error)
        return plain
    few = images[:CHECKED_PICTURES]
    difference = relative_difference(fast(few), plain(few))
    if not difference <= TOLERANCE:  # also true for nan
        logger.warning("features are computed by torch: onnxruntime's are off by %.1e of the largest", difference)
        return plain
    logger.info("features are computed by onnxruntime, which agrees with torch to %.1e of the largest", difference)
    return fast


def _pays(backbone: Backbone, images: Tensor, exports: Path, num_pictures: int) -> bool:
    """Tell whether onnxruntime ends sooner, the time of an export included."""
    if next(backbone.parameters()).device.type != "cpu":
        return False
    height, width = images.shape[-2:]
    return num_pictures > FEW_PICTURES or export_path(backbone, size=(height, width), folder=exports).exists()


def _torch_run(backbone: Backbone) -> Run:
    fused = backbone.fuse(channels_last=True)
    device = next(backbone.parameters()).device

    @torch.inference_mode()
    def run(images: Tensor) -> list[Tensor]:
        maps: list[Tensor] = fused(images.to(device).contiguous(memory_format=torch.channels_last))
        return maps

    return run
