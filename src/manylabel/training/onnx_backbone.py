"""A frozen backbone in onnxruntime, which on a CPU is more than twice as fast as torch: exported once, then checked.

Letters in shape comments: B pictures of a batch, C channels, H and W pixels of a picture or cells of a map.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from manylabel.backbone import Backbone, fingerprint_weights
from manylabel.onnx_files import open_session, write_onnx
from manylabel.system import require

__all__ = ["OnnxBackbone", "relative_difference"]

TOLERANCE = 1e-3  # of the largest value of a map; float16, in which features are kept, rounds by half of that


class OnnxBackbone:
    """Runs a frozen backbone in onnxruntime.

    It is exported, with its batch-norms folded, when there is no export yet for the same weights, stages, size of
    pictures and version of torch.

    Args:
        backbone: The backbone.
        size: Height and width of the pictures; their number per batch is free.
        folder: Where exports are kept.
        num_threads: Threads of onnxruntime; as many as torch has when left out.

    Raises:
        MissingExtraError: onnxruntime or onnxscript is not installed.
        ConfigError: The backbone cannot be exported.

    Examples:
        >>> import tempfile
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> fast = OnnxBackbone(backbone, size=(64, 64), folder=Path(tempfile.mkdtemp()))
        >>> images = torch.rand(3, 3, 64, 64)
        >>> relative_difference(fast(images), backbone(images)) < 1e-3
        True
    """

    def __init__(
        self, backbone: Backbone, *, size: tuple[int, int], folder: Path, num_threads: int | None = None
    ) -> None:
        require("onnxruntime", extra="onnx")
        self.path = export_path(backbone, size=size, folder=folder)
        if not self.path.exists():
            model = _Outputs(backbone.fuse().cpu()).eval()
            write_onnx(model, torch.zeros(2, 3, *size), self.path, name=backbone.name)
        self.session = open_session(
            self.path, num_threads=torch.get_num_threads() if num_threads is None else num_threads
        )

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return maps ``[B, C, H, W]`` per stage for pictures ``[B, 3, H, W]``."""
        maps = self.session.run(None, {"images": np.ascontiguousarray(images.cpu().numpy())})
        return [torch.from_numpy(stage) for stage in maps]


def export_path(backbone: Backbone, *, size: tuple[int, int], folder: Path) -> Path:
    """Return where the export of a backbone is or will be.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True)
        >>> export_path(backbone, size=(64, 64), folder=Path("exports")).suffix
        '.onnx'
    """
    described = f"{fingerprint_weights(backbone)} {backbone.stages} {size} torch {torch.__version__}"
    return folder / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.onnx"


def relative_difference(maps: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference between two sets of maps, as a share of the largest value of each map.

    Examples:
        >>> relative_difference([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])])
        0.25
    """
    pairs = zip(maps, expected, strict=True)
    return max(float((found - right).abs().max() / right.abs().max().clamp(min=1e-9)) for found, right in pairs)


class _Outputs(nn.Module):
    """A backbone that gives a tuple, as an exporter wants it."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.backbone(images))
