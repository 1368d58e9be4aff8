"""`manylabel benchmark`: what models cost, beside what the papers print."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from manylabel.errors import ConfigError, list_choices

if TYPE_CHECKING:
    from manylabel.cost.tables import TableRow

__all__ = ["app"]

app = typer.Typer(help="What models cost, beside what the papers print.", no_args_is_help=True)


@app.callback()
def benchmark() -> None:
    """Hold the commands together, so that one alone keeps its name."""


@app.command()
def tables(
    paper: Annotated[str, typer.Argument(help="Only this paper, such as ml-decoder; all when left out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Count the papers' cost tables again and print both numbers side by side."""
    from manylabel.cost.tables import PAPERS  # here because `--help` must not wait for torch

    if paper and paper not in PAPERS:
        raise ConfigError(f"no paper {paper!r}; {list_choices(paper, PAPERS)}")
    counted = {name: rows() for name, rows in PAPERS.items() if paper in ("", name)}
    if as_json:
        typer.echo(json.dumps([_to_dict(name, row) for name, rows in counted.items() for row in rows], indent=2))
        return
    console = Console(highlight=False)
    notes = list(dict.fromkeys(row.note for rows in counted.values() for row in rows if row.note))
    for name, rows in counted.items():
        console.print(_to_table(name, rows, notes))
    for number, note in enumerate(notes, 1):
        console.print(f"{number}) {note}")
    count = sum(not row.agrees for rows in counted.values() for row in rows)
    console.print(
        f"{count} of {sum(map(len, counted.values()))} numbers do not follow from the paper's text (marked *)."
    )


def _to_dict(paper: str, row: TableRow) -> dict[str, object]:
    return {"of": paper, **asdict(row), "agrees": row.agrees}


def _to_table(paper: str, rows: list[TableRow], notes: list[str]) -> Table:
    """Lay rows out under each other; their notes are told by number."""
    table = Table(title=paper, title_justify="left", title_style="bold", header_style="bold", box=None)
    for column in ("table", "row", "quantity"):
        table.add_column(column)
    for column in ("paper", "ours", "difference", "note"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        bound, mark = "<" if row.is_bound else "", "" if row.agrees else "*"
        numbers = (f"{bound}{row.paper:g}", f"{row.ours:.5g}", "" if row.is_bound else f"{row.difference:+.1%}{mark}")
        note = f"{notes.index(row.note) + 1})" if row.note else ""
        table.add_row(row.table, row.row, row.quantity, *numbers, note)
    return table
