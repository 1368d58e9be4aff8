"""`manylabel runs` and `manylabel report`: list, show and compare past runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from manylabel.cli import options
from manylabel.cli.options import make_table, new_files, print_json, report_files
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.progress import duration, progress_bar, working

if TYPE_CHECKING:  # keeps --help fast: it imports torch
    from manylabel.runs import Run

__all__ = ["app", "report"]

app = typer.Typer(help="List, show and compare past runs.", no_args_is_help=True)

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders (--out of 'manylabel train').")]


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to search recursively.")] = Path("runs"),
    as_json: options.AsJson = False,
) -> None:
    """List the runs in a folder, newest first."""
    from manylabel.runs import find_runs  # keeps `--help` fast

    runs = find_runs(folder)
    if as_json:
        print_json([_to_dict(run) for run in runs])
        return
    if not runs:
        typer.echo(f"No runs in {folder}; start one with: manylabel train DATA --out {folder}/first")
        return
    table = make_table("run", "recipe", "head", "backbone", "data", right=("epochs", "mAP", "time", "state"))
    for run in runs:
        words = (run.recipe, *(str(run.settings.get(name, "?")) for name in ("head", "backbone", "data")))
        table.add_row(escape(str(run.path)), *map(escape, words), *_numbers(run))
    Console(highlight=False).print(table)


@app.command("show")
def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")], as_json: options.AsJson = False
) -> None:
    """Show a run: its command, epochs and settings."""
    from manylabel.runs import Run

    run = Run.read(folder)
    if as_json:
        epochs, settings = list(map(dict, run.epochs)), dict(run.settings)
        everything = {**_to_dict(run), "epochs": epochs, "settings": settings, "environment": dict(run.environment)}
        print_json(everything)
        return
    console = Console(highlight=False)
    console.print(f"[bold]{escape(run.name)}[/]  {escape(run.recipe)}, started {run.started:%Y-%m-%d %H:%M} UTC")
    console.print(run.command, markup=False, soft_wrap=True)
    if run.epochs:
        columns = list(run.epochs[0])
        table = make_table(right=columns)
        for row in run.epochs:
            table.add_row(*(f"{row[name]:.5g}" for name in columns))
        console.print(table)
    settings_table = make_table("setting", "value")
    for name, value in run.settings.items():
        settings_table.add_row(name, escape(str(value)))
    console.print(settings_table)
    console.print(f"The model is in {run.model}" if run.is_finished else "Not finished: no model yet", markup=False)


@app.command("diff")
def diff(folders: Runs, as_json: options.AsJson = False) -> None:
    """Show the settings in which runs differ, and the mAP of each; to compare models, use 'manylabel report'."""
    from manylabel.runs import Run, differences

    if len(folders) < 2:
        raise ConfigError(f"diff needs at least two runs, got {len(folders)}; add another folder")
    runs = [Run.read(folder) for folder in folders]
    changed = differences(runs)
    if as_json:
        print_json({"runs": [_to_dict(run) for run in runs], "settings": changed})
        return
    table = make_table("setting", *(str(run.path) for run in runs))
    for name, values in changed.items():
        table.add_row(name, *(escape(str(value)) for value in values))
    for name, cells in zip(("epochs", "mAP", "time", "state"), zip(*map(_numbers, runs), strict=True), strict=True):
        table.add_row(f"[bold]{name}[/]", *cells)
    Console(highlight=False).print(table)


def report(
    folders: Runs,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")] = Path("report.html"),
    draws: options.Draws = 1000,
    batch_size: options.BatchSize = 32,
    workers: options.Workers = None,
    device: options.Device = None,
    heat_maps: Annotated[
        bool, typer.Option(help="Show heat maps of the images with the highest and lowest loss.")
    ] = True,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a self-contained HTML report about finished runs.

    Each model is evaluated on the validation set of its run and compared with the best one. Scores are cached in the
    run folder: only the first report is slow.
    """
    files = new_files(out, overwrite=overwrite)
    from manylabel.runs import evaluate_run, heat_thumbnails, report_page
    from manylabel.system import find_device

    find_device(device or "cpu")  # fails once here, not once per run
    evaluated, failed = [], {}
    for run in _read(folders):
        try:
            with progress_bar(f"scoring images with {run.name}") as progress:
                evaluated.append(
                    evaluate_run(
                        run,
                        draws=draws,
                        batch_size=batch_size,
                        num_workers=workers,
                        device=device,
                        progress=progress,
                    )
                )
        except ManyLabelError as error:
            typer.echo(f"{run.name} could not be evaluated: {error}", err=True)
            failed[run.name] = (run, str(error))
    with working(f"writing {out}"):
        draw = heat_thumbnails if heat_maps else None
        report_page(evaluated, failed=failed, draw=draw).write(out, overwrite=overwrite)
    report_files(files)


def _read(folders: list[Path]) -> list[Run]:
    """Read the runs; runs of the same name are identified by path."""
    from manylabel.runs import Run

    runs = [Run.read(folder) for folder in folders]
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else replace(run, name=str(run.path)) for run in runs]


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
    reached = run.mean_average_precision
    state = "finished" if run.is_finished else "not finished"
    epochs = f"{len(run.epochs)}/{run.settings.get('epochs') or '?'}"
    return epochs, "" if reached is None else f"{100 * reached:.2f}", duration(run.seconds), state
