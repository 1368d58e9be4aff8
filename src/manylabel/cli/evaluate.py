"""`manylabel evaluate`, `compare`, `tune` and `apply`: metrics of models, paired tests, thresholds and calibration."""

from __future__ import annotations  # those of `ml` would import torch

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.markup import escape

import manylabel as ml
from manylabel.builtin import find_model
from manylabel.cli import options
from manylabel.cli.options import flag, option
from manylabel.engine import Uncalibrated
from manylabel.errors import ConfigError, LabelError
from manylabel.page import plural, some
from manylabel.progress import ProgressBar, working
from manylabel.types import LabelSpace

_MOST_LABELS = 10

Scores = Annotated[
    Path | None, option("FILE", "Scores of another program (.csv, .npz, .parquet), instead of a model.", "--scores")
]
Metrics = Annotated[str, option("NAMES", "Comma-separated metrics, or all (default: the dozen most common).")]
CommonLabels = Annotated[
    bool, flag("--common-labels", "Ignore labels that not all of the models, scores and DATA have.")
]


def evaluate(
    data: options.Data,
    model: Annotated[str | None, option("MODEL", f"{options.MODEL}, builtin:NAME or exported .onnx file.")] = None,
    scores: Scores = None,
    html: options.Html = None,
    out: Annotated[Path | None, option("FILE", "Write scores (.csv, .npz, .parquet), for later comparisons.")] = None,
    metrics: Metrics = "",
    draws: options.Draws = 1000,
    common_labels: CommonLabels = False,
    workers: options.Workers = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a model: metrics with confidence intervals, overall and per label.

    --scores takes a table with the columns image, label and score, or with one column per label.
    """
    source = _one_source(model, scores)
    files = options.new_files(html, out, overwrite=overwrite)
    dataset = options.load_data(data)
    (scored,) = _score(dataset, [source], device, num_workers=workers, common_labels=common_labels)
    with working("computing metrics"):
        result = ml.evaluation.evaluate(scored, metrics=_split(metrics), draws=draws)
        if out is not None:
            ml.evaluation.save_scores(scored, out, overwrite=overwrite)
        if html is not None:
            ml.evaluation.evaluation_page(result, dataset).write(html, overwrite=overwrite)
    options.show_result(result.to_dict(), partial(_show_evaluation, result), as_json=as_json, files=files)


def compare(
    data: options.Data,
    model: Annotated[
        list[str], option("MODEL", "Model, or file of scores (.csv, .npz, .parquet); pass two, the baseline first.")
    ],
    html: options.Html = None,
    metrics: Metrics = "",
    draws: options.Draws = 1000,
    common_labels: CommonLabels = False,
    workers: options.Workers = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare two models: is the second one better, and on which labels?

    The paired bootstrap detects much smaller differences than two separate confidence intervals.
    """
    if len(model) != 2:
        raise ConfigError(f"compare needs two models, got {len(model)}; pass --model A --model B")
    files = options.new_files(html, overwrite=overwrite)
    dataset = options.load_data(data)
    scored = _score(dataset, model, device, num_workers=workers, common_labels=common_labels)
    if common_labels:
        shared = [name for name in scored[0].labels if name in scored[1].labels]
        if not shared:
            raise LabelError(f"the two models have no label of {dataset.name} in common; evaluate each on its own")
        scored = [each.select_labels(shared) for each in scored]
    with working("comparing"):
        result = ml.evaluation.compare(*scored, metrics=_split(metrics), draws=draws)
        if html is not None:
            ml.evaluation.comparison_page(result, dataset).write(html, overwrite=overwrite)
    options.show_result(result.to_dict(), partial(_show_comparison, result), as_json=as_json, files=files)


def tune(
    data: options.Data,
    model: Annotated[str | None, option("MODEL", f"{options.MODEL} or builtin:NAME.")] = None,
    scores: Scores = None,
    raw: Annotated[
        bool, flag("--raw", "Scores are logits, similarities or other real numbers, not probabilities.")
    ] = False,
    objective: Annotated[
        str, option("f1|precision=P|recall=R", "Threshold objective: best F1, or a minimum precision or recall.")
    ] = "f1",
    calibrate: Annotated[
        Literal["platt", "temperature", "none"], option("platt|temperature|none", "Calibration method.")
    ] = "platt",
    folds: options.Folds = 5,
    out: Annotated[
        Path | None,
        option("PATH", "Changed copy of the model (default: change it in place); for --scores, a JSON file."),
    ] = None,
    html: options.Html = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print the metrics before and after, but change nothing.")] = False,
    common_labels: CommonLabels = False,
    workers: options.Workers = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
) -> None:
    """Tune a threshold per label and calibrate scores, on data the model was not trained on.

    The reported metrics are cross-validated. Single-label models, which predict the most confident label, are only
    calibrated. With --scores, the result is a JSON file for 'manylabel apply'.
    """
    source, aim = _one_source(model, scores), ml.tuning.Objective.parse(objective)
    if scores is None and (raw or common_labels):
        raise ConfigError("--raw and --common-labels need --scores; a model has scores and labels of its own")
    if out is None and not dry_run:
        if scores is not None:
            raise ConfigError("--scores needs a JSON file for the result; set it with --out, or use --dry-run")
        options.refuse_shared(source)
    options.new_files(out, html, overwrite=overwrite)
    (name,), tuned = options.model_names([source]), None
    if scores is not None:
        dataset = options.load_data(data)
        with working("tuning thresholds"):
            result, tuned = ml.tuning.tune_scores(
                scores, dataset, raw=raw, method=calibrate, objective=aim, common_labels=common_labels, num_folds=folds
            )
    else:
        from manylabel.classifier import read_model

        folder = find_model(source)
        saved = read_model(folder)
        dataset = _with_labels(options.load_data(data), saved.labels, data)
        with ProgressBar("scoring images") as bar:
            engine = Uncalibrated(options.open_model(folder, device=device, num_images=len(dataset)))
            scored = ml.evaluation.score(engine, dataset, name=name, num_workers=workers, progress=bar.update)
        with working("tuning thresholds"):
            result = ml.tuning.tune(
                scored, method=calibrate, objective=aim, current=saved.config.calibration, num_folds=folds
            )
    _show_tuning(result)
    if html is not None:
        ml.tuning.tuning_page(result, model=name, dataset=dataset.name).write(html, overwrite=overwrite)
        options.report_files([html])
    if dry_run:
        typer.echo("Nothing changed (--dry-run).")
    elif tuned is None:
        _save_tuned(find_model(source), result, out, overwrite=overwrite)
    elif out is not None:
        options.report_files([tuned.write(out, overwrite=overwrite)])


def apply(
    scores: Annotated[Path, options.argument("SCORES", "Scores of another program: .csv, .npz or .parquet.")],
    tuning: Annotated[Path, option("FILE", "JSON file written by 'manylabel tune --scores'.")],
    out: Annotated[Path, option("FILE", "Write the tags: .csv, .jsonl, .json or .parquet (one file).")],
    overwrite: options.Overwrite = False,
) -> None:
    """Turn scores of another program into tags and calibrated scores, with tuned thresholds."""
    options.new_files(out, overwrite=overwrite)
    with working(f"reading {scores}"):
        predictions = ml.tuning.ScoreTuning.read(tuning).apply_file(scores)
        predictions.save(out, overwrite=overwrite)
    num_tags = sum(len(image.tags) for image in predictions)
    typer.echo(f"{plural(len(predictions), 'image')}, {num_tags / max(len(predictions), 1):.2f} tags per image")
    options.report_files([out])


def _save_tuned(folder: Path, result: ml.tuning.Tuning, out: Path | None, *, overwrite: bool) -> None:
    """Change thresholds and calibration of a model, in place or in a copy."""
    from manylabel.classifier import change_config, read_model, write_model

    changes = {"thresholds": result.thresholds, "calibration": result.calibration}
    if out is None:
        change_config(folder, changes)
        what = "calibration" if result.thresholds is None else "thresholds and calibration"
        typer.echo(f"Changed {what} in {folder / 'config.json'}")
        return
    saved = read_model(folder)
    tuned = replace(saved, config=msgspec.structs.replace(saved.config, **changes))
    write_model(tuned, out, overwrite=overwrite)  # other files in the folder stay
    for file in folder.iterdir():  # such as a README
        if file.is_file() and not (out / file.name).exists():
            shutil.copyfile(file, out / file.name)
    options.report_files([out])


def _one_source(model: str | None, scores: Path | None) -> str:
    """Return the model or the file of scores, of which there must be one."""
    if (model is None) == (scores is None):
        raise ConfigError("set either --model, or --scores for scores of another program")
    if scores is not None and scores.suffix.lower() not in ml.evaluation.SCORE_ENDINGS:
        raise ConfigError(f"--scores must be one of {', '.join(ml.evaluation.SCORE_ENDINGS)}, got {scores.name!r}")
    return model or str(scores)


def _score(
    dataset: ml.data.ImageDataset,
    sources: Sequence[str],
    device: str,
    *,
    common_labels: bool,
    **settings: Any,  # noqa: ANN401 (those of `score`)
) -> list[ml.evaluation.ScoredImages]:
    """Compute the scores of a dataset by each model, or read them from a file of scores."""
    scored = []
    for source, name in zip(sources, options.model_names(sources), strict=True):
        if Path(source).suffix.lower() in ml.evaluation.SCORE_ENDINGS:
            found = ml.evaluation.read_scores(source, dataset, name=name, common_labels=common_labels)
        else:
            with ProgressBar(f"scoring images with {name}") as bar:
                engine = options.open_model(source, device=device, num_images=len(dataset))
                found = ml.evaluation.score(
                    engine, dataset, name=name, common_labels=common_labels, progress=bar.update, **settings
                )
        scored.append(found)
    return scored


def _split(metrics: str) -> Sequence[str]:
    return [name.strip() for name in metrics.split(",")] if metrics else ml.evaluation.DEFAULT_METRICS


def _show_evaluation(result: ml.evaluation.Evaluation) -> None:
    """Print the metrics, the worst labels and the notes."""
    metrics = ml.evaluation.METRICS
    images = f"{plural(result.num_images, 'image')} of {result.dataset}, {plural(len(result.labels), 'label')}"
    options.stdout_console().print(f"[bold]{escape(result.model)}[/]  {escape(images)}")
    rows = [
        (metrics[name].title, metrics[name].number(value.value), metrics[name].interval(value), metrics[name].better)
        for name, value in result.metrics.items()
    ]
    options.print_table(rows, "metric", right=("value", "95 % interval", "better"))
    ranked = sorted((label for label in result.labels if label.positives), key=lambda label: label.value)
    worst = [f"{label.display_name} {metrics['mAP'].number(label.value)}" for label in ranked[:_MOST_LABELS]]
    typer.echo(f"Worst labels by average precision: {', '.join(worst)}")
    if result.without_positives:
        typer.echo(f"Labels without positive images, not evaluated: {some(result.without_positives)}")
    if result.bad:
        names = some([image.name for image in result.bad], at_most=5)
        typer.echo(f"{plural(len(result.bad), 'image')} could not be evaluated: {names}")
    for note in result.notes:
        typer.echo(note)


def _show_comparison(result: ml.evaluation.Comparison) -> None:
    """Print the metrics of both models, and the labels that changed significantly."""
    metrics, rows = ml.evaluation.METRICS, []
    typer.echo(f"{plural(result.num_images, 'image')} of {result.dataset}")
    for name, change in result.metrics.items():
        metric = metrics[name]
        values = (metric.number(change.first), metric.number(change.second))
        difference = metric.number(change.difference.value, signed=True)
        interval = metric.interval(change.difference, signed=True)
        rows.append((metric.title, *values, difference, interval, change.p_text, change.verdict))
    options.print_table(rows, "metric", right=(result.first, result.second, "change", "95 % interval", "p", "verdict"))
    for verdict in ("better", "worse"):
        changed = [(label.difference.value, label.display_name) for label in result.labels if label.verdict == verdict]
        changed.sort(key=lambda pair: -abs(pair[0]))
        names = [f"{name} {metrics['mAP'].number(difference, signed=True)}" for difference, name in changed]
        typer.echo(f"{plural(len(names), 'label')} significantly {verdict}: {some(names) or 'none'}")
    for note in result.notes:
        typer.echo(note)


def _with_labels(dataset: ml.data.ImageDataset, labels: LabelSpace, spec: str) -> ml.data.ImageDataset:
    """Return the dataset with its labels in the model's order; refuse a dataset with other labels."""
    if set(dataset.labels) != set(labels):
        odd = sorted(set(dataset.labels) ^ set(labels))
        raise ConfigError(
            f"{spec} must have exactly the labels of the model; it has {len(dataset.labels)}, the model "
            f"{len(labels)}, and they differ in {', '.join(odd[:5])}; for a table or Open Images, list the "
            "model's labels in a file, one per line, and add labels=FILE to the spec"
        )
    return dataset if dataset.labels.names == labels.names else dataset.select_labels(labels.names)


def _show_tuning(result: ml.tuning.Tuning) -> None:
    """Print the metrics before and after, and the labels that gained or lost most."""
    typer.echo(f"{result.num_images:,} images, {result.num_folds}-fold cross-validation; {result.aim}")
    rows = []
    for name, title in ml.tuning.METRIC_TITLES.items():
        values = (performance.metrics[name] for performance in (result.before, result.after))
        rows.append((title, *(f"{value:.4f}" if name == "log_loss" else f"{100 * value:.1f}" for value in values)))
    options.print_table(rows, "metric", right=("before", "after"))
    points = {
        label.name: (round(100 * label.f1_before), round(100 * label.f1_after))
        for label in result.labels
        if label.f1_before is not None and label.f1_after is not None
    }
    changed = sorted(points, key=lambda name: points[name][0] - points[name][1])
    for title, names in (("gained", changed), ("lost", changed[::-1])):
        shown = [name for name in names if (points[name][1] - points[name][0]) * (1 if title == "gained" else -1) > 0]
        words = [f"{name} {points[name][0]} to {points[name][1]}" for name in shown[:_MOST_LABELS]]
        typer.echo(f"F1 {title} most: {', '.join(words) or 'none'}")
    for note in result.notes:
        typer.echo(note)
