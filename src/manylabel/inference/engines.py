"""What turns pixels into scores: an ONNX file in onnxruntime, with no torch.

Letters in shape comments: B pictures, H and W pixels, L labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ModelFormatError
from manylabel.images import Pixels
from manylabel.inference.inference_spec import METADATA_KEY, InferenceSpec
from manylabel.onnx_files import open_session

__all__ = ["Engine", "OnnxEngine"]


class Engine(Protocol):
    """Anything that scores pixels."""

    spec: InferenceSpec

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for pictures ``[B, H, W, 3]``."""
        ...


class OnnxEngine:
    """Runs a file that `manylabel export` wrote.

    Args:
        path: The ``.onnx`` file.
        num_threads: Threads of onnxruntime; as many as there are cores when left out.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ModelFormatError: The file is missing, damaged, or not ours.
    """

    def __init__(self, path: str | Path, *, num_threads: int | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise ModelFormatError(f"there is no file {path}; write it with: manylabel export MODEL --to onnx")
        try:
            self.session = open_session(path, num_threads=num_threads)
        except ImportError:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ModelFormatError(f"{path} cannot be opened by onnxruntime ({reason}); export it again") from error
        metadata = self.session.get_modelmeta().custom_metadata_map
        if METADATA_KEY not in metadata:
            raise ModelFormatError(f"{path} does not name its labels; give a file that `manylabel export` wrote")
        self.spec = InferenceSpec.from_json(metadata[METADATA_KEY], source=str(path))

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for pictures ``[B, H, W, 3]``."""
        (scores,) = self.session.run(["scores"], {"images": np.ascontiguousarray(pixels)})
        return np.asarray(scores, dtype=np.float32)
