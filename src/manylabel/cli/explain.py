"""`manylabel explain`: heat maps of the evidence for a label."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

import manylabel as ml
from manylabel.builtin import DEFAULT_MODEL
from manylabel.cli import options
from manylabel.cli.options import flag, model_names, new_files, option, report_files
from manylabel.errors import ConfigError
from manylabel.image_files import EXPLAINED, list_images
from manylabel.progress import ProgressBar

__all__ = ["explain"]


def explain(
    images: options.Images,
    model: Annotated[list[str], option("MODEL", f"{options.MODEL} or builtin:NAME; repeat to compare.")] = [  # noqa: B006 (typer needs a list; it is not changed)
        DEFAULT_MODEL
    ],
    label: Annotated[
        list[str] | None, option("LABEL", "Label to explain; repeat for more (default: the predicted labels).")
    ] = None,
    method: Annotated[
        list[str],
        option("NAME", "Method: auto, attention, cam, grad_cam, grad_cam_plus_plus or eigen_cam; repeat for more."),
    ] = ["auto"],  # noqa: B006 (likewise)
    blocks: Annotated[str, option("BLOCKS", "Backbone blocks, such as 0,1,-1 (-1: the last), or all.")] = "-1",
    teachers: Annotated[bool, flag("--teachers", "Also show the teachers of a self-distillation run.")] = False,
    out: Annotated[
        Path | None,
        option("PATH", "PNG file, or folder for several images (default: IMAGE.explained.png in this folder)."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw heat maps of the evidence for labels in images.

    The drawing has a row per label and a column per method and block.
    """
    targets = _targets(list(list_images(images, listed=sys.stdin)), out)
    new_files(*targets.values(), overwrite=overwrite)
    from manylabel.page import write_drawing

    load = ml.Classifier.from_pretrained
    sources, which = list(dict.fromkeys(model)), _read_blocks(blocks)
    with ProgressBar("explaining images") as bar:
        models: dict[str, ml.Classifier | list[ml.Classifier]] = {}
        if teachers:
            models.update(_teachers(model))
        models.update(zip(model_names(sources), map(load, sources), strict=True))
        for number, (image, target) in enumerate(targets.items(), 1):
            explanations = ml.explain.explain_models(models, image, labels=label, method=method, blocks=which)
            write_drawing(ml.explain.draw_grid(explanations), target, overwrite=overwrite)
            for each in explanations:
                x, y = each.hottest()
                where = f"hottest at {100 * x:.0f} % from the left, {100 * y:.0f} % from the top"
                who = f"{each.model}: " if len(models) > 1 else ""
                typer.echo(f"{who}{each.label} {100 * each.score:.1f} %, {each.method}, block {each.block}: {where}")
            report_files([target])
            bar.update(number, len(targets))


def _targets(images: Sequence[str], out: Path | None) -> dict[str, Path]:
    """Return the file to write for each image; `predict` ignores these when it walks a folder."""
    if out is not None and len(images) == 1 and not out.is_dir():
        return {images[0]: out}
    if out is not None and out.suffix:
        raise ConfigError(f"--out must be a folder for {len(images)} images, got {out}")
    targets = {image: (out or Path()) / f"{Path(image).stem}{EXPLAINED}" for image in images}
    if len(set(targets.values())) < len(targets):
        raise ConfigError("several images have the same name; explain them in separate runs with different --out")
    return targets


def _teachers(sources: list[str]) -> dict[str, list[ml.Classifier]]:
    """Return the teachers of self-distillation runs by partition: co, dis, random or whole."""
    sides: dict[str, list[ml.Classifier]] = {}
    for source in sources:
        run = Path(source).parent if Path(source).name == "model" else Path(source)
        for folder in sorted((run / "teachers").glob("*/model")):
            side = f"{folder.parent.name.rpartition('-')[0]} teachers"
            sides.setdefault(side, []).append(ml.Classifier.load(folder))
    if not sides:
        raise ConfigError(f"--teachers needs the folder of a self_distillation run, got {', '.join(sources)}")
    return sides


def _read_blocks(text: str) -> list[int] | Literal["all"]:
    if text == "all":
        return "all"
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"blocks must be numbers such as 0,1,-1, or all, got {text!r}") from None
