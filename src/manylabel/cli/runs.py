"""`manylabel runs` and `manylabel report`: list, show and compare past runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

import manylabel as ml
from manylabel.cli import options
from manylabel.cli.options import argument, new_files, option, print_table, report_files, show_result, stdout_console
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.progress import ProgressBar, duration, working
from manylabel.system import device_name

__all__ = ["app", "report"]

app = typer.Typer(help="List, show and compare past runs.", no_args_is_help=True)

_NUMBERS = ("epochs", "mAP", "time", "state")
Runs = Annotated[list[Path], argument("RUN...", "Run folders (--out of 'manylabel train').")]


@app.command("list")
def list_runs(
    folder: Annotated[Path, argument("FOLDER", "Folder to search recursively.")] = Path("runs"),
    as_json: options.AsJson = False,
) -> None:
    """List the runs in a folder, newest first."""
    runs = ml.runs.find_runs(folder)
    if runs or as_json:
        show_result([_to_dict(run) for run in runs], partial(_show_list, runs), as_json=as_json)
    else:
        typer.echo(f"No runs in {folder}; start one with: manylabel train DATA --out {folder}/first")


@app.command("show")
def show(folder: Annotated[Path, argument("RUN", "Run folder.")], as_json: options.AsJson = False) -> None:
    """Show a run: its command, epochs and settings."""
    run = ml.runs.Run.read(folder)
    more = {"settings": dict(run.settings), "environment": dict(run.environment)}
    values = {**_to_dict(run), "epochs": list(map(dict, run.epochs)), **more}
    show_result(values, partial(_show_run, run), as_json=as_json)


@app.command("diff")
def diff(folders: Runs, as_json: options.AsJson = False) -> None:
    """Show the settings in which runs differ, and the mAP of each; to compare models, use 'manylabel report'."""
    if len(folders) < 2:
        raise ConfigError(f"diff needs at least two runs, got {len(folders)}; add another folder")
    runs = [ml.runs.Run.read(folder) for folder in folders]
    changed = ml.runs.differences(runs)
    values = {"runs": [_to_dict(run) for run in runs], "settings": changed}
    show_result(values, partial(_show_differences, runs, changed), as_json=as_json)


def _show_list(runs: Sequence[ml.runs.Run]) -> None:
    names = ("head", "backbone", "data")
    rows = [
        (str(run.path), run.recipe, *(str(run.settings.get(name, "?")) for name in names), *_numbers(run))
        for run in runs
    ]
    print_table(rows, "run", "recipe", *names, right=_NUMBERS)


def _show_run(run: ml.runs.Run) -> None:
    stdout_console().print(
        f"[bold]{escape(run.name)}[/]  {escape(run.recipe)}, started {run.started:%Y-%m-%d %H:%M} UTC"
    )
    typer.echo(run.command)
    if run.epochs:
        columns = list(run.epochs[0])
        print_table([[f"{row[name]:.5g}" for name in columns] for row in run.epochs], right=columns)
    print_table([(name, str(value)) for name, value in run.settings.items()], "setting", "value")
    typer.echo(f"The model is in {run.model}" if run.is_finished else "Not finished: no model yet")


def _show_differences(runs: Sequence[ml.runs.Run], changed: Mapping[str, Sequence[object]]) -> None:
    rows: list[Sequence[str | Text]] = [(name, *map(str, values)) for name, values in changed.items()]
    for name, cells in zip(_NUMBERS, zip(*map(_numbers, runs), strict=True), strict=True):
        rows.append((Text(name, style="bold"), *cells))
    print_table(rows, "setting", *(str(run.path) for run in runs))


def report(
    folders: Runs,
    out: Annotated[Path, option("FILE", "HTML file to write.")] = Path("report.html"),
    draws: options.Draws = 1000,
    batch_size: options.BatchSize = 32,
    workers: options.Workers = None,
    device: options.Device = "auto",
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
    device = device_name(device)  # fails once here, not once per run
    evaluated, failed = [], {}
    settings: dict[str, Any] = {"draws": draws, "batch_size": batch_size, "num_workers": workers, "device": device}
    for run in _read(folders):
        try:
            with ProgressBar(f"scoring images with {run.name}") as bar:
                evaluated.append(ml.runs.evaluate_run(run, progress=bar.update, **settings))
        except ManyLabelError as error:
            typer.echo(f"{run.name} could not be evaluated: {error}", err=True)
            failed[run.name] = (run, str(error))
    with working(f"writing {out}"):
        draw = ml.runs.heat_thumbnails if heat_maps else None
        ml.runs.report_page(evaluated, failed=failed, draw=draw).write(out, overwrite=overwrite)
    report_files(files)


def _read(folders: list[Path]) -> list[ml.runs.Run]:
    """Read the runs; runs of the same name are identified by path."""
    runs = [ml.runs.Run.read(folder) for folder in folders]
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else replace(run, name=str(run.path)) for run in runs]


def _to_dict(run: ml.runs.Run) -> dict[str, Any]:
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


def _numbers(run: ml.runs.Run) -> tuple[str, str, str, str]:
    reached = run.mean_average_precision
    state = "finished" if run.is_finished else "not finished"
    epochs = f"{len(run.epochs)}/{run.settings.get('epochs') or '?'}"
    return epochs, "" if reached is None else f"{100 * reached:.2f}", duration(run.seconds), state
