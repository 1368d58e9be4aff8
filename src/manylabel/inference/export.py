"""Export of classifiers to ONNX and torch.export, verified on real images before writing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from timm.layers.conv2d_same import Conv2dSame
from torch import Tensor

from manylabel.backbone import Backbone
from manylabel.builtin import sample_photos
from manylabel.classifier import Classifier, InferenceModule
from manylabel.errors import ConfigError
from manylabel.images import ImageLike, prepare
from manylabel.onnx_files import open_session, write_onnx
from manylabel.predictions import METADATA_KEY
from manylabel.storage import refuse_existing, replacing

__all__ = ["TOLERANCE", "Export", "export_onnx", "export_torch"]

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
