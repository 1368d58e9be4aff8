"""`manylabel export`: a model as ONNX or torch.export file, verified before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import manylabel as ml
from manylabel.builtin import DEFAULT_MODEL
from manylabel.cli import options
from manylabel.cli.options import argument, flag, load_data, new_files, option
from manylabel.errors import ConfigError, ImageError
from manylabel.images import decode, prepare
from manylabel.inference import OnnxEngine
from manylabel.predictions import Predictions
from manylabel.progress import working
from manylabel.types import LabelSpace

__all__ = ["export"]

CHECKED_IMAGES = 16
CALIBRATION_IMAGES = 200
MOST_COMPARED = 1000  # images to compare int8 on


def export(
    data: Annotated[
        str | None, argument("DATA", "Dataset to verify the file on, and to calibrate --int8 (default: sample photos).")
    ] = None,
    model: options.Model = DEFAULT_MODEL,
    out: Annotated[Path, option("FILE", "File to write: .onnx, or .pt2 for torch.export.")] = Path("model.onnx"),
    int8: Annotated[bool, flag("--int8", "Also write an 8-bit quantised file (needs DATA).")] = False,
    fixed_size: Annotated[bool, flag("--fixed-size", "Export for a single image size.")] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Export a model to ONNX or torch.export: uint8 images in, calibrated scores out.

    The exported file is compared with the model on real images and only written if they agree.
    """
    if out.suffix not in (".onnx", ".pt2"):
        raise ConfigError(f"--out must end in .onnx or .pt2 (torch.export), got {out}")
    if int8 and (data is None or out.suffix != ".onnx"):
        raise ConfigError("--int8 needs an .onnx file and a dataset: manylabel export DATA --model MODEL --int8")
    new_files(out, _int8_path(out) if int8 else None, overwrite=overwrite)
    from manylabel.inference.export import export_onnx, export_torch

    dataset = None if data is None else load_data(data)
    checked = None if dataset is None else [dataset.images[index] for index in _readable(dataset, CHECKED_IMAGES)]
    write = export_onnx if out.suffix == ".onnx" else export_torch
    with working("exporting the model"):
        classifier = ml.Classifier.from_pretrained(model)
        result = write(classifier, out, images=checked, any_size=not fixed_size, overwrite=overwrite)
    sizes = "images of any size" if result.any_size else "images of one size"
    typer.echo(f"Wrote {out}: {result.num_bytes / 1e6:.1f} MB, any number of {sizes}")
    typer.echo(f"Largest difference from the model's scores: {result.difference:.1e}")
    if result.note:
        typer.echo(result.note)
    if int8 and dataset is not None:
        _quantise(out, dataset, overwrite=overwrite)


def _quantise(path: Path, dataset: ml.data.ImageDataset, *, overwrite: bool) -> None:
    """Write the int8 file and print its cost on images not used for calibration."""
    from manylabel.inference.quantisation import MAX_FLIPPED, flipped_tags, quantise

    spec, small = OnnxEngine(path).spec, _int8_path(path)
    used = _readable(dataset, min(CALIBRATION_IMAGES, max(1, len(dataset) // 2)))
    with working("quantising the model"):
        images = np.stack([prepare(dataset.images[index], spec.input_spec) for index in used])
        result = quantise(path, small, images, overwrite=overwrite)
    typer.echo(f"Wrote {small}: {result.num_bytes / 1e6:.1f} MB, {result.size_ratio:.1f} times smaller")
    if result.weights_only:
        typer.echo("Only its weights are 8-bit integers: with 8-bit activations, too many tags would flip")
    typer.echo(f"Speed: {result.speed_ratio:.2f} times that of {path.name}, on this machine")
    rest = dataset.subset(np.arange(used[-1] + 1, len(dataset))[:MOST_COMPARED])
    if not len(rest):
        typer.echo("int8 was not compared: all images were used for calibration")
        return
    before, after = (OnnxEngine(file).predict(rest) for file in (path, small))
    flipped, num_tags = flipped_tags(before, after)
    fraction = flipped / max(1, num_tags)
    typer.echo(f"Flipped tags on {len(rest):,} other images: {flipped:,} of {num_tags:,} ({100 * fraction:.1f} %)")
    if reason := _incomparable(rest, spec.labels):
        typer.echo(f"mAP was not compared: {reason}")
    else:
        old, new = (100 * _mean_average_precision(each, rest) for each in (before, after))
        typer.echo(f"mAP on them: {old:.2f} before, {new:.2f} as int8 ({new - old:+.2f} points)")
    if fraction > MAX_FLIPPED:
        typer.echo(
            f"int8 is not recommended for this model: it changes more than {100 * MAX_FLIPPED:.0f} % of the tags"
        )


def _mean_average_precision(predictions: Predictions, dataset: ml.data.ImageDataset) -> float:
    import torch

    readable = predictions.readable.nonzero()[0]
    columns = [predictions.labels.index(name) for name in dataset.labels]
    scores = torch.from_numpy(predictions.scores[readable][:, columns])
    targets, known = map(torch.from_numpy, dataset.targets.dense(readable))
    return float(ml.metrics.average_precision(scores, targets, known).mean())


def _incomparable(rest: ml.data.ImageDataset, labels: LabelSpace) -> str:
    """Return the reason why mAP cannot be computed; empty if it can."""
    if not rest.targets.positives.sum():
        return "none of the other images has a label"
    if missing := [name for name in rest.labels if name not in labels]:
        return f"the dataset has {len(missing):,} labels that the model lacks, such as {missing[0]}"
    return ""


def _int8_path(path: Path) -> Path:
    return path.with_suffix(".int8.onnx")


def _readable(dataset: ml.data.ImageDataset, count: int) -> list[int]:
    """Return the indices of the first readable images."""
    found: list[int] = []
    for index in range(len(dataset)):
        try:
            decode(dataset.images[index])
            found.append(index)
        except ImageError:
            continue
        if len(found) == count:
            break
    if not found:
        raise ConfigError(f"{dataset.name} has no readable image; run: manylabel data check DATA")
    return found
