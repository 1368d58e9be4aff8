"""`manylabel evaluate` and `manylabel compare`: metrics of a model, and paired tests of two."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manylabel.cli.model_names import model_name, model_names
from manylabel.progress import progress_bar
from manylabel.storage import refuse_existing, write_text

if TYPE_CHECKING:  # keeps --help fast: these import torch
    from manylabel.data import ImageDataset
    from manylabel.evaluation import Comparison, Evaluation, ScoredImages

__all__ = ["BatchSize", "Data", "Device", "Draws", "Overwrite", "Seed", "Workers", "compare", "evaluate"]

_MOST_LABELS = 10

Data = Annotated[str, typer.Option("--data", metavar="SPEC", help="Dataset, such as voc:VOCdevkit/VOC2012,split=val.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - prints them.")]
Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write an HTML report.")]
Metrics = Annotated[
    str,
    typer.Option(metavar="NAMES", help="Comma-separated metrics, or all (default: the usual dozen)."),
]
Draws = Annotated[int, typer.Option(min=0, help="Bootstrap samples; 0 computes no intervals.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images per batch.")]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Image-decoding processes (default: half the cores, all with a GPU, at most 8)."),
]
Device = Annotated[str | None, typer.Option(help="Torch device, such as cuda (default: cpu).")]
CommonLabels = Annotated[
    bool, typer.Option("--common-labels", help="Evaluate only the labels that model and dataset have in common.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="Model or run folder, .onnx file, hub name, builtin:NAME, or scores (.csv, .npz, .parquet)."
        ),
    ],
    data: Data,
    as_json: Json = None,
    html: Html = None,
    scores: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the scores (.csv, .npz, .parquet), to compare later.")
    ] = None,
    metrics: Metrics = "",
    draws: Draws = 1000,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = None,
    common_labels: CommonLabels = False,
    overwrite: Overwrite = False,
) -> None:
    """Evaluate a model: metrics with confidence intervals, overall and per label.

    Scores of other programs work, too: a table with the columns image, label and score, or with one column per label.
    """
    files = _refuse_existing([as_json, html, scores], overwrite=overwrite)
    from manylabel import evaluation
    from manylabel.data import load

    dataset = load(data)
    with progress_bar("scoring images") as progress:
        scoring = _Scoring(dataset, batch_size, workers, device, common_labels, progress)
        scored = scoring.run(model, name=model_name(model))
    result = evaluation.evaluate(scored, metrics=_split(metrics), draws=draws, seed=seed)
    if scores is not None:
        evaluation.save_scores(scored, scores, overwrite=overwrite)
    if html is not None:
        evaluation.evaluation_page(result, dataset).write(html, overwrite=overwrite)
    if as_json is not None:
        _write_json(result.to_dict(), as_json, overwrite=overwrite)
    if as_json != "-":
        _show_evaluation(result)
        typer.echo("".join(f"Wrote {path}\n" for path in files), nl=False)


def compare(
    first: Annotated[
        str,
        typer.Argument(
            help="Model or run folder, .onnx file, hub name, builtin:NAME, or scores (.csv, .npz, .parquet)."
        ),
    ],
    second: Annotated[str, typer.Argument(help="Model or scores to compare with the first.")],
    data: Data,
    as_json: Json = None,
    html: Html = None,
    metrics: Metrics = "",
    draws: Draws = 1000,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = None,
    common_labels: CommonLabels = False,
    overwrite: Overwrite = False,
) -> None:
    """Compare two models: is the second one better, and on which labels?

    The paired bootstrap detects much smaller differences than two separate confidence intervals.
    """
    files = _refuse_existing([as_json, html], overwrite=overwrite)
    from manylabel import evaluation
    from manylabel.data import load

    dataset = load(data)
    with progress_bar("scoring images") as progress:
        scoring = _Scoring(dataset, batch_size, workers, device, common_labels, progress)
        names = model_names([first, second])
        models = [scoring.run(source, name=name) for source, name in zip((first, second), names, strict=True)]
    result = evaluation.compare(*models, metrics=_split(metrics), draws=draws, seed=seed)
    if html is not None:
        evaluation.comparison_page(result, dataset).write(html, overwrite=overwrite)
    if as_json is not None:
        _write_json(result.to_dict(), as_json, overwrite=overwrite)
    if as_json != "-":
        _show_comparison(result)
        typer.echo("".join(f"Wrote {path}\n" for path in files), nl=False)


class _Scoring(NamedTuple):
    """Scores of models and files on one dataset."""

    dataset: ImageDataset
    batch_size: int
    workers: int | None
    device: str | None
    common_labels: bool
    progress: Callable[[int, int], None]

    def run(self, source: str, *, name: str) -> ScoredImages:
        """Read scores from a file, or compute them with a model."""
        from manylabel import evaluation

        if Path(source).suffix.lower() in evaluation.SCORE_ENDINGS:
            return evaluation.read_scores(source, self.dataset, name=name, common_labels=self.common_labels)
        from manylabel.inference import open_engine

        return evaluation.score(
            open_engine(source, device=self.device, num_images=len(self.dataset), notify=partial(typer.echo, err=True)),
            self.dataset,
            name=name,
            batch_size=self.batch_size,
            num_workers=self.workers,
            common_labels=self.common_labels,
            progress=self.progress,
        )


def _refuse_existing(paths: Sequence[str | None], *, overwrite: bool) -> list[str]:
    """Return the files to write; refuse existing ones before any work is done."""
    files = [path for path in paths if path is not None and path != "-"]
    for path in files:
        refuse_existing(path, overwrite=overwrite)
    return files


def _split(metrics: str) -> Sequence[str]:
    from manylabel.evaluation import DEFAULT_METRICS

    return [name.strip() for name in metrics.split(",")] if metrics else DEFAULT_METRICS


def _write_json(values: dict[str, Any], path: str, *, overwrite: bool) -> None:
    text = json.dumps(values, indent=2)
    if path == "-":
        typer.echo(text)
    else:
        write_text(path, text, overwrite=overwrite)


def _show_evaluation(result: Evaluation) -> None:
    """Print the metrics, the worst labels and the notes."""
    from manylabel.evaluation import METRICS
    from manylabel.page import plural, some

    console = Console(highlight=False)
    images = f"{plural(result.num_images, 'image')} of {result.dataset}, {plural(len(result.labels), 'label')}"
    console.print(f"[bold]{escape(result.model)}[/]  {escape(images)}")
    table = _table("metric", "value", "95 % interval", "better")
    for name, value in result.metrics.items():
        metric = METRICS[name]
        better = "higher" if metric.higher_is_better else "lower"
        table.add_row(metric.title, metric.number(value.value), metric.interval(value), better)
    console.print(table)
    ranked = sorted((label for label in result.labels if label.positives), key=lambda label: label.value)
    worst = [f"{label.display_name} {METRICS['mAP'].number(label.value)}" for label in ranked[:_MOST_LABELS]]
    console.print(f"Worst labels by average precision: {', '.join(worst)}", markup=False)
    if result.without_positives:
        console.print(f"Labels without positive images, not evaluated: {some(result.without_positives)}", markup=False)
    if result.bad:
        names = some([image.name for image in result.bad], at_most=5)
        console.print(f"{plural(len(result.bad), 'image')} could not be evaluated: {names}", markup=False)
    for note in result.notes:
        console.print(note, markup=False)


def _show_comparison(result: Comparison) -> None:
    """Print the metrics of both models, and the labels that changed significantly."""
    from manylabel.evaluation import METRICS
    from manylabel.page import plural, some

    console = Console(highlight=False)
    console.print(f"{plural(result.num_images, 'image')} of {result.dataset}", markup=False)
    table = _table("metric", result.first, result.second, "change", "95 % interval", "p", "verdict")
    for name, change in result.metrics.items():
        metric = METRICS[name]
        table.add_row(
            metric.title,
            metric.number(change.first),
            metric.number(change.second),
            metric.number(change.difference.value, signed=True),
            metric.interval(change.difference, signed=True),
            "" if change.p_value is None else f"{change.p_value:.3f}",
            change.verdict,
        )
    console.print(table)
    for verdict in ("better", "worse"):
        changed = sorted(
            (label for label in result.labels if label.verdict == verdict),
            key=lambda label: -abs(label.difference.value),
        )
        names = [
            f"{label.display_name} {METRICS['mAP'].number(label.difference.value, signed=True)}" for label in changed
        ]
        console.print(f"{plural(len(names), 'label')} significantly {verdict}: {some(names) or 'none'}", markup=False)
    pairs = result.pairs
    console.print(
        f"Pairs of labels that improved together: {pairs.improved:,} of {pairs.pairs:,} "
        f"({100 * pairs.fraction:.0f} %), {pairs.significantly_improved:,} of them significantly",
        markup=False,
    )
    for note in result.notes:
        console.print(note, markup=False)


def _table(*columns: str) -> Table:
    """Return an empty table, all columns but the first right-aligned."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(escape(column), justify="right" if position else "left")
    return table
