"""`manylabel report`: finished runs on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manylabel.cli.evaluate import BatchSize, Device, Workers
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.progress import progress_bar
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # these need torch, for which --help must not wait
    from manylabel.runs import JudgedRun, Run

__all__ = ["report"]


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, as 'train --out' made.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the page goes.")] = Path("report.html"),
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B", help="Two labels to put against each other, A|B if one has a comma; again for more."
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=0, help="Draws of the bootstrap; 0 for no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Fixes the draws.")] = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = None,
    heat_maps: Annotated[
        bool, typer.Option(help="Show where a model looks, beside its worst and best pictures.")
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a page that is there.")] = False,
) -> None:
    """Show finished runs on one page that opens anywhere: curves, measures, labels, pictures, settings.

    Each model is judged on the pictures that its run held out. Its scores are kept in the run's folder, so that only
    the first report takes long.
    """
    refuse_existing(out, overwrite=overwrite)
    pairs = [_pair(text) for text in pair or ()]
    from manylabel.runs import heat_thumbnails, judge_run, report_page

    judged, unjudged = [], {}
    for run in _read(folders):
        try:
            with progress_bar(f"scoring images with {run.name}") as progress:
                judged.append(
                    judge_run(
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
            typer.echo(f"{run.name} could not be judged: {error}", err=True)
            unjudged[run.name] = (run, str(error))
    if pairs and (reason := _unused(judged, pairs)):
        typer.echo(f"--pair was not used: {reason}", err=True)
    draw = heat_thumbnails if heat_maps else None
    report_page(judged, unjudged=unjudged, draw=draw, pairs=pairs).write(out, overwrite=overwrite)
    typer.echo(f"Wrote {out}")


def _pair(text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split("|" if "|" in text else ",")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(
            "a pair is two labels with a comma between them, or a bar where a label has a comma (A|B), "
            f"such as cow,horse, got {text!r}"
        )
    return parts[0], parts[1]


def _unused(runs: Sequence[JudgedRun], pairs: Sequence[tuple[str, str]]) -> str:
    """Say why pairs of labels are not shown, nothing if they are; refuse labels that no run has."""
    from manylabel.runs.side_by_side import are_comparable
    from manylabel.types import LabelSpace

    known = LabelSpace(list(dict.fromkeys(name for judged in runs for name in judged.scored.labels)))
    for label in (label for pair in pairs for label in pair if runs):
        known.index(label)
    if len(runs) < 2:
        return "it puts labels of several runs against each other; give two or more that can be judged"
    return "" if are_comparable(runs) else "the runs were judged on different pictures or labels"


def _read(folders: list[Path]) -> list[Run]:
    """Read the runs; of two with the same name, both are called by their paths."""
    from manylabel.runs import Run

    runs = [Run.read(folder) for folder in folders]
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else replace(run, name=str(run.path)) for run in runs]
