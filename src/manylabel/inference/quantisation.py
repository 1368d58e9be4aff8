"""Int8 quantisation of exported models: smaller, on many CPUs faster, slightly less accurate.

Letters in shape comments: N images, H and W pixels.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manylabel.cost import median_seconds
from manylabel.errors import ConfigError
from manylabel.images import Pixels
from manylabel.inference.engine import OnnxEngine
from manylabel.predictions import Predictions
from manylabel.storage import refuse_existing, replacing
from manylabel.system import require

__all__ = ["MAX_FLIPPED", "Quantised", "flipped_tags", "quantise"]

MAX_FLIPPED = 0.05
"""Maximum fraction of tags that may change; above it, int8 is not recommended."""

BATCH_SIZE = 16
SMALL_WEIGHT = 1024  # elements; smaller weights stay float
WEIGHTED = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True)
class Quantised:
    """A quantised file, compared with the original.

    Args:
        path: The file.
        num_bytes: Size of the file.
        size_ratio: Original size divided by the quantised size.
        speed_ratio: Speed-up over the original file, on this machine.
        weights_only: Whether activations stayed float, because quantising them flipped too many tags.
    """

    path: Path
    num_bytes: int
    size_ratio: float
    speed_ratio: float
    weights_only: bool


def quantise(source: str | Path, path: str | Path, images: Pixels, *, overwrite: bool = False) -> Quantised:
    """Quantise an exported model to 8-bit integers, per channel.

    Activations are quantised as well (static quantisation), except those of the first and last layer, unless that flips
    more than `MAX_FLIPPED` of the images' tags: then only the weights are quantised, which saves the same space.

    Args:
        source: File written by `export_onnx`.
        path: Output file.
        images: ``[N, H, W, 3]``, calibration images representative of later inputs; preferably a hundred or more.
        overwrite: Whether to replace an existing file.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
        ConfigError: There are no images, or onnxruntime cannot quantise the model.
        OutputExistsError: The file exists and `overwrite` is false.
    """
    refuse_existing(path, overwrite=overwrite)
    require("onnx", extra="train")
    if not len(images):
        raise ConfigError(
            "quantisation needs at least one calibration image; give images representative of later inputs"
        )
    before = OnnxEngine(source)
    with replacing(path, overwrite=overwrite) as temporary:
        try:
            _quantise_all(Path(source), temporary, images)
            flipped, num_tags = flipped_tags(
                *(OnnxEngine(file).predict(images, batch_size=BATCH_SIZE) for file in (source, temporary))
            )
            weights_only = flipped > MAX_FLIPPED * num_tags
            if weights_only:
                _quantise_weights(Path(source), temporary)
            after = OnnxEngine(temporary)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"onnxruntime cannot quantise {source}: {reason}") from error
        num_bytes = temporary.stat().st_size
        batch = images[:BATCH_SIZE]
        calls = {"before": lambda: before.scores(batch), "after": lambda: after.scores(batch)}
        seconds = median_seconds(calls, rounds=5, warmup=1)
    ratio = seconds["before"] / seconds["after"]
    return Quantised(Path(path), num_bytes, Path(source).stat().st_size / num_bytes, ratio, weights_only)


def flipped_tags(before: Predictions, after: Predictions) -> tuple[int, int]:
    """Return the number of tags that differ between two predictions, and the number of tags before.

    Examples:
        >>> from manylabel.types import LabelSpace
        >>> labels, names = LabelSpace(["a", "b"]), ["x.jpg"]
        >>> before, after = (Predictions(np.array([row]), labels, names) for row in ([0.9, 0.6], [0.8, 0.4]))
        >>> flipped_tags(before, after)
        (1, 2)
    """
    labels = [[{tag.label for tag in image.tags} for image in each] for each in (before, after)]
    return sum(len(old ^ new) for old, new in zip(*labels, strict=True)), sum(map(len, labels[0]))


def _quantise_all(source: Path, target: Path, images: Pixels) -> None:
    """Quantise weights and activations with onnxruntime; remaining float layers get 8-bit weights."""
    onnx = require("onnx", extra="train")
    quantization = require("onnxruntime.quantization", extra="train")
    shape_inference = require("onnxruntime.quantization.shape_inference", extra="train")
    with tempfile.TemporaryDirectory() as folder, _quiet():
        ready, static = Path(folder) / "ready.onnx", Path(folder) / "static.onnx"
        shape_inference.quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
        layers = [node.name for node in onnx.load(str(ready)).graph.node if node.op_type in WEIGHTED]
        quantization.quantize_static(
            str(ready),
            str(static),
            _Reader(images),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,  # 7-bit weights: CPUs without VNNI accumulate in 16 bits, which would overflow
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            # convolutions and matrix products dominate the time; norms, softmax and the rest lose more than they gain
            op_types_to_quantize=list(WEIGHTED),
            nodes_to_exclude=[layers[0], layers[-1]] if len(layers) > 2 else [],
        )
        _quantise_weights(static, target, metadata=source)


def _quantise_weights(source: Path, target: Path, *, metadata: Path | None = None) -> None:
    """Replace float weights by 8-bit ones and a scale per channel, which onnxruntime folds on loading."""
    onnx = require("onnx", extra="train")
    model = onnx.load(str(source))
    graph = model.graph
    users: dict[str, list[tuple[Any, int]]] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            users.setdefault(name, []).append((node, position))
    for weight in list(graph.initializer):
        used = users.get(weight.name, [])
        if not used or any(node.op_type not in WEIGHTED or position != 1 for node, position in used):
            continue
        values = onnx.numpy_helper.to_array(weight)
        if values.dtype != np.float32 or values.size < SMALL_WEIGHT or values.ndim < 2:
            continue
        is_transposed = any(attribute.name == "transB" and attribute.i for attribute in used[0][0].attribute)
        axis = 0 if used[0][0].op_type == "Conv" or is_transposed else values.ndim - 1
        integers, scale = (f"{weight.name}.{part}" for part in ("int8", "scale"))
        graph.initializer.remove(weight)
        for name, part in zip((integers, scale), _to_8_bits(values, axis), strict=True):
            graph.initializer.append(onnx.numpy_helper.from_array(part, name))
        # not DequantizeLinear, which onnxruntime would recompute for every batch
        floats = f"{weight.name}.float"
        graph.node.insert(0, onnx.helper.make_node("Mul", [floats, scale], [weight.name]))
        graph.node.insert(0, onnx.helper.make_node("Cast", [integers], [floats], to=onnx.TensorProto.FLOAT))
    original = onnx.load(str(metadata or source), load_external_data=False)
    onnx.helper.set_model_props(model, {entry.key: entry.value for entry in original.metadata_props})
    onnx.save(model, str(target))


def _to_8_bits(values: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return integers in -127..127 and the scale of each channel, in a broadcastable shape."""
    others = tuple(other for other in range(values.ndim) if other != axis)
    scale = np.maximum(np.abs(values).max(axis=others, keepdims=True), 1e-12) / np.float32(127)
    return np.rint(values / scale).astype(np.int8), scale.astype(np.float32)


class _Reader:
    """Calibration images in batches, as onnxruntime asks for them."""

    def __init__(self, images: Pixels) -> None:
        self.batches = (images[start : start + BATCH_SIZE] for start in range(0, len(images), BATCH_SIZE))

    def get_next(self) -> dict[str, Pixels] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"images": batch}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence advice that onnxruntime logs to the root logger."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
