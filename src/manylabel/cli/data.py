"""`manylabel data`: check a dataset before training on it, and draw a demo dataset."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manylabel.progress import progress_bar
from manylabel.storage import refuse_existing, write_text

if TYPE_CHECKING:  # reports need torch, for which --help must not wait
    from manylabel.data import CheckReport
    from manylabel.data.inspection.report import LabelCount

__all__ = ["app"]

app = typer.Typer(help="Check a dataset, or draw a demo dataset.", no_args_is_help=True)

_MOST_ROWS = 40


@app.command()
def check(
    spec: Annotated[str, typer.Argument(help="Dataset, such as voc:VOCdevkit/VOC2012,split=train.")],
    as_json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="JSON file of all findings; - prints it.")
    ] = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="HTML report with example images.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of decoding processes; 0 for none (default: one per core).")
    ] = None,
) -> None:
    """Check a dataset before training on it.

    Reads every image and every label and reports counts, sizes, unreadable files, duplicates, leaks between splits,
    rare labels and labels that always co-occur.

    The exit code is 1 if a problem would break training, else 0.
    """
    files = [path for path in (as_json, html) if path is not None and path != "-"]
    for path in files:
        refuse_existing(path, overwrite=overwrite)  # before the work, not after it
    from manylabel import data

    dataset = data.load(spec)
    with progress_bar("reading images") as progress:
        report = data.check(dataset, num_workers=workers, progress=progress)
    if html is not None:
        from manylabel.data.inspection.page import check_page  # needs matplotlib

        check_page(report, dataset).write(html, overwrite=overwrite)
    if as_json is not None:
        _write_json(report, as_json, overwrite=overwrite)
    if as_json != "-":
        _show(report)
        typer.echo("".join(f"Wrote {path}\n" for path in files), nl=False)
    raise typer.Exit(0 if report.is_sound else 1)


@app.command()
def scenes(
    folder: Annotated[Path, typer.Argument(help="Output folder for the images and labels.csv.")],
    n: Annotated[int, typer.Option("--n", help="Number of images.")] = 200,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    size: Annotated[int, typer.Option(help="Width and height in pixels.")] = 256,
    unknown: Annotated[float, typer.Option(help="Fraction of labels to leave unknown (blank).")] = 0.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Draw demo images of several objects each, with a table of their labels."""
    from manylabel.data import write_scenes  # here, because `--help` must not wait for it

    table = write_scenes(folder, n, seed=seed, size=size, unknown=unknown, overwrite=overwrite)
    typer.echo(f"Wrote {n} images to {table.parent / 'images'} and their labels to {table}.")
    typer.echo(f"Check them with: manylabel data check csv:{table}")


def _write_json(report: "CheckReport", path: str, *, overwrite: bool) -> None:
    text = json.dumps(report.to_dict(), indent=2)
    if path == "-":
        typer.echo(text)
    else:
        write_text(path, text, overwrite=overwrite)


def _show(report: "CheckReport") -> None:
    """Print the key figures, the table of labels, and problems and warnings."""
    console = Console(highlight=False)
    console.print(f"[bold]{escape(report.name)}[/]")
    for line in _key_figures(report):
        console.print(f"  {line}", markup=False)
    console.print()
    console.print(_label_table(report))
    console.print()
    for kind, style, sentences in (("problem", "bold red", report.problems), ("warning", "yellow", report.warnings)):
        for sentence in sentences:
            console.print(f"[{style}]{kind}[/]  {escape(sentence)}")
    console.print(f"[{'bold red' if report.problems else 'yellow' if report.warnings else 'green'}]{report.verdict}[/]")


def _key_figures(report: "CheckReport") -> Iterator[str]:
    splits = ", ".join(f"{name} {size:,}" for name, size in report.splits.items())
    yield f"{report.num_images:,} images" + (f" ({splits})" if splits else "")
    most = max(len(report.labels_per_image) - 1, 0)
    yield f"{len(report.labels):,} labels, {report.mean_labels:.2f} per image on average, {most} at most"
    if report.unknown_fraction:
        yield f"{report.unknown_fraction:.2%} of all images x labels unknown"
    if len(report.readable_sizes):
        (low_height, low_width), (high_height, high_width) = report.readable_sizes.min(0), report.readable_sizes.max(0)
        yield f"{low_width} to {high_width} pixels wide, {low_height} to {high_height} high"
    exact = sum(group.is_exact for group in report.duplicates)
    yield f"{len(report.bad):,} unreadable images"
    yield f"{exact:,} groups of exact duplicates, {len(report.duplicates) - exact:,} of near duplicates"


def _label_table(report: "CheckReport") -> Table:
    """Return the labels with their counts, the most frequent first; of many, the most and least frequent."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("label")
    for column in ("present", "absent", "unknown", "of all"):
        table.add_column(column, justify="right")
    table.add_column("")
    ranked = sorted(report.labels, key=lambda label: -label.positives)
    half = _MOST_ROWS // 2
    head, tail = (ranked, []) if len(ranked) <= _MOST_ROWS else (ranked[:half], ranked[-half:])
    for label in head:
        table.add_row(*_row(label, report.num_images, most=ranked[0].positives))
    if tail:
        table.add_row(f"[dim]... {len(ranked) - _MOST_ROWS:,} more[/]")
    for label in tail:
        table.add_row(*_row(label, report.num_images, most=ranked[0].positives))
    return table


def _row(label: "LabelCount", num_images: int, *, most: int) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (label.positives, label.negatives, label.unknown))
    bar = "\u2588" * round(20 * label.positives / max(most, 1))
    return escape(label.display_name), *counts, f"{label.positives / max(num_images, 1):.1%}", f"[blue]{bar}[/]"
