"""Exported models in 8-bit whole numbers: smaller, on many CPUs faster, and a little less right.

Letters in shape comments: B pictures, H and W pixels.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ConfigError
from manylabel.images import Pixels
from manylabel.inference.engine import OnnxEngine
from manylabel.storage import refuse_existing, replacing
from manylabel.system import require

__all__ = ["Quantised", "quantise"]


@dataclass(frozen=True)
class Quantised:
    """A file that was written, compared with the one it was made of.

    Args:
        path: The file.
        num_bytes: Its size.
        size_ratio: How many times smaller it is.
        speed_ratio: How many times faster it is, on this machine.
        difference: The mean difference of scores on some of the pictures that it was calibrated with.
    """

    path: Path
    num_bytes: int
    size_ratio: float
    speed_ratio: float
    difference: float


def quantise(source: str | Path, path: str | Path, batches: Iterable[Pixels], *, overwrite: bool = False) -> Quantised:
    """Turn an exported model into 8-bit whole numbers (static quantisation).

    Args:
        source: A file that `export_onnx` wrote.
        path: Where the smaller file goes.
        batches: Pictures ``[B, H, W, 3]`` like those it will see, from which the ranges of its layers are learned; a
            hundred or more pictures are good.
        overwrite: Whether a file that is there may be replaced.

    Returns:
        What was written.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
        ConfigError: There are no pictures, or onnxruntime cannot quantise the model.
        OutputExistsError: The file is there and `overwrite` is false.
    """
    refuse_existing(path, overwrite=overwrite)
    require("onnx", extra="onnx")
    kept = [np.ascontiguousarray(batch) for batch in batches if len(batch)]
    if not kept:
        raise ConfigError("give pictures to calibrate with, as many kinds of them as the model will see")
    with replacing(path, overwrite=overwrite) as temporary:
        try:
            _quantise(Path(source), temporary, kept)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"onnxruntime cannot quantise {source}: {reason}") from error
        before, after = OnnxEngine(source), OnnxEngine(temporary)
        num_bytes = temporary.stat().st_size
        differences = [float(np.abs(before.scores(batch) - after.scores(batch)).mean()) for batch in kept[:4]]
        speed = _speed_ratio(before, after, kept[0])
    return Quantised(Path(path), num_bytes, Path(source).stat().st_size / num_bytes, speed, float(np.mean(differences)))


def _quantise(source: Path, target: Path, batches: list[Pixels]) -> None:
    """Let onnxruntime learn the ranges and write the file."""
    quantization = require("onnxruntime.quantization", extra="onnx")
    shape_inference = require("onnxruntime.quantization.shape_inference", extra="onnx")
    onnx = require("onnx", extra="onnx")
    with tempfile.TemporaryDirectory() as folder, _quiet():
        ready = Path(folder) / "ready.onnx"
        shape_inference.quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(ready),
            str(target),
            _reader(quantization, batches),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,  # 7 bits for weights: CPUs without VNNI add products in 16 bits, which else overflow
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            # the convolutions and products hold the time; norms, softmax and the rest lose more than they gain
            op_types_to_quantize=["Conv", "Gemm", "MatMul"],
        )
        model = onnx.load(str(target))
        said = {entry.key: entry.value for entry in onnx.load(str(source), load_external_data=False).metadata_props}
        onnx.helper.set_model_props(model, said)
        onnx.save(model, str(target))


def _reader(quantization: Any, batches: list[Pixels]) -> object:  # noqa: ANN401 - onnxruntime has no types
    """Return the batches as onnxruntime wants to be given them."""

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # likewise
        def __init__(self) -> None:
            self.batches: Iterator[Pixels] = iter(batches)

        def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
            batch = next(self.batches, None)
            return None if batch is None else {"images": batch}

    return Reader()


class _quiet:  # noqa: N801 - used as a statement
    """Silences advice that onnxruntime logs to the root logger."""

    def __enter__(self) -> None:
        self.before = logging.root.manager.disable
        logging.disable(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        logging.disable(self.before)


def _speed_ratio(before: OnnxEngine, after: OnnxEngine, pixels: Pixels, *, rounds: int = 5) -> float:
    """Return how many times faster a file is; both take turns."""
    seconds: dict[OnnxEngine, list[float]] = {before: [], after: []}
    for _ in range(rounds + 1):
        for engine, times in seconds.items():
            start = time.perf_counter()
            engine.scores(pixels)
            times.append(time.perf_counter() - start)
    medians = [statistics.median(times[1:]) for times in seconds.values()]  # the first round warms up
    return medians[0] / medians[1]
