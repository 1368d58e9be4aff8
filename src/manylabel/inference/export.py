"""Export of classifiers to ONNX, torch.export and int8, verified on real images before writing.

Letters in shape comments: N images, H and W pixels.
"""

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from timm.layers.conv2d_same import Conv2dSame
from torch import Tensor

from manylabel.backbone import Backbone
from manylabel.builtin import sample_photos
from manylabel.classifier import Classifier, InferenceModule
from manylabel.cost import median_seconds
from manylabel.errors import ConfigError
from manylabel.images import ImageLike, Pixels, prepare
from manylabel.inference.engine import OnnxEngine
from manylabel.onnx_files import open_session, write_onnx
from manylabel.predictions import METADATA_KEY, Predictions
from manylabel.storage import refuse_existing, replacing
from manylabel.system import require

TOLERANCE = 1e-3
"""Maximum difference between the scores of an exported file and the model's."""

OTHER_SIZE = 64  # pixels added to verify a file for any size at a second size

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Export:
    """An exported file.

    Args:
        path: The file.
        num_bytes: Size of the file.
        difference: Maximum difference between its scores and the model's.
        any_size: Whether height and width of images are dynamic; the batch size always is.
        note: Reason why the size is fixed, if it is.
    """

    path: Path
    num_bytes: int
    difference: float
    any_size: bool
    note: str = ""


def export_onnx(
    classifier: Classifier,
    path: str | Path,
    *,
    images: Sequence[ImageLike] | None = None,
    any_size: bool = True,
    overwrite: bool = False,
) -> Export:
    """Export a classifier to ONNX, which `OnnxEngine` runs without torch.

    Its input ``images`` is RGB bytes ``[batch, height, width, 3]``; its outputs are ``scores``, calibrated
    probabilities, and ``logits``. Labels, resizing and thresholds are stored in its metadata.

    Args:
        classifier: The classifier.
        path: Output file.
        images: Images for verification (default: the sample photos).
        any_size: Whether to make height and width dynamic, if the backbone allows it.
        overwrite: Whether to replace an existing file.

    Returns:
        The exported file.

    Raises:
        ConfigError: The classifier cannot be exported, or the scores differ; then nothing is written.
        OutputExistsError: The file exists and `overwrite` is false.
    """

    def write(target: Path, module: InferenceModule, images: Tensor, axes: Sequence[int]) -> Run:
        metadata = {METADATA_KEY: classifier.spec.to_json()}
        name, outputs = classifier.backbone.name, ("scores", "logits")
        write_onnx(module, images, target, name=name, outputs=outputs, dynamic_axes=axes, metadata=metadata)
        session = open_session(target)
        return lambda inputs: torch.from_numpy(session.run(["scores"], {"images": inputs.numpy()})[0])

    return _export(classifier, path, write, images=images, any_size=any_size, overwrite=overwrite)


def export_torch(
    classifier: Classifier,
    path: str | Path,
    *,
    images: Sequence[ImageLike] | None = None,
    any_size: bool = True,
    overwrite: bool = False,
) -> Export:
    """Export a classifier with ``torch.export`` (``.pt2``), for torch without this package.

    Inputs, outputs and arguments are those of `export_onnx`; labels, resizing and thresholds are stored in its extra
    file ``manylabel``.

    Raises:
        ConfigError: The classifier cannot be exported, or the scores differ; then nothing is written.
        OutputExistsError: The file exists and `overwrite` is false.
    """

    def write(target: Path, module: InferenceModule, images: Tensor, axes: Sequence[int]) -> Run:
        shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about torch internals
                program = torch.export.export(module, (images,), dynamic_shapes=shapes)
                torch.export.save(program, target, extra_files={METADATA_KEY: classifier.spec.to_json()})
                loaded = torch.export.load(target).module()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{classifier.backbone.name} cannot be exported by torch.export: {reason}") from error
        return lambda inputs: loaded(inputs)[0]

    return _export(classifier, path, write, images=images, any_size=any_size, overwrite=overwrite)


@torch.no_grad()
def _export(
    classifier: Classifier,
    path: str | Path,
    write: Callable[[Path, InferenceModule, Tensor, Sequence[int]], Run],
    *,
    images: Sequence[ImageLike] | None,
    any_size: bool,
    overwrite: bool,
) -> Export:
    """Write a temporary file, verify it, and move it to its destination."""
    refuse_existing(path, overwrite=overwrite)
    module = InferenceModule(classifier.fuse()).cpu()
    pixels = _pixels(classifier, sample_photos() if images is None else images)
    note = _why_one_size(classifier.backbone) if any_size else ""
    free = any_size and not note
    with replacing(path, overwrite=overwrite) as temporary:
        if free:
            try:
                difference = _difference(write(temporary, module, pixels[:2], (0, 1, 2)), module, pixels, other=True)
            except ConfigError as error:
                free, note = False, f"Fixed image size: {str(error).partition(chr(10))[0]}"
        if not free:
            difference = _difference(write(temporary, module, pixels[:2], (0,)), module, pixels, other=False)
        num_bytes = temporary.stat().st_size
    return Export(Path(path), num_bytes, difference, any_size=free, note=note)


def _why_one_size(backbone: Backbone) -> str:
    """Return the reason why the image size must be fixed; empty if it need not be."""
    if not backbone.takes_any_size:
        return f"{backbone.name} is built for a fixed image size."
    # the padding of each layer depends on the size, an expression that torch's exporter expands without end
    if any(isinstance(module, Conv2dSame) for module in backbone.modules()):
        return f"{backbone.name} pads depending on the image size, which exports only for a fixed size."
    return ""


def _pixels(classifier: Classifier, images: Sequence[ImageLike]) -> Tensor:
    """Return images as bytes ``[B, H, W, 3]``, at least three: exporters treat small batch sizes as constants."""
    pixels = [prepare(image, classifier.input_spec) for image in images]
    if not pixels:
        raise ConfigError("images must contain at least one image to verify the export with")
    return torch.from_numpy(np.stack((pixels * 3)[: max(3, len(pixels))]))


def _difference(run: Run, module: InferenceModule, images: Tensor, *, other: bool) -> float:
    """Return the maximum difference of scores; raise if it exceeds the tolerance.

    Args:
        run: Runs the exported file.
        module: The exported module.
        images: Images ``[B, H, W, 3]``.
        other: Whether to try another height and width as well.
    """
    tried = [images, images[:1]]
    if other:
        tried.append(torch.cat([images, images.flip(1)[:, :OTHER_SIZE]], dim=1))
    try:
        differences = [float((run(each) - module(each)[0]).abs().max()) for each in tried]
    except Exception as error:
        raise ConfigError(f"the exported file does not run: {type(error).__name__}: {error}") from error
    worst = max(differences, key=lambda value: float("inf") if np.isnan(value) else value)
    if not worst <= TOLERANCE:  # also true for nan
        raise ConfigError(
            f"scores of the exported file differ from the model's by {worst:.1e}, more than {TOLERANCE:.0e}; "
            "nothing was written. Try another version of torch, or another backbone"
        )
    return worst


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
            "quantisation needs at least one calibration image; pass images representative of later inputs"
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
