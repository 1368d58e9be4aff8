"""`manylabel tune`: thresholds and calibration of a trained model, fitted on held-out data."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace as replace_fields
from rich.console import Console
from rich.table import Table

from manylabel.cli.evaluate import Data, Device, Overwrite, Workers
from manylabel.cli.model_names import refuse_shared
from manylabel.errors import ConfigError
from manylabel.progress import progress_bar
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # keeps --help fast: these import torch
    from manylabel.classifier import SavedModel
    from manylabel.data import ImageDataset
    from manylabel.tuning import Tuning
    from manylabel.types import LabelSpace

__all__ = ["tune"]

_MOST_LABELS = 10


class Calibrate(StrEnum):
    """Calibration method."""

    PLATT = "platt"
    TEMPERATURE = "temperature"
    NONE = "none"


def tune(
    model: Annotated[
        str, typer.Argument(help="Model or run folder, changed in place; with --out, also hub name or builtin:NAME.")
    ],
    data: Data,
    thresholds: Annotated[
        str,
        typer.Option(
            metavar="f1|precision=P|recall=R", help="Threshold objective: best F1, or a minimum precision or recall."
        ),
    ] = "f1",
    calibrate: Annotated[Calibrate, typer.Option(help="Calibration method.")] = Calibrate.PLATT,
    folds: Annotated[int, typer.Option(min=2, help="Number of cross-validation folds.")] = 5,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a tuned copy (default: change MODEL in place).")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the metrics before and after, and change nothing.")
    ] = False,
    workers: Workers = None,
    device: Device = None,
    overwrite: Overwrite = False,
) -> None:
    """Tune a threshold per label and calibrate scores, on data the model was not trained on.

    The reported metrics are cross-validated. Single-label models, which predict the most confident label, are only
    calibrated.
    """
    if out is None and not dry_run:
        refuse_shared(model)
    for path in (out, html):
        if path is not None:
            refuse_existing(path, overwrite=overwrite)
    from manylabel import evaluation, tuning
    from manylabel.builtin import find_model
    from manylabel.classifier import change_config, read_model
    from manylabel.data import load
    from manylabel.inference import open_engine
    from manylabel.predictions import Uncalibrated

    objective = tuning.Objective.parse(thresholds)
    folder = find_model(model)
    saved = read_model(folder)
    dataset = _with_labels(load(data), saved.labels, data)
    name = Path(model).name
    engine = Uncalibrated(
        open_engine(folder, device=device, num_images=len(dataset), notify=partial(typer.echo, err=True))
    )
    with progress_bar("scoring images") as progress:
        scored = evaluation.score(engine, dataset, name=name, num_workers=workers, progress=progress)
    result = tuning.tune(
        scored, method=calibrate.value, objective=objective, current=saved.config.calibration, num_folds=folds
    )
    _show(result)
    changes = {"thresholds": result.thresholds, "calibration": result.calibration}
    if html is not None:
        tuning.tuning_page(result, model=name, dataset=dataset.name).write(html, overwrite=overwrite)
        typer.echo(f"Wrote {html}")
    if dry_run:
        typer.echo("Nothing changed (--dry-run).")
    elif out is None:
        change_config(folder, changes)
        what = "calibration" if result.thresholds is None else "thresholds and calibration"
        typer.echo(f"Changed {what} in {folder / 'config.json'}")
    else:
        _write_copy(saved, folder, out, changes, overwrite=overwrite)
        typer.echo(f"Wrote {out}")


def _with_labels(dataset: ImageDataset, labels: LabelSpace, spec: str) -> ImageDataset:
    """Return the dataset with its labels in the model's order; refuse a dataset with other labels."""
    if set(dataset.labels) != set(labels):
        odd = sorted(set(dataset.labels) ^ set(labels))
        raise ConfigError(
            f"{spec} must have exactly the labels of the model; it has {len(dataset.labels)}, the model "
            f"{len(labels)}, and they differ in {', '.join(odd[:5])}; for a table or Open Images, list the "
            "model's labels in a file, one per line, and add labels=FILE to the spec"
        )
    return dataset if dataset.labels.names == labels.names else dataset.select_labels(labels.names)


def _write_copy(saved: SavedModel, folder: Path, out: Path, changes: Mapping[str, Any], *, overwrite: bool) -> None:
    """Write the tuned model and copy the other files of its folder, such as a README."""
    from manylabel.classifier import write_model

    write_model(replace(saved, config=replace_fields(saved.config, **changes)), out, overwrite=overwrite)
    for file in folder.iterdir():
        if file.is_file() and not (out / file.name).exists():
            shutil.copyfile(file, out / file.name)


def _show(result: Tuning) -> None:
    """Print the metrics before and after, and the labels that gained or lost most."""
    from manylabel.tuning import METRIC_TITLES

    console = Console(highlight=False)
    console.print(f"{result.num_images:,} images, {result.num_folds}-fold cross-validation; {result.aim}")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("metric", "before", "after"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, title in METRIC_TITLES.items():
        values = (performance.metrics[name] for performance in (result.before, result.after))
        table.add_row(title, *(f"{value:.4f}" if name == "log_loss" else f"{100 * value:.1f}" for value in values))
    console.print(table)
    points = {
        label.name: (round(100 * label.f1_before), round(100 * label.f1_after))
        for label in result.labels
        if label.f1_before is not None and label.f1_after is not None
    }
    changed = sorted(points, key=lambda name: points[name][0] - points[name][1])
    for title, names in (("gained", changed), ("lost", changed[::-1])):
        shown = [name for name in names if (points[name][1] - points[name][0]) * (1 if title == "gained" else -1) > 0]
        words = [f"{name} {points[name][0]} to {points[name][1]}" for name in shown[:_MOST_LABELS]]
        console.print(f"F1 {title} most: {', '.join(words) or 'none'}", markup=False, soft_wrap=True)
    for note in result.notes:
        console.print(note, markup=False, soft_wrap=True)
