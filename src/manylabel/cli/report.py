"""`manylabel report`: finished runs on one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manylabel.cli.evaluate import BatchSize, Device, Draws, Overwrite, Seed, Workers
from manylabel.errors import ManyLabelError
from manylabel.progress import progress_bar
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # these need torch, for which --help must not wait
    from manylabel.runs import Run

__all__ = ["report"]


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, as 'train --out' made.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    draws: Draws = 1000,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = None,
    heat_maps: Annotated[bool, typer.Option(help="Show heat maps of the worst and best images.")] = True,
    overwrite: Overwrite = False,
) -> None:
    """Write a self-contained HTML page about finished runs: curves, measures, labels, images, settings.

    Each model is evaluated on the validation set of its run; several are compared with the best. Scores are saved in
    the folder of the run, so that only the first report takes long.
    """
    refuse_existing(out, overwrite=overwrite)
    from manylabel.runs import evaluate_run, heat_thumbnails, report_page
    from manylabel.system import find_device

    find_device(device or "cpu")  # or each run would fail by itself
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
    """Read the runs; two of the same name are called by their paths."""
    from manylabel.runs import Run

    runs = [Run.read(folder) for folder in folders]
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else replace(run, name=str(run.path)) for run in runs]
