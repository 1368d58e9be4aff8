"""`manylabel explain`: heat maps of the evidence for a label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from manylabel.cli.model_names import model_names
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # keeps --help fast: it imports torch
    from manylabel.classifier import Classifier

__all__ = ["explain"]


def explain(
    image: Annotated[Path, typer.Argument(help="Image to explain.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Model or run folder, hub name or builtin:NAME; repeat to compare (default: builtin:coco80).",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="Label to explain; repeat for more (default: the predicted ones)."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="auto, attention, cam, grad_cam, grad_cam_plus_plus or eigen_cam; repeat for more."),
    ] = None,
    blocks: Annotated[str, typer.Option(help="Backbone blocks, such as 0,1,-1 (-1: the last), or all.")] = "-1",
    teachers: Annotated[
        bool,
        typer.Option("--teachers", help="Also show the teachers of a self-distillation run."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="PNG file to write (default: IMAGE.explained.png in the current folder)."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Draw heat maps of the evidence for labels in an image.

    The drawing has a row per label and a column per method and block.
    """
    target = out or _default_out(image)
    refuse_existing(target, overwrite=overwrite)
    from manylabel.explain import draw_grid, explain_models
    from manylabel.page import write_drawing

    sources = list(dict.fromkeys(model or ["builtin:coco80"]))
    students = {name: _load(each) for name, each in zip(model_names(sources), sources, strict=True)}
    models: dict[str, Classifier | list[Classifier]] = {**(_teachers(model or []) if teachers else {}), **students}
    explanations = explain_models(models, image, labels=label, method=method or ["auto"], blocks=_read_blocks(blocks))
    write_drawing(draw_grid(explanations), target, overwrite=overwrite)
    for each in explanations:
        x, y = each.hottest()
        where = f"hottest at {100 * x:.0f} % from the left, {100 * y:.0f} % from the top"
        who = f"{each.model}: " if len(models) > 1 else ""
        typer.echo(f"{who}{each.label} {100 * each.score:.1f} %, {each.method}, block {each.block}: {where}")
    typer.echo(f"Wrote {target}")


def _default_out(image: Path) -> Path:
    """Return a file in the current folder; refuse the image's own folder, where `predict` would read it next."""
    from manylabel.errors import ConfigError

    if image.resolve().parent == Path.cwd():
        raise ConfigError("the heat maps would be written among the images of the current folder; pass --out FILE")
    return Path(f"{image.stem}.explained.png")


def _load(source: str) -> Classifier:
    from manylabel.classifier import Classifier

    return Classifier.from_pretrained(source)


def _teachers(sources: list[str]) -> dict[str, list[Classifier]]:
    """Return the teachers of self-distillation runs by partition: co, dis, random or whole."""
    from manylabel.errors import ConfigError

    sides: dict[str, list[Classifier]] = {}
    for source in sources:
        run = Path(source).parent if Path(source).name == "model" else Path(source)
        for folder in sorted((run / "teachers").glob("*/model")):
            sides.setdefault(f"{folder.parent.name.rpartition('-')[0]} teachers", []).append(_load(str(folder)))
    if not sides:
        given = ", ".join(sources) or "builtin:coco80"
        raise ConfigError(f"--teachers needs the folder of a self_distillation run, got {given}")
    return sides


def _read_blocks(text: str) -> list[int] | Literal["all"]:
    from manylabel.errors import ConfigError

    if text == "all":
        return "all"
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"blocks must be numbers such as 0,1,-1, or all, got {text!r}") from None
