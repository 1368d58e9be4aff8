"""`manylabel runs`: list, show and compare past runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:  # keeps --help fast: it imports torch
    from manylabel.runs import Run

__all__ = ["app"]

app = typer.Typer(help="List, show and compare past runs.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to search recursively.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder, newest first."""
    from manylabel.runs import find_runs  # keeps `--help` fast

    runs = find_runs(folder)
    if as_json:
        typer.echo(json.dumps([_to_dict(run) for run in runs], indent=2))
        return
    if not runs:
        typer.echo(f"No runs in {folder}; start one with: manylabel train probe --data SPEC --out {folder}/first")
        return
    table = _table("run", "recipe", "head", "backbone", "data", right=("epochs", "mAP", "time", "state"))
    for run in runs:
        words = (run.recipe, *(str(run.settings.get(name, "?")) for name in ("head", "backbone", "data")))
        table.add_row(escape(str(run.path)), *map(escape, words), *_numbers(run))
    Console(highlight=False).print(table)


@app.command("show")
def show(folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")], as_json: Json = False) -> None:
    """Show a run: its command, epochs and settings."""
    from manylabel.runs import Run

    run = Run.read(folder)
    if as_json:
        epochs, settings = list(map(dict, run.epochs)), dict(run.settings)
        everything = {**_to_dict(run), "epochs": epochs, "settings": settings, "environment": dict(run.environment)}
        typer.echo(json.dumps(everything, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{escape(run.name)}[/]  {escape(run.recipe)}, started {run.started:%Y-%m-%d %H:%M} UTC")
    console.print(run.command, markup=False, soft_wrap=True)
    if run.epochs:
        columns = list(run.epochs[0])
        table = _table(right=columns)
        for row in run.epochs:
            table.add_row(*(f"{row[name]:.5g}" for name in columns))
        console.print(table)
    settings_table = _table("setting", "value")
    for name, value in run.settings.items():
        settings_table.add_row(name, escape(str(value)))
    console.print(settings_table)
    console.print(f"The model is in {run.model}" if run.is_finished else "Not finished: no model yet", markup=False)


@app.command("diff")
def diff(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Two or more run folders.")],
    as_json: Json = False,
) -> None:
    """Show the settings in which runs differ, and their mAP; 'manylabel report' compares their models."""
    from manylabel.errors import ConfigError
    from manylabel.runs import Run, differences

    if len(folders) < 2:
        raise ConfigError(f"diff needs at least two runs, got {len(folders)}; add another folder")
    runs = [Run.read(folder) for folder in folders]
    changed = differences(runs)
    if as_json:
        typer.echo(json.dumps({"runs": [_to_dict(run) for run in runs], "settings": changed}, indent=2))
        return
    table = _table("setting", *(str(run.path) for run in runs))
    for name, values in changed.items():
        table.add_row(name, *(escape(str(value)) for value in values))
    for name, cells in zip(("epochs", "mAP", "time", "state"), zip(*map(_numbers, runs), strict=True), strict=True):
        table.add_row(f"[bold]{name}[/]", *cells)
    Console(highlight=False).print(table)


def _to_dict(run: Run) -> dict[str, Any]:
    return {
        "path": str(run.path),
        "name": run.name,
        "recipe": run.recipe,
        "command": run.command,
        "started": run.started.isoformat(timespec="seconds"),
        "is_finished": run.is_finished,
        "num_epochs": len(run.epochs),
        "seconds": run.seconds,
        "mAP": run.mean_average_precision,
        "best_mAP": run.best_mean_average_precision,
    }


def _numbers(run: Run) -> tuple[str, str, str, str]:
    from manylabel.progress import duration

    reached = run.mean_average_precision
    state = "finished" if run.is_finished else "not finished"
    epochs = f"{len(run.epochs)}/{run.settings.get('epochs') or '?'}"
    return epochs, "" if reached is None else f"{100 * reached:.2f}", duration(run.seconds), state


def _table(*left: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in left:
        table.add_column(escape(name), overflow="fold")
    for name in right:
        table.add_column(escape(name), justify="right", no_wrap=True)
    return table
