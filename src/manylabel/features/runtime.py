"""Engine of a frozen backbone: torch, or onnxruntime on a CPU where that pays off and agrees with torch.

Letters in shape comments: B images of a batch, C channels, H and W pixels of an image or positions of a map.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError
from manylabel.inference.engine import EXPORTS, FEW_IMAGES, EngineName
from manylabel.onnx_files import open_session, write_onnx
from manylabel.storage import cache_folder

logger = logging.getLogger(__name__)

Run = Callable[[Tensor], list[Tensor]]

TOLERANCE = 1e-3  # relative to the largest value of a map; float16 features are rounded by half of that
CHECKED_IMAGES = 8


def prepare_backbone(backbone: Backbone, images: Tensor, *, engine: EngineName, export: Path, num_images: int) -> Run:
    """Choose an engine, and return a function from images to maps ``[B, C, H, W]`` per stage.

    Args:
        backbone: The frozen backbone.
        images: ``[B, 3, H, W]``, the first images, on which onnxruntime and torch are compared.
        engine: Name of the engine, or ``"auto"``.
        export: File of the exported backbone, written if missing; see `export_path`.
        num_images: Number of images to process.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> run = prepare_backbone(
        ...     backbone, torch.rand(2, 3, 64, 64), engine="auto", export=Path("none.onnx"), num_images=9
        ... )
        >>> run(torch.rand(3, 3, 64, 64))[0].shape
        torch.Size([3, 512, 2, 2])
    """
    plain = _torch_run(backbone)
    on_cpu = next(backbone.parameters()).device.type == "cpu"
    pays = on_cpu and (num_images >= FEW_IMAGES or export.exists())
    if engine == "torch" or (engine == "auto" and not pays):
        return plain
    try:
        fast = OnnxBackbone(backbone, export, size=(images.shape[-2], images.shape[-1]))
    except (ConfigError, OSError) as error:
        logger.warning("computing features with torch: %s", error)
        return plain
    few = images[:CHECKED_IMAGES]
    difference = relative_difference(fast(few), plain(few))
    if not difference <= TOLERANCE:  # also true for nan
        logger.warning("computing features with torch: onnxruntime deviates by %.1e of the largest value", difference)
        return plain
    logger.info("computing features with onnxruntime, which agrees with torch to %.1e of the largest value", difference)
    return fast


class OnnxBackbone:
    """A frozen backbone in onnxruntime, more than twice as fast as torch on a CPU.

    Args:
        backbone: The backbone; exported with folded batch norms, unless the file exists and can be opened.
        path: The exported file.
        size: Height and width of the images; the batch size is dynamic.
        num_threads: Threads of onnxruntime (default: as many as torch uses).

    Raises:
        ConfigError: The backbone cannot be exported.
    """

    def __init__(
        self, backbone: Backbone, path: Path, *, size: tuple[int, int], num_threads: int | None = None
    ) -> None:
        num_threads = torch.get_num_threads() if num_threads is None else num_threads
        if path.exists():
            try:
                self.session = open_session(path, num_threads=num_threads)
            except Exception as error:  # noqa: BLE001 - onnxruntime has an exception for each kind of damage
                logger.warning("exporting %s again: it cannot be opened (%s)", path, str(error).partition("\n")[0])
            else:
                return
        model = _Outputs(backbone.fuse().cpu()).eval()
        write_onnx(model, torch.zeros(2, 3, *size), path, name=backbone.name)
        self.session = open_session(path, num_threads=num_threads)

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return maps ``[B, C, H, W]`` per stage for images ``[B, 3, H, W]``."""
        maps = self.session.run(None, {"images": np.ascontiguousarray(images.cpu().numpy())})
        return [torch.from_numpy(stage) for stage in maps]


def export_path(backbone: Backbone, *, weights: str, size: tuple[int, int]) -> Path:
    """Return the cache path of a backbone's export, which depends on weights, stages, size and versions.

    Args:
        backbone: The backbone.
        weights: Fingerprint of the backbone's weights.
        size: Height and width of the images.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True)
        >>> export_path(backbone, weights="b2", size=(64, 64)).suffix
        '.onnx'
    """
    described = f"{weights} {backbone.stages} {size} torch {torch.__version__}"
    return cache_folder() / EXPORTS / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.onnx"


def relative_difference(maps: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference between two sets of maps, relative to the largest value of each map.

    Examples:
        >>> relative_difference([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])])
        0.25
    """
    pairs = zip(maps, expected, strict=True)
    return max(float((found - right).abs().max() / right.abs().max().clamp(min=1e-9)) for found, right in pairs)


def _torch_run(backbone: Backbone) -> Run:
    fused = backbone.fuse(channels_last=True)
    device = next(backbone.parameters()).device

    @torch.inference_mode()
    def run(images: Tensor) -> list[Tensor]:
        maps: list[Tensor] = fused(images.to(device).contiguous(memory_format=torch.channels_last))
        return maps

    return run


class _Outputs(nn.Module):
    """Backbone that returns a tuple, as the exporter requires."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.backbone(images))
