"""`manylabel evaluate`, `compare` and `tune`: metrics of models, paired tests, thresholds and calibration."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import replace as replace_fields
from rich.console import Console
from rich.markup import escape

from manylabel.cli import options
from manylabel.cli.options import (
    load_data,
    make_table,
    model_names,
    new_files,
    open_model,
    refuse_shared,
    report_files,
    show_result,
)
from manylabel.errors import ConfigError
from manylabel.progress import progress_bar, working

if TYPE_CHECKING:  # keeps --help fast: these import torch
    from manylabel.classifier import SavedModel
    from manylabel.data import ImageDataset
    from manylabel.evaluation import Comparison, Evaluation, ScoredImages
    from manylabel.tuning import Tuning
    from manylabel.types import LabelSpace

__all__ = ["compare", "evaluate", "tune"]

_MOST_LABELS = 10

ScoredModel = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model or run folder, .onnx file, hub name, builtin:NAME, or scores (.csv, .npz, .parquet).",
    ),
]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics", metavar="NAMES", help="Comma-separated metrics, or all (default: the dozen most common)."
    ),
]
CommonLabels = Annotated[
    bool, typer.Option("--common-labels", help="Evaluate only labels that the model and the dataset have in common.")
]


def evaluate(
    data: options.Data,
    model: ScoredModel,
    html: options.Html = None,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the scores (.csv, .npz or .parquet), for later comparisons."),
    ] = None,
    metrics: Metrics = "",
    draws: options.Draws = 1000,
    common_labels: CommonLabels = False,
    batch_size: options.BatchSize = 32,
    workers: options.Workers = None,
    device: options.Device = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a model: metrics with confidence intervals, overall and per label.

    MODEL may also be a file of scores from another program: a table with the columns image, label and score, or with
    one column per label.
    """
    files = new_files(html, scores, overwrite=overwrite)
    from manylabel import evaluation

    dataset, (scored,) = _score(
        data, [model], batch_size=batch_size, workers=workers, device=device, common_labels=common_labels
    )
    with working("computing metrics"):
        result = evaluation.evaluate(scored, metrics=_split(metrics), draws=draws)
        if scores is not None:
            evaluation.save_scores(scored, scores, overwrite=overwrite)
        if html is not None:
            evaluation.evaluation_page(result, dataset).write(html, overwrite=overwrite)
    show_result(result.to_dict(), partial(_show_evaluation, result), as_json=as_json, files=files)


