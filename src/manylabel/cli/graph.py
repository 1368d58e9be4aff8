"""`manylabel graph`: co-occurrence of labels, and partitions by it."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manylabel.storage import refuse_existing, write_text

if TYPE_CHECKING:  # keeps --help fast: it imports torch
    from manylabel.labelgraph import LabelGraph, Partition, PartitionKind

__all__ = ["graph"]

_MOST_LABELS = 60


class Kind(StrEnum):
    """Kind of partition."""

    CO = "co"
    DIS = "dis"
    BOTH = "both"
    RANDOM = "random"


_KINDS: "dict[Kind, tuple[PartitionKind, ...]]" = {
    Kind.CO: ("co",),
    Kind.DIS: ("dis",),
    Kind.BOTH: ("co", "dis"),
    Kind.RANDOM: ("random",),
}


def graph(
    spec: Annotated[str, typer.Argument(help="Dataset, such as voc:VOCdevkit/VOC2012,split=train.")],
    k: Annotated[int, typer.Option("--k", help="Number of subsets.")] = 5,
    kind: Annotated[
        Kind,
        typer.Option(
            help="Subsets of co-occurring labels (co), dissimilar ones (dis), one partition of each (both), or random."
        ),
    ] = Kind.BOTH,
    tau: Annotated[
        float,
        typer.Option(help="Temperature of the co-occurrence rates (tau in CPSD); larger values favour rare pairs."),
    ] = 2.0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - prints them.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Write a drawing of the graph.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Show which labels co-occur, and partition the labels by co-occurrence.

    Reads the labels only, no images.
    """
    files = [Path(path) for path in (as_json, png) if path is not None and path != "-"]
    for path in files:
        refuse_existing(path, overwrite=overwrite)
    from manylabel import data
    from manylabel.labelgraph import LabelGraph, draw_graph, partition_labels
    from manylabel.page import write_drawing

    dataset = data.load(spec)
    label_graph = LabelGraph.from_targets(dataset.targets, dataset.labels, tau=tau)
    partitions = [partition_labels(label_graph, k, kind=one, seed=seed) for one in _KINDS[kind]]
    if png is not None:
        write_drawing(draw_graph(label_graph, partitions), png, overwrite=overwrite)
    if as_json is not None:
        _write_json(dataset.name, label_graph, partitions, as_json, overwrite=overwrite)
    if as_json != "-":
        _show(dataset.name, len(dataset), label_graph, partitions)
        typer.echo("".join(f"Wrote {path}\n" for path in files), nl=False)


def _write_json(
    name: str, label_graph: "LabelGraph", partitions: "list[Partition]", path: str, *, overwrite: bool
) -> None:
    values = {"name": name, **label_graph.to_dict(), "partitions": [partition.to_dict() for partition in partitions]}
    text = json.dumps(values, indent=2)
    if path == "-":
        typer.echo(text)
    else:
        write_text(path, text, overwrite=overwrite)


def _show(name: str, num_images: int, label_graph: "LabelGraph", partitions: "list[Partition]") -> None:
    """Print the key figures, and a table for each partition."""
    from manylabel.page import plural

    console = Console(highlight=False)
    console.print(f"[bold]{escape(name)}[/]")
    console.print(f"  {plural(num_images, 'image')}, {plural(len(label_graph.labels), 'label')}", markup=False)
    console.print(f"  {plural(label_graph.pairs.nnz // 2, 'pair')} of co-occurring labels", markup=False)
    empty = int((label_graph.counts == 0).sum())
    if empty:
        console.print(f"  {plural(empty, 'label')} without images", markup=False)
    for partition in partitions:
        console.print()
        console.print(_subset_table(partition, label_graph))
        console.print(f"Stability over seeds: {partition.stability:.2f} (1: identical for every seed)", markup=False)
        if partition.singletons:
            alone = ", ".join(map(label_graph.labels.display, partition.singletons))
            console.print(f"Alone in their subset: {alone}", markup=False)


def _subset_table(partition: "Partition", label_graph: "LabelGraph") -> Table:
    """Return a table with a row per subset, most frequent labels first."""
    titles = {"co": "Co-occurring labels", "dis": "Dissimilar labels", "random": "Random labels"}
    table = Table(title=titles[partition.kind], title_justify="left", title_style="bold", header_style="bold", box=None)
    for column in ("subset", "labels"):
        table.add_column(column, justify="right")
    table.add_column("most frequent first")
    for number, positions in enumerate(partition.positions(label_graph.labels), 1):
        frequent = sorted(positions.tolist(), key=lambda position: -label_graph.counts[position])
        names = [label_graph.labels.display(label_graph.labels[position]) for position in frequent[:_MOST_LABELS]]
        more = f" and {len(frequent) - _MOST_LABELS:,} more" if len(frequent) > _MOST_LABELS else ""
        table.add_row(str(number), f"{len(frequent):,}", escape(", ".join(names) + more))
    return table
