"""`manylabel data scenes`: write demo pictures with labels, to try everything on."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["scenes"]


def scenes(
    folder: Annotated[Path, typer.Argument(help="Where the pictures and labels.csv go; it is made.")],
    n: Annotated[int, typer.Option("--n", help="How many pictures.")] = 200,
    seed: Annotated[int, typer.Option(help="Which pictures; another seed gives other ones.")] = 0,
    size: Annotated[int, typer.Option(help="Width and height in pixels.")] = 256,
    unknown: Annotated[float, typer.Option(help="The share of labels to leave blank, as unknown.")] = 0.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Write demo pictures, several things in each, and a table of what they show."""
    from manylabel.data import write_scenes  # here, because `--help` must not wait for it

    table = write_scenes(folder, n, seed=seed, size=size, unknown=unknown, overwrite=overwrite)
    typer.echo(f"Wrote {n} pictures to {table.parent / 'pictures'} and their labels to {table}.")
    typer.echo(f"Look at them with: manylabel data check csv:{table}")
