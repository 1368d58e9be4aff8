"""`manylabel explain`: where a model looks for a label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from manylabel.cli.model_names import model_names
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # models need torch, for which --help must not wait
    from manylabel.classifier import Classifier

__all__ = ["explain"]


def explain(
    picture: Annotated[Path, typer.Argument(help="The picture.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A model's folder, a run's, a name on the hub, or builtin:NAME; again to compare. "
            "Left out: builtin:coco80.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="A label; again for more. Left out: those predicted.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="auto, attention, cam, grad_cam, grad_cam_plus_plus or eigen_cam; again for more."),
    ] = None,
    blocks: Annotated[
        str, typer.Option(help="Blocks of the backbone, such as 0,1,-1, or all; -1 is the final one.")
    ] = "-1",
    teachers: Annotated[
        bool,
        typer.Option("--teachers", help="Beside the model of a self-distillation run, its teachers, side by side."),
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the PNG goes; PICTURE.explained.png.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Show where a model looks for labels in a picture: a row for each label, a column for each method and block."""
    target = out or picture.with_suffix(".explained.png")
    refuse_existing(target, overwrite=overwrite)
    from manylabel.explain import draw_grid, explain_models
    from manylabel.page import write_drawing

    sources = list(dict.fromkeys(model or ["builtin:coco80"]))
    students = {name: _load(each) for name, each in zip(model_names(sources), sources, strict=True)}
    models: dict[str, Classifier | list[Classifier]] = {**(_teachers(model or []) if teachers else {}), **students}
    explanations = explain_models(models, picture, labels=label, method=method or ["auto"], blocks=_read_blocks(blocks))
    write_drawing(draw_grid(explanations), target, overwrite=overwrite)
    for each in explanations:
        x, y = each.hottest()
        where = f"hottest at {100 * x:.0f} % from the left, {100 * y:.0f} % from the top"
        who = f"{each.model}: " if len(models) > 1 else ""
        typer.echo(f"{who}{each.label} {100 * each.score:.1f} %, {each.method}, block {each.block}: {where}")
    typer.echo(f"Wrote {target}")


def _load(source: str) -> Classifier:
    from manylabel.classifier import Classifier

    return Classifier.from_pretrained(source)


def _teachers(sources: list[str]) -> dict[str, list[Classifier]]:
    """Return the teachers of self-distillation runs by their side: co, dis, random or whole."""
    from manylabel.errors import ConfigError

    sides: dict[str, list[Classifier]] = {}
    for source in sources:
        run = Path(source).parent if Path(source).name == "model" else Path(source)
        for folder in sorted((run / "teachers").glob("*/model")):
            sides.setdefault(f"{folder.parent.name.rpartition('-')[0]} teachers", []).append(_load(str(folder)))
    if not sides:
        given = ", ".join(sources) or "builtin:coco80"
        raise ConfigError(f"--teachers needs the run of a self-distillation with its teachers, got {given}")
    return sides


def _read_blocks(text: str) -> list[int] | Literal["all"]:
    from manylabel.errors import ConfigError

    if text == "all":
        return "all"
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"blocks must be numbers such as 0,1,-1, or all, got {text!r}") from None
