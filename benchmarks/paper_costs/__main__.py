"""Print the papers' cost tables next to ours: python -m benchmarks.paper_costs [ml-decoder]."""

import argparse

from benchmarks.paper_costs import PAPERS, TableRow
from rich.console import Console
from rich.table import Table


def main() -> None:
    """Count the tables of one paper or of all and print both numbers next to each other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paper", nargs="?", choices=PAPERS, help="only this paper (default: all)")
    chosen = parser.parse_args().paper
    counted = {name: rows() for name, rows in PAPERS.items() if chosen in (None, name)}
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


def _to_table(paper: str, rows: list[TableRow], notes: list[str]) -> Table:
    """Lay rows out under each other; their notes are given by number."""
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


if __name__ == "__main__":
    main()