def compare(
    data: options.Data,
    model: Annotated[
        list[str],
        typer.Option(
            metavar="MODEL", help="Model, or file of scores (.csv, .npz, .parquet); give two, the baseline first."
        ),
    ],
    html: options.Html = None,
    metrics: Metrics = "",
    draws: options.Draws = 1000,
    common_labels: CommonLabels = False,
    batch_size: options.BatchSize = 32,
    workers: options.Workers = None,
    device: options.Device = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare two models: is the second one better, and on which labels?

    The paired bootstrap detects much smaller differences than two separate confidence intervals.
    """
    if len(model) != 2:
        raise ConfigError(f"compare needs two models, got {len(model)}; pass --model A --model B")
    files = new_files(html, overwrite=overwrite)
    from manylabel import evaluation

    dataset, scored = _score(
        data, model, batch_size=batch_size, workers=workers, device=device, common_labels=common_labels
    )
    with working("comparing"):
        result = evaluation.compare(*scored, metrics=_split(metrics), draws=draws)
        if html is not None:
            evaluation.comparison_page(result, dataset).write(html, overwrite=overwrite)
    show_result(result.to_dict(), partial(_show_comparison, result), as_json=as_json, files=files)


def tune(
    data: options.Data,
    model: options.Model,
    objective: Annotated[
        str,
        typer.Option(
            metavar="f1|precision=P|recall=R", help="Threshold objective: best F1, or a minimum precision or recall."
        ),
    ] = "f1",
    calibrate: Annotated[
        Literal["platt", "temperature", "none"],
        typer.Option(metavar="platt|temperature|none", help="Calibration method."),
    ] = "platt",
    folds: Annotated[int, typer.Option(metavar="INTEGER", min=2, help="Number of cross-validation folds.")] = 5,
    out: options.ModelCopy = None,
    html: options.Html = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the metrics before and after, but change nothing.")
    ] = False,
    workers: options.Workers = None,
    device: options.Device = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Tune a threshold per label and calibrate scores, on data the model was not trained on.

    The reported metrics are cross-validated. Single-label models, which predict the most confident label, are only
    calibrated.
    """
    if out is None and not dry_run:
        refuse_shared(model)
    new_files(out, html, overwrite=overwrite)
    from manylabel import evaluation, tuning
    from manylabel.builtin import find_model
    from manylabel.classifier import change_config, read_model
    from manylabel.predictions import Uncalibrated

    aim, folder = tuning.Objective.parse(objective), find_model(model)
    saved = read_model(folder)
    dataset = _with_labels(load_data(data), saved.labels, data)
    (name,) = model_names([model])
    with progress_bar("scoring images") as progress:
        engine = Uncalibrated(open_model(folder, device=device, num_images=len(dataset)))
        scored = evaluation.score(engine, dataset, name=name, num_workers=workers, progress=progress)
    with working("tuning thresholds"):
        result = tuning.tune(scored, method=calibrate, objective=aim, current=saved.config.calibration, num_folds=folds)
    _show_tuning(result)
    changes = {"thresholds": result.thresholds, "calibration": result.calibration}
    if html is not None:
        tuning.tuning_page(result, model=name, dataset=dataset.name).write(html, overwrite=overwrite)
        report_files([html])
    if dry_run:
        typer.echo("Nothing changed (--dry-run).")
    elif out is None:
        change_config(folder, changes)
        what = "calibration" if result.thresholds is None else "thresholds and calibration"
        typer.echo(f"Changed {what} in {folder / 'config.json'}")
    else:
        _write_copy(saved, folder, out, changes, overwrite=overwrite)
        report_files([out])


def _score(
    data: str,
    sources: Sequence[str],
    *,
    batch_size: int,
    workers: int | None,
    device: str | None,
    common_labels: bool,
) -> tuple[ImageDataset, list[ScoredImages]]:
    """Load a dataset; compute its scores by each model, or read them from a file of scores."""
    from manylabel import evaluation

    dataset, scored = load_data(data), []
    for source, name in zip(sources, model_names(sources), strict=True):
        if Path(source).suffix.lower() in evaluation.SCORE_ENDINGS:
            scored.append(evaluation.read_scores(source, dataset, name=name, common_labels=common_labels))
            continue
        with progress_bar(f"scoring images with {name}") as progress:
            scored.append(
                evaluation.score(
                    open_model(source, device=device, num_images=len(dataset)),
                    dataset,
                    name=name,
                    batch_size=batch_size,
                    num_workers=workers,
                    common_labels=common_labels,
                    progress=progress,
                )
            )
    return dataset, scored


def _split(metrics: str) -> Sequence[str]:
    from manylabel.evaluation import DEFAULT_METRICS

    return [name.strip() for name in metrics.split(",")] if metrics else DEFAULT_METRICS


def _show_evaluation(result: Evaluation) -> None:
    """Print the metrics, the worst labels and the notes."""
    from manylabel.evaluation import METRICS
    from manylabel.page import plural, some

    console = Console(highlight=False)
    images = f"{plural(result.num_images, 'image')} of {result.dataset}, {plural(len(result.labels), 'label')}"
    console.print(f"[bold]{escape(result.model)}[/]  {escape(images)}")
    table = make_table("metric", right=("value", "95 % interval", "better"))
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
    columns = (result.first, result.second, "change", "95 % interval", "p", "verdict")
    table = make_table("metric", right=columns)
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


def _with_labels(dataset: ImageDataset, labels: LabelSpace, spec: str) -> ImageDataset:
    """Return the dataset with its labels in the model's order; refuse a dataset with other labels."""
    if set(dataset.labels) != set(labels):
        odd = sorted(set(dataset.labels) ^ set(labels))
        raise ConfigError(
            f"{spec} must have exactly the labels of the model; it has {len(dataset.labels)}, the model "
            f"{len(labels)}, and they differ in {', '.join(odd[:5])}; for a table or Open Images, list the "
            "model's labels in a file, one per line, and add labels=FILE to the spec"
        )
    return dataset if dataset.labels.names == labels.names else dataset.select_labels(labels.names)


def _write_copy(saved: SavedModel, folder: Path, out: Path, changes: Mapping[str, Any], *, overwrite: bool) -> None:
    """Write the tuned model and copy the other files of its folder, such as a README."""
    from manylabel.classifier import write_model

    write_model(replace(saved, config=replace_fields(saved.config, **changes)), out, overwrite=overwrite)
    for file in folder.iterdir():
        if file.is_file() and not (out / file.name).exists():
            shutil.copyfile(file, out / file.name)


def _show_tuning(result: Tuning) -> None:
    """Print the metrics before and after, and the labels that gained or lost most."""
    from manylabel.tuning import METRIC_TITLES

    console = Console(highlight=False)
    console.print(f"{result.num_images:,} images, {result.num_folds}-fold cross-validation; {result.aim}")
    table = make_table("metric", right=("before", "after"))
    for name, title in METRIC_TITLES.items():
        values = (performance.metrics[name] for performance in (result.before, result.after))
        table.add_row(title, *(f"{value:.4f}" if name == "log_loss" else f"{100 * value:.1f}" for value in values))
    console.print(table)
    points = {
        label.name: (round(100 * label.f1_before), round(100 * label.f1_after))
        for label in result.labels
        if label.f1_before is not None and label.f1_after is not None
    }
    changed = sorted(points, key=lambda name: points[name][0] - points[name][1])
    for title, names in (("gained", changed), ("lost", changed[::-1])):
        shown = [name for name in names if (points[name][1] - points[name][0]) * (1 if title == "gained" else -1) > 0]
        words = [f"{name} {points[name][0]} to {points[name][1]}" for name in shown[:_MOST_LABELS]]
        console.print(f"F1 {title} most: {', '.join(words) or 'none'}", markup=False, soft_wrap=True)
    for note in result.notes:
        console.print(note, markup=False, soft_wrap=True)
