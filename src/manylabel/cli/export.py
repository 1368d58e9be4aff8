"""`manylabel export`: a model as a file for other programs, checked before it is written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manylabel.errors import ConfigError
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # these need torch, for which --help must not wait
    from manylabel.data import ImageDataset
    from manylabel.types import LabelSpace

__all__ = ["export"]

_CHECKED = 16


class Format(StrEnum):
    """What can be written."""

    ONNX = "onnx"
    TORCH_EXPORT = "torch-export"


def export(
    model: Annotated[str, typer.Argument(help="A model's folder, a name on the hub, or builtin:NAME.")],
    to: Annotated[Format, typer.Option("--to", help="What to write.")] = Format.ONNX,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where; model.onnx or model.pt2 when left out.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Real pictures to check it on, and to calibrate int8 with.")
    ] = None,
    fixed_size: Annotated[bool, typer.Option("--fixed-size", help="Take pictures of one size only.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Also write it in 8-bit numbers; wants --data.")] = False,
    calibration_pictures: Annotated[int, typer.Option(min=1, help="Pictures that int8 is calibrated with.")] = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Write a model as ONNX or torch.export: bytes of pictures in, calibrated scores out.

    The file is compared with the model on real pictures; one that disagrees is not written.
    """
    if int8 and (data is None or to is not Format.ONNX):
        raise ConfigError("int8 wants --to onnx and --data SPEC: pictures like those it will see")
    path = out or Path("model.onnx" if to is Format.ONNX else "model.pt2")
    for file in (path, _small(path)) if int8 else (path,):
        refuse_existing(file, overwrite=overwrite)
    from manylabel.classifier import Classifier
    from manylabel.data import load
    from manylabel.inference.export import export_onnx, export_torch

    dataset = None if data is None else load(data)
    checked = None if dataset is None else [dataset.pictures[index] for index in _readable(dataset, _CHECKED)]
    write = export_onnx if to is Format.ONNX else export_torch
    classifier = Classifier.from_pretrained(model)
    result = write(classifier, path, pictures=checked, any_size=not fixed_size, overwrite=overwrite)
    sizes = "pictures of any size" if result.any_size else "pictures of one size"
    typer.echo(f"Wrote {path}: {result.num_bytes / 1e6:.1f} MB, any number of {sizes}")
    typer.echo(f"Largest difference from the model's scores: {result.difference:.1e}")
    if result.note:
        typer.echo(result.note)
    if int8 and dataset is not None:
        _quantise(path, dataset, calibration_pictures, overwrite=overwrite)


def _quantise(path: Path, dataset: ImageDataset, count: int, *, overwrite: bool) -> None:
    """Write the smaller file and say what it costs, on pictures that it was not calibrated with."""
    import numpy as np

    from manylabel.evaluation import measure, score
    from manylabel.images import prepare
    from manylabel.inference import OnnxEngine
    from manylabel.inference.quantisation import quantise

    before = OnnxEngine(path)
    used = _readable(dataset, min(count, max(1, len(dataset) // 2)))
    pictures = [prepare(dataset.pictures[index], before.spec.input_spec) for index in used]
    batches = [np.stack(pictures[start : start + 16]) for start in range(0, len(pictures), 16)]
    small = _small(path)
    result = quantise(path, small, batches, overwrite=overwrite)
    typer.echo(f"Wrote {small}: {result.num_bytes / 1e6:.1f} MB, {result.size_ratio:.1f} times smaller")
    typer.echo(f"Speed: {result.speed_ratio:.2f} times that of {path.name}, on this machine")
    typer.echo(f"Mean difference of scores: {result.difference:.1e}")
    rest = dataset.subset(np.arange(used[-1] + 1, len(dataset)))
    if reason := _incomparable(rest, before.spec.labels):
        typer.echo(f"mAP was not compared: {reason}")
        return
    old, new = (measure(score(OnnxEngine(each), rest, max_bad_share=1.0))["mAP"] for each in (path, small))
    change = f"{100 * (new - old):+.2f} points"
    typer.echo(f"mAP on {len(rest):,} other pictures: {100 * old:.2f} before, {100 * new:.2f} as int8 ({change})")


def _incomparable(rest: ImageDataset, labels: LabelSpace) -> str:
    """Say why mAP cannot be measured on pictures; nothing if it can."""
    if not len(rest):
        return "the data have no pictures beside those for calibration"
    if not rest.targets.positives.sum():
        return "no other picture of the data has a label"
    if missing := [name for name in rest.labels if name not in labels]:
        return f"the data have {len(missing):,} labels that the model lacks, such as {missing[0]}"
    return ""


def _small(path: Path) -> Path:
    """Return where the model in 8-bit numbers goes."""
    return path.with_suffix(".int8.onnx")


def _readable(dataset: ImageDataset, count: int) -> list[int]:
    """Return where the first pictures are that can be read to their end."""
    from manylabel.errors import ImageError
    from manylabel.images import decode

    found: list[int] = []
    for index in range(len(dataset)):
        try:
            decode(dataset.pictures[index])
            found.append(index)
        except ImageError:
            continue
        if len(found) == count:
            break
    if not found:
        raise ConfigError(f"{dataset.name} has no picture that can be read; run: manylabel data check SPEC")
    return found
