"""`manylabel runs`, `report` and `cache`: past runs, and cached features and exported models."""

from __future__ import annotations  # those of `ml` would import torch

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

import manylabel as ml
from manylabel.cli import options
from manylabel.cli.options import argument, flag, option
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.inference.engine import EXPORTS
from manylabel.progress import ProgressBar, duration, working
from manylabel.storage import cache_folder
from manylabel.system import device_name

if TYPE_CHECKING:  # keeps --help fast: it imports torch
    from manylabel.features import StoreInfo

runs = typer.Typer(help="List, show and compare past runs.", no_args_is_help=True)

_NUMBERS = ("epochs", "mAP", "time", "state")
Runs = Annotated[list[Path], argument("RUN...", "Run folders (--out of 'manylabel train').")]


@runs.command("list")
def list_runs(
    folder: Annotated[Path, argument("FOLDER", "Folder to search recursively.")] = Path("runs"),
    as_json: options.AsJson = False,
) -> None:
    """List the runs in a folder, newest first."""
    runs = ml.runs.find_runs(folder)
    if runs or as_json:
        options.show_result([_to_dict(run) for run in runs], partial(_show_list, runs), as_json=as_json)
    else:
        typer.echo(f"No runs in {folder}; start one with: manylabel train DATA --out {folder}/first")


@runs.command("show")
def show(folder: Annotated[Path, argument("RUN", "Run folder.")], as_json: options.AsJson = False) -> None:
    """Show a run: its command, epochs and settings."""
    run = ml.runs.Run.read(folder)
    more = {"settings": dict(run.settings), "environment": dict(run.environment)}
    values = {**_to_dict(run), "epochs": list(map(dict, run.epochs)), **more}
    options.show_result(values, partial(_show_run, run), as_json=as_json)


@runs.command("diff")
def diff(folders: Runs, as_json: options.AsJson = False) -> None:
    """Show the settings in which runs differ, and the mAP of each; to compare models, use 'manylabel report'."""
    if len(folders) < 2:
        raise ConfigError(f"diff needs at least two runs, got {len(folders)}; add another folder")
    runs = [ml.runs.Run.read(folder) for folder in folders]
    changed = ml.runs.differences(runs)
    values = {"runs": [_to_dict(run) for run in runs], "settings": changed}
    options.show_result(values, partial(_show_differences, runs, changed), as_json=as_json)


def _show_list(runs: Sequence[ml.runs.Run]) -> None:
    names = ("head", "backbone", "data")
    rows = [
        (str(run.path), run.recipe, *(str(run.settings.get(name, "?")) for name in names), *_numbers(run))
        for run in runs
    ]
    options.print_table(rows, "run", "recipe", *names, right=_NUMBERS)


def _show_run(run: ml.runs.Run) -> None:
    options.stdout_console().print(
        f"[bold]{escape(run.name)}[/]  {escape(run.recipe)}, started {run.started:%Y-%m-%d %H:%M} UTC"
    )
    typer.echo(run.command)
    if run.epochs:
        columns = list(run.epochs[0])
        options.print_table([[f"{row[name]:.5g}" for name in columns] for row in run.epochs], right=columns)
    options.print_table([(name, str(value)) for name, value in run.settings.items()], "setting", "value")
    typer.echo(f"The model is in {run.model}" if run.is_finished else "Not finished: no model yet")


def _show_differences(runs: Sequence[ml.runs.Run], changed: Mapping[str, Sequence[object]]) -> None:
    rows: list[Sequence[str | Text]] = [(name, *map(str, values)) for name, values in changed.items()]
    for name, cells in zip(_NUMBERS, zip(*map(_numbers, runs), strict=True), strict=True):
        rows.append((Text(name, style="bold"), *cells))
    options.print_table(rows, "setting", *(str(run.path) for run in runs))


