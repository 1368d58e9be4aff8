"""`manylabel data` and `manylabel graph`: check, split and draw datasets, and the co-occurrence of their labels."""

from __future__ import annotations  # those of `ml` would import torch

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.text import Text

import manylabel as ml
from manylabel.cli import options
from manylabel.cli.options import flag, option
from manylabel.errors import ConfigError, list_choices
from manylabel.page import plural, some
from manylabel.progress import ProgressBar, working
from manylabel.settings import Probe

app = typer.Typer(help="Check, split or fix a dataset, find wrong labels, or draw demo images.", no_args_is_help=True)

Table = Annotated[Path, option("FILE", "Table to write: .csv, .parquet or .jsonl.")]

_MOST_ROWS = 40
_MOST_ISSUES = 20
_MOST_LABELS = 60


@app.command()
def check(
    data: options.Data,
    html: options.Html = None,
    workers: options.Workers = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Check a dataset before training on it.

    Reads every image and every label and reports counts, sizes, unreadable files, duplicates, leaks between splits,
    rare labels and labels that always co-occur.

    The exit code is 1 if a problem would break training, else 0.
    """
    files = options.new_files(html, overwrite=overwrite)
    dataset = options.load_data(data)
    with ProgressBar("reading images") as bar:
        report = ml.data.check(dataset, num_workers=workers, progress=bar.update)
    if html is not None:
        from manylabel.data.inspection.page import check_page  # needs matplotlib

        with working(f"writing {html}"):
            check_page(report, dataset).write(html, overwrite=overwrite)
    options.show_result(report.to_dict(), partial(_show, report), as_json=as_json, files=files)
    raise typer.Exit(0 if report.is_sound else 1)


@app.command()
def split(
    data: options.Data,
    out: Table,
    val_fraction: Annotated[float, option("FLOAT", "Fraction of images held out for validation.")] = 0.2,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> None:
    """Split a dataset into training and validation sets, stratified over the labels.

    Writes a table with a column 'split', which training and evaluation read.
    """
    options.new_files(out, overwrite=overwrite)
    dataset = options.load_data(data)
    with working("splitting"):
        divided = ml.data.hold_out(dataset, val_fraction=val_fraction, seed=seed)
        ml.data.write_table(divided, out, overwrite=overwrite)
    sizes = ", ".join(f"{len(members):,} {name}" for name, members in divided.splits.items())
    typer.echo(f"Wrote {out}: {sizes}")
    typer.echo(f"Train with: manylabel train {out} --out runs/first")


@app.command()
def labels(
    data: options.Data,
    out: Annotated[
        Path | None, option("FILE", "Write the findings (.csv, .jsonl or .parquet), for 'data fix --accept'.")
    ] = None,
    html: options.Html = None,
    backbone: Annotated[str, option("NAME", "Backbone: a timm model or torchvision:NAME.")] = "offline:everyday",
    head: Annotated[str, option("NAME", "Head to train on the other images; linear takes seconds.")] = Probe.head,
    folds: options.Folds = 3,
    workers: options.Workers = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Find labels that are probably wrong or missing.

    Scores every image with a model trained on the others, and ranks the labels that disagree by the probability that
    they are wrong. Unknown labels are never findings.
    """
    files = options.new_files(out, html, overwrite=overwrite)
    if out is not None:
        from manylabel.data.readers.table import refuse_table

        refuse_table(out, overwrite=overwrite)
    if head not in ml.heads.HEADS:
        raise ConfigError(f"head cannot be {head!r}; {list_choices(head, ml.heads.HEADS)}")
    dataset = options.load_data(data)
    frozen = ml.Backbone(backbone, frozen=True)
    with ProgressBar("computing features") as bar:
        found = ml.label_issues.cross_validate(
            dataset,
            frozen,
            head=ml.heads.HEADS[head],
            num_folds=folds,
            num_workers=workers,
            progress=bar.update,
        )
    with working("finding label issues"):
        report = ml.label_issues.find_label_issues(found.scored)
        if out is not None:
            ml.label_issues.write_issues(report, out, overwrite=overwrite)
        if html is not None:
            ml.label_issues.issues_page(report, dataset, found).write(html, overwrite=overwrite)
    options.show_result(report.to_dict(), partial(_show_issues, report, dataset.labels), as_json=as_json, files=files)


@app.command()
def fix(
    data: options.Data,
    out: Table,
    typos: Annotated[bool, flag("--typos", "Rename probable typos; 'data check' lists them.")] = False,
    unreadable: Annotated[bool, flag("--unreadable", "Drop unreadable images.")] = False,
    accept: Annotated[
        Path | None, option("FILE", "Apply this table of 'data labels'; delete the rows you disagree with first.")
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a cleaned table of a dataset: one spelling per label, one row per image."""
    with working(f"reading {data}"):
        changes = ml.data.fix(data, out, typos=typos, unreadable=unreadable, accept=accept, overwrite=overwrite)
    for change in changes:
        typer.echo(change)
    options.report_files([out])


@app.command()
def scenes(
    out: Annotated[Path, option("DIR", "Folder for the images and labels.csv.")],
    num_images: Annotated[int, option("INTEGER", "Number of images.", min=1)] = 200,
    unknown: Annotated[float, option("FLOAT", "Fraction of labels to leave unknown (blank).", min=0, max=1)] = 0.0,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> None:
    """Generate demo images, each with several objects, and a table of their labels."""
    table = ml.data.write_scenes(out, num_images, seed=seed, unknown=unknown, overwrite=overwrite)
    typer.echo(f"Wrote {plural(num_images, 'image')} to {table.parent / 'images'} and their labels to {table}.")
    typer.echo(f"Check them with: manylabel data check csv:{table}")


def graph(
    data: options.Data,
    partition: Annotated[
        Literal["both", "co", "dis", "random"],
        option(
            "both|co|dis|random",
            "Partition labels by co-occurrence (co), by its opposite (dis), both, or at random.",
        ),
    ] = "both",
    k: Annotated[int, option("INTEGER", "Number of subsets per partition.", "--k", min=1)] = 5,
    tau: Annotated[
        float,
        option("FLOAT", "Temperature of the co-occurrence rates (tau in CPSD); larger values favour rare pairs."),
    ] = 2.0,
    out: Annotated[Path | None, option("FILE", "Draw the graph to a PNG file.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Show which labels co-occur, and partition the labels by co-occurrence.

    Reads the labels only, no images.
    """
    files = options.new_files(out, overwrite=overwrite)
    from manylabel.page import write_drawing

    dataset = options.load_data(data)
    with working("partitioning labels"):
        label_graph = ml.labelgraph.LabelGraph.from_targets(dataset.targets, dataset.labels, tau=tau)
        kinds: tuple[ml.labelgraph.PartitionKind, ...] = ("co", "dis") if partition == "both" else (partition,)
        partitions = [ml.labelgraph.partition_labels(label_graph, k, kind=kind) for kind in kinds]
        if out is not None:
            write_drawing(ml.labelgraph.draw_graph(label_graph, partitions), out, overwrite=overwrite)
    values = {"name": dataset.name, **label_graph.to_dict(), "partitions": [one.to_dict() for one in partitions]}
    show = partial(_show_graph, dataset.name, len(dataset), label_graph, partitions)
    options.show_result(values, show, as_json=as_json, files=files)


def _show(report: ml.data.CheckReport) -> None:
    """Print the key figures, the table of labels, and problems and warnings."""
    console = options.stdout_console()
    console.print(f"[bold]{escape(report.name)}[/]")
    for line in _key_figures(report):
        typer.echo(f"  {line}")
    console.print()
    _show_labels(report)
    console.print()
    for kind, style, sentences in (("problem", "bold red", report.problems), ("warning", "yellow", report.warnings)):
        for sentence in sentences:
            console.print(f"[{style}]{kind}[/]  {escape(sentence)}")
    console.print(f"[{'bold red' if report.problems else 'yellow' if report.warnings else 'green'}]{report.verdict}[/]")


def _key_figures(report: ml.data.CheckReport) -> Iterator[str]:
    splits = ", ".join(f"{name} {size:,}" for name, size in report.splits.items())
    yield plural(report.num_images, "image") + (f" ({splits})" if splits else "")
    most = max(len(report.labels_per_image) - 1, 0)
    yield f"{plural(len(report.labels), 'label')}, {report.mean_labels:.2f} per image on average, {most} at most"
    if report.unknown_fraction:
        yield f"{report.unknown_fraction:.2%} of the image-label pairs are unknown"
    if len(report.readable_sizes):
        (low_height, low_width), (high_height, high_width) = report.readable_sizes.min(0), report.readable_sizes.max(0)
        yield f"{low_width} to {high_width} pixels wide, {low_height} to {high_height} high"
    exact = sum(group.is_exact for group in report.duplicates)
    yield plural(len(report.bad), "unreadable image")
    yield f"{plural(exact, 'group')} of exact duplicates, {len(report.duplicates) - exact:,} of near duplicates"


def _show_labels(report: ml.data.CheckReport) -> None:
    """Print the labels with their counts, the most frequent first; of many, the most and least frequent."""
    rows: list[Sequence[str | Text]] = []
    ranked = sorted(report.labels, key=lambda label: -label.positives)
    for label in ranked:
        counts = (f"{count:,}" for count in (label.positives, label.negatives, label.unknown))
        fraction = f"{label.positives / max(report.num_images, 1):.1%}"
        bar = "\u2588" * round(20 * label.positives / max(ranked[0].positives, 1))
        rows.append((label.display_name, *counts, fraction, Text(bar, style="blue")))
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        rows[half:-half] = [(Text(f"... {len(rows) - _MOST_ROWS:,} more", style="dim"),)]
    options.print_table(rows, "label", right=("present", "absent", "unknown", "of all"))


def _show_issues(report: ml.label_issues.IssueReport, labels: ml.LabelSpace) -> None:
    """Print the counts and the most probable issues."""
    console = options.stdout_console()
    wrong = report.num_wrong
    console.print(f"[bold]{escape(report.dataset)}[/]")
    typer.echo(f"  {plural(report.num_images, 'image')}, {plural(report.num_labels, 'label')} checked")
    typer.echo(f"  {wrong:,} likely wrong, {len(report.issues) - wrong:,} likely missing")
    console.print()
    rows = [
        (f"{issue.score:.0%}", labels.display(issue.label), issue.given, issue.suggested, issue.image)
        for issue in report.issues[:_MOST_ISSUES]
    ]
    options.print_table(rows, "score", "label", "given", "suggested", "image")
    if len(report.issues) > _MOST_ISSUES:
        typer.echo(f"... {len(report.issues) - _MOST_ISSUES:,} more; --out FILE writes all of them")
    for note in report.notes:
        typer.echo(note)


def _show_graph(
    name: str, num_images: int, label_graph: ml.labelgraph.LabelGraph, partitions: list[ml.labelgraph.Partition]
) -> None:
    """Print the key figures, and a table for each partition."""
    console = options.stdout_console()
    console.print(f"[bold]{escape(name)}[/]")
    typer.echo(f"  {plural(num_images, 'image')}, {plural(len(label_graph.labels), 'label')}")
    typer.echo(f"  {plural(label_graph.pairs.nnz // 2, 'pair')} of co-occurring labels")
    empty = int((label_graph.counts == 0).sum())
    if empty:
        typer.echo(f"  {plural(empty, 'label')} without images")
    for partition in partitions:
        console.print()
        _show_partition(partition, label_graph)
        typer.echo(f"Stability over seeds: {partition.stability:.2f} (1: identical for every seed)")
        if partition.singletons:
            alone = ", ".join(map(label_graph.labels.display, partition.singletons))
            typer.echo(f"Alone in their subset: {alone}")


def _show_partition(partition: ml.labelgraph.Partition, label_graph: ml.labelgraph.LabelGraph) -> None:
    """Print a row per subset, most frequent labels first."""
    titles = {"co": "Co-occurring labels", "dis": "Dissimilar labels", "random": "Random labels"}
    rows = []
    for number, positions in enumerate(partition.positions(label_graph.labels), 1):
        frequent = sorted(positions.tolist(), key=lambda position: -label_graph.counts[position])
        names = [label_graph.labels.display(label_graph.labels[position]) for position in frequent]
        rows.append((str(number), f"{len(frequent):,}", some(names, at_most=_MOST_LABELS)))
    options.stdout_console().print(f"[bold]{titles[partition.kind]}[/]")
    options.print_table(rows, right=("subset", "labels"), last="most frequent first")
