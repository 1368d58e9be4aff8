"""`manylabel report`: one HTML page about finished runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manylabel.cli.evaluate import BatchSize, Device, Draws, Overwrite, Seed, Workers
from manylabel.errors import ManyLabelError
from manylabel.progress import progress_bar
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # keeps --help fast: these import torch
    from manylabel.runs import Run

__all__ = ["report"]


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders (--out of 'manylabel train').")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")] = Path("report.html"),
    draws: Draws = 1000,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = None,
    heat_maps: Annotated[bool, typer.Option(help="Show heat maps of the worst and best images.")] = True,
    overwrite: Overwrite = False,
) -> None:
    """Write a self-contained HTML report about finished runs.

    Each model is evaluated on the validation set of its run and compared with the best one. Scores are cached in the
    run folder: only the first report is slow.
    """
    refuse_existing(out, overwrite=overwrite)
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
                        seed=seed,
                        batch_size=batch_size,
                        num_workers=workers,
                        device=device,
                        progress=progress,
                    )
                )
        except ManyLabelError as error:
            typer.echo(f"{run.name} could not be evaluated: {error}", err=True)
            failed[run.name] = (run, str(error))
    draw = heat_thumbnails if heat_maps else None
    report_page(evaluated, failed=failed, draw=draw).write(out, overwrite=overwrite)
    typer.echo(f"Wrote {out}")


def _read(folders: list[Path]) -> list[Run]:
    """Read the runs; runs of the same name are identified by path."""
    from manylabel.runs import Run

    runs = [Run.read(folder) for folder in folders]
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else replace(run, name=str(run.path)) for run in runs]