def report(
    folders: Runs,
    out: Annotated[Path, option("FILE", "HTML file to write.")] = Path("report.html"),
    draws: options.Draws = 1000,
    workers: options.Workers = None,
    device: options.Device = "auto",
    heat_maps: Annotated[bool, typer.Option(help="Show heat maps of images with the highest and lowest loss.")] = True,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a self-contained HTML report about finished runs.

    Each model is evaluated on the validation set of its run and compared with the best one. Scores are cached in the
    run folder: only the first report is slow.
    """
    files = options.new_files(out, overwrite=overwrite)
    device = device_name(device)  # fails once here, not once per run
    evaluated, failed = [], {}
    settings: dict[str, Any] = {"draws": draws, "num_workers": workers, "device": device}
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
    options.report_files(files)


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


cache = typer.Typer(help="List and remove cached features and exported models.", no_args_is_help=True)


@cache.command("list")
def list_cache(as_json: options.AsJson = False) -> None:
    """List cached features and exported models, most recently used first."""
    from manylabel.features import list_stores, remove_leftovers

    remove_leftovers()
    stores = list_stores()
    options.show_result(
        [{"key": store.key, **asdict(store)} for store in stores], partial(_show_stores, stores), as_json=as_json
    )


@cache.command("remove")
def remove_cached(
    key: Annotated[str, argument("KEY", "Key of cached features in 'cache list', or its first digits.")] = "",
    everything: Annotated[bool, flag("--all", "Remove all features and exported models.")] = False,
    older_than: Annotated[float | None, option("DAYS", "Remove entries unused for this many days.")] = None,
) -> None:
    """Remove cached features and exported models; they are recomputed when needed."""
    from manylabel.features import default_root, list_stores, remove_leftovers, remove_store

    if sum((bool(key), everything, older_than is not None)) != 1:
        raise ConfigError("nothing to remove; pass a KEY from 'manylabel cache list', --all, or --older-than DAYS")
    remove_leftovers()
    used_before = time.time() - 86400 * (older_than or 0)
    keys = [key] if key else [store.key for store in list_stores() if everything or store.used < used_before]
    removed = [remove_store(each) for each in keys]
    if everything:
        shutil.rmtree(default_root(), ignore_errors=True)  # including damaged stores and those of other versions
    exports = [] if key else [file for file in _exports() if everything or file.stat().st_mtime < used_before]
    num_bytes = sum(store.num_bytes for store in removed) + sum(file.stat().st_size for file in exports)
    for file in exports:
        file.unlink()
    rest = f" and {len(exports)} exported models" if exports else ""
    typer.echo(f"Removed {len(removed)} feature sets{rest}, {num_bytes / 1e9:.2f} GB.")


def _exports() -> list[Path]:
    """Return the models and backbones exported for onnxruntime."""
    return sorted((cache_folder() / EXPORTS).glob("*.onnx*"))


def _show_stores(stores: Sequence[StoreInfo]) -> None:
    from manylabel.features import default_root

    rows = []
    for store in stores:
        spec = store.spec
        features = ", ".join("x".join(map(str, shape)) for shape in spec.shapes)
        numbers = (f"{store.num_images:,}", f"{store.num_bytes / 1e6:,.0f}", "now" if store.writer else _age(store))
        # half of the key fits a narrow terminal and identifies it
        rows.append((store.key[:8], spec.dataset, spec.backbone, features, str(spec.view), *numbers))
    if rows:
        options.print_table(rows, "key", "dataset", "backbone", "features", "view", right=("images", "MB", "used"))
    total = sum(store.num_bytes for store in stores)
    typer.echo(f"{len(stores)} feature sets, {total / 1e9:.2f} GB, in {default_root()}")
    if exports := _exports():
        size = sum(file.stat().st_size for file in exports)
        typer.echo(f"{len(exports)} exported models, {size / 1e9:.2f} GB")


def _age(store: StoreInfo) -> str:
    """Return the time since a store was last used."""
    seconds = time.time() - store.used
    for length, name in ((86400, "days"), (3600, "h")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds / 60:.0f} min"
