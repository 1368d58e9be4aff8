"""HTML pages of an evaluation and of a comparison; the report of runs includes their parts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from manylabel import page
from manylabel.data import ImageDataset
from manylabel.evaluation.bootstrap import Estimate
from manylabel.evaluation.compare import Comparison, ImageChange, LabelChange, MetricChange
from manylabel.evaluation.evaluate import SIZE_LIMITS, Evaluation, Group, ImageResult, LabelResult
from manylabel.evaluation.metrics import METRICS, Metric
from manylabel.metrics import CalibrationBin
from manylabel.page import ACCENT, INK, Cell, Fraction, Html, figure, new_figure, plural, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DrawImage = Callable[[ImageResult, str], page.Thumbnail]
"""Draws the thumbnail of an image result, given its caption."""

# Okabe and Ito's vermilion and green: distinct for every kind of colour vision, on white and on black.
_VERMILION = "#d55e00"
_GREEN = "#009e73"
_MOST_LABELS = 40  # more rows are unreadable
FEW_LABELS = 12  # fit into a small figure
_MOST_CURVES = 100

Row = TypeVar("Row")

_FEW_POSITIVES = 20  # with fewer, the average precision of a label is mostly noise
_MOST_ROWS = 2_000
_DECISIONS = ("CP", "CR", "CF1", "OP", "OR", "OF1")
_MAP = METRICS["mAP"]  # formats any fraction
_KEY_FIGURES = ("top_1", "mAP", "CF1", "OF1", "one_error", "calibration_error")


def evaluation_page(evaluation: Evaluation, dataset: ImageDataset) -> page.Page:
    """Show an evaluation as a page.

    Args:
        evaluation: The evaluation.
        dataset: Its dataset; a few of the images are read again.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> dataset = scenes(8)
        >>> targets, _ = dataset.targets.dense()
        >>> scored = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels)
        >>> evaluation_page(evaluate(scored, draws=50), dataset).title
        'Evaluation of model'
    """
    images = f"{plural(evaluation.num_images, 'image')} of {evaluation.dataset}"
    subtitle = f"{images}, {plural(len(evaluation.labels), 'label')}"
    parts = [*evaluation_headline(evaluation), *evaluation_details(evaluation, dataset)]
    return page.Page(f"Evaluation of {evaluation.model}", subtitle, parts)


def evaluation_headline(evaluation: Evaluation) -> Iterator[Html]:
    """Yield the top of the page: key figures and caveats."""
    shown = {name: evaluation.metrics[name] for name in _KEY_FIGURES if name in evaluation.metrics}
    yield page.tiles(metric_tile(METRICS[name], value) for name, value in shown.items())
    if evaluation.bad:
        bad = [f"{image.name} ({image.reason})" for image in evaluation.bad]
        yield page.note(f"{plural(len(bad), 'image')} could not be evaluated: {some(bad, at_most=5)}.", "warning")
    if evaluation.without_positives:
        count, names = len(evaluation.without_positives), some(evaluation.without_positives)
        words = f"No image has {names}: {plural(count, 'label')} without results, excluded from means over labels."
        yield page.note(words, "warning")
    few = [label.display_name for label in evaluation.labels if 0 < label.positives < _FEW_POSITIVES]
    if few:
        what = f"{plural(len(few), 'label')} with fewer than {_FEW_POSITIVES} images"
        yield page.note(f"The results of {what} are mostly noise: {some(few)}.")
    if evaluation.single_label:
        yield page.note("The model predicts one label per image: the one with the highest score.")
    elif not evaluation.has_thresholds:
        yield page.note("The model has no tuned thresholds: labels with a score of at least 50 % are predicted.")
    yield from map(page.note, evaluation.notes)


def evaluation_details(
    evaluation: Evaluation, dataset: ImageDataset, *, draw: DrawImage | None = None
) -> Iterator[Html]:
    """Yield the rest of the page: all metrics, labels, confusions, hard cases and images.

    Args:
        evaluation: The evaluation.
        dataset: Its dataset; a few of the images are read again.
        draw: Draws the thumbnails (default: plain thumbnails).
    """
    yield from _metrics(evaluation)
    yield from _labels(evaluation)
    yield from _confusions(evaluation, dataset)
    yield from _groups(evaluation)
    yield page.heading("Images")
    draw = draw or (lambda result, caption: dataset.thumbnail(result.index, caption=caption))
    kinds = {"Highest loss": evaluation.worst, "Lowest loss among images with labels": evaluation.best}
    for title, results in kinds.items():
        yield page.thumbnails([draw(result, _caption(result, dataset)) for result in results], title=title)
    yield _about_intervals(evaluation)


def metric_tile(metric: Metric, value: Estimate, name: str = "") -> tuple[str, str, str]:
    """Return the key figure of a metric: its value, name and interval."""
    return metric.number(value.value), name or metric.title, metric.interval(value)


def _metrics(evaluation: Evaluation) -> Iterator[Html]:
    yield page.heading("Metrics")
    values, suffixes = evaluation.metrics, [""]
    if all(f"{name}@3" in values for name in _DECISIONS):
        suffixes.append("@3")
    tabled = {f"{name}{suffix}" for name in _DECISIONS for suffix in suffixes}
    rows = [
        [metric.title, _cell(metric, value.value), metric.interval(value), metric.better, metric.meaning]
        for metric, value in ((METRICS[name], value) for name, value in values.items() if name not in tabled)
    ]
    yield page.table(["metric", "value", "95 % interval", "better", "meaning"], rows)
    rules = {"": "top 1" if evaluation.single_label else "thresholds", "@3": "top 3"}
    decisions = [
        [rules[suffix], *(_MAP.with_interval(values.get(f"{name}{suffix}")) for name in _DECISIONS)]
        for suffix in suffixes
        if f"OF1{suffix}" in values
    ]
    caption = "Precision (P), recall (R) and F1 in per cent with 95 % intervals: mean over labels (C) and overall (O)."
    if decisions:
        yield page.table(["predicted by", *_DECISIONS], decisions, caption=caption)


def _labels(evaluation: Evaluation) -> Iterator[Html]:
    yield page.heading("Labels")
    ranked = sorted(evaluation.labels, key=lambda label: (not label.positives, label.value))
    rated = [label for label in ranked if label.positives]
    if rated:
        curves = [draw_curves(rated), draw_calibration({"": evaluation.calibration})]
        is_tall = len(rated) > FEW_LABELS  # as tall as both curves
        yield page.columns(draw_labels(rated), *([page.columns(*curves)] if is_tall else curves))
    caption = "All labels, worst first."
    if len(ranked) > _MOST_ROWS:
        caption = f"The {_MOST_ROWS:,} worst of {len(ranked):,} labels."
    columns = ["label", "images", "average precision", "95 % interval", "precision", "recall", "F1", "threshold"]
    shown = len(columns) if evaluation.has_thresholds else -1
    yield page.table(columns[:shown], [_row(label)[:shown] for label in ranked[:_MOST_ROWS]], caption=caption)


def _row(label: LabelResult) -> list[Cell]:
    average = label.average_precision
    fractions = (label.precision, label.recall, label.f1, label.threshold)
    return [
        label.display_name,
        label.positives,
        average and Fraction(average.value),
        "" if average is None else _MAP.interval(average),
        *(None if value is None else Fraction(value) for value in fractions),
    ]


def _confusions(evaluation: Evaluation, dataset: ImageDataset) -> Iterator[Html]:
    yield page.heading("Confusions that matter")
    if not evaluation.confusions:
        yield page.text("No pair of labels was confused in more than one image.")
        return
    yield page.text(
        "Images in which a present label was missed and an absent one predicted, sorted by how much more often this "
        "happens than if the two were independent."
    )
    display = dataset.labels.display
    rows: list[list[Cell]] = [
        [display(pair.actual), display(pair.predicted), pair.count, Fraction(pair.rate), Fraction(pair.base_rate)]
        for pair in evaluation.confusions
    ]
    yield page.table(["missed", "wrongly predicted", "images", "rate if missed", "rate otherwise"], rows)


def _groups(evaluation: Evaluation) -> Iterator[Html]:
    small, medium = (f"{100 * limit:.2g} %" for limit in SIZE_LIMITS)
    sizes = (
        f" (the largest object of a label: small is below {small} of the image, medium below {medium}; the mAP of a "
        "size ignores positives of other sizes)"
    )
    kinds = (
        (evaluation.by_count, "images with", "images", "by number of labels per image", ""),
        (evaluation.by_size, "size", "positives", "by object size", sizes),
    )
    shown = [kind for kind in kinds if kind[0]]
    if not shown:
        return
    yield page.heading("Hard cases")
    if len(shown) > 1:  # one drawing would leave half of the page empty
        yield page.columns(
            *(
                draw_groups(groups, f"Recall {words} (number of {counted} in brackets).")
                for groups, _, counted, words, _ in shown
            )
        )
    for groups, what, counted, words, detail in shown:
        names = list(dict.fromkeys(name for group in groups for name in group.metrics))
        yield page.table(
            [what, counted, *(name.replace("_", " ") for name in names)],
            [[each.name, each.count, *map(_MAP.with_interval, map(each.metrics.get, names))] for each in groups],
            caption=f"Results {words}{detail}, in per cent with 95 % intervals.",
        )


def _caption(result: ImageResult, dataset: ImageDataset) -> str:
    parts = {
        "correct:": result.true_positives,
        "missed:": result.false_negatives,
        "wrongly predicted:": result.false_positives,
    }
    words = []
    for what, tags in parts.items():
        named = [f"{dataset.labels.display(tag.label)} {100 * tag.score:.0f}\u00a0%" for tag in tags]
        words += [f"{what} {some(named, at_most=4)}"] if tags else []
    return f"{result.name}\n{'; '.join(words) or 'no label, none predicted'}"


def _cell(metric: Metric, value: float) -> Cell:
    return Fraction(value) if metric.is_fraction else round(value, 2)


def _about_intervals(evaluation: Evaluation) -> Html:
    sentences = (
        f"95 % bootstrap intervals over images: {plural(evaluation.draws, 'draw')} with replacement.",
        "Resampled sets contain duplicates, which inflate the average precision of rare labels; the draws are "
        "therefore shifted to have the measured value as their mean. The interval shows how much a value would vary "
        "over other sets of the same size and distribution. It covers neither distribution shift nor retraining.",
        "Without any observed error the interval has zero width: resampling cannot produce errors that were never "
        "observed.",
    )
    shown = sentences if evaluation.draws else ("No intervals: the bootstrap was turned off.",)
    return page.section("About the intervals", *map(page.text, shown))


def comparison_page(comparison: Comparison, dataset: ImageDataset) -> page.Page:
    """Show a comparison as a page.

    Args:
        comparison: The comparison.
        dataset: Its dataset; a few of the images are read again.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, compare
        >>> dataset = scenes(8)
        >>> targets, _ = dataset.targets.dense()
        >>> good = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels, model="good")
        >>> bad = ScoredImages.from_arrays(0.8 - 0.6 * targets, targets, labels=dataset.labels, model="bad")
        >>> comparison_page(compare(bad, good, draws=50), dataset).title
        'good against bad'
    """
    subtitle = f"{plural(comparison.num_images, 'image')} of {comparison.dataset}"
    return page.Page(comparison.title, subtitle, [*comparison_parts(comparison, dataset)])


def comparison_parts(comparison: Comparison, dataset: ImageDataset) -> Iterator[Html]:
    """Yield the parts of the page: key figures and verdict, metrics, labels and images.

    Args:
        comparison: The comparison.
        dataset: Its dataset; a few of the images are read again.
    """
    yield _comparison_tiles(comparison)
    yield _verdict(comparison)
    yield from map(page.note, comparison.notes)
    yield page.heading("Metrics")
    models = [comparison.first, comparison.second]
    rows = [
        [METRICS[name].title, *_change(METRICS[name], each), each.p_text, each.verdict]
        for name, each in comparison.metrics.items()
    ]
    caption = "In per cent; a change is better or worse if its interval excludes 0."
    yield page.table(["metric", *models, "change", "95 % interval", "p", "verdict"], rows, caption=caption)
    yield from _comparison_labels(comparison, models)
    yield page.heading("Images")
    yield page.text("Below each image: its labels, and the loss (cross-entropy) of the first and the second model.")
    for name, changes in ((comparison.second, comparison.better), (comparison.first, comparison.worse)):
        if changes:
            yield page.thumbnails([_thumbnail(each, dataset) for each in changes], title=f"Lower loss with {name}")
    yield _about_comparison(comparison)


def _comparison_tiles(comparison: Comparison) -> Html:
    change = comparison.metrics["mAP"]
    better, worse = (sum(label.verdict == verdict for label in comparison.labels) for verdict in ("better", "worse"))
    difference = _MAP.number(change.difference.value, signed=True)
    return page.tiles(
        [
            (_MAP.number(change.first), "mAP", comparison.first),
            (_MAP.number(change.second), "mAP", comparison.second),
            (difference, "change in mAP", _MAP.interval(change.difference, signed=True)),
            (f"{better} : {worse}", "labels better : worse", f"significantly, of {len(comparison.labels):,}"),
        ]
    )


def _verdict(comparison: Comparison) -> Html:
    change = comparison.metrics["mAP"]
    if change.p_value is None:
        return page.note("Without bootstrap draws, the significance of these differences is unknown.", "warning")
    if change.verdict == "unclear":
        return page.note(
            f"The mAP of the two models does not differ significantly on these images (p = {change.p_text}): the "
            "interval of the change includes 0."
        )
    is_better = change.verdict == "better"
    name = comparison.second if is_better else comparison.first
    words = f"{name} has a significantly higher mAP: the interval of the change excludes 0 (p = {change.p_text})."
    return page.note(words, "good" if is_better else "warning")


def _change(metric: Metric, change: MetricChange | LabelChange) -> list[Cell]:
    """Return the cells of a change: both values, the difference and its interval."""
    difference = metric.number(change.difference.value, signed=True)
    interval = metric.interval(change.difference, signed=True)
    return [_cell(metric, change.first), _cell(metric, change.second), difference, interval]


def _comparison_labels(comparison: Comparison, models: Sequence[str]) -> Iterator[Html]:
    yield page.heading("Labels")
    by_chance = round(0.05 * len(comparison.labels))
    if comparison.draws and by_chance:
        yield page.text(
            f"One 95 % interval in twenty misses by chance: of {plural(len(comparison.labels), 'label')}, about "
            f"{by_chance:,} would appear significant even without any change (no correction for multiple testing)."
        )
    ranked = sorted(comparison.labels, key=lambda label: -label.difference.value)
    if ranked:
        yield page.columns(*draw_changes(ranked))
    if comparison.without_positives:
        yield page.note(f"Labels without images are excluded: {some(comparison.without_positives)}.", "warning")
    rows = [[each.display_name, each.positives, *_change(_MAP, each), each.verdict] for each in ranked]
    columns = ["label", "images", *models, "change", "95 % interval", "verdict"]
    yield page.table(columns, rows, caption="Average precision of each label, largest gain first.")


def _thumbnail(change: ImageChange, dataset: ImageDataset) -> page.Thumbnail:
    names = dataset.describe(change.index)
    caption = f"{change.name}\n{names or 'no label'}; {change.first:.1f} → {change.second:.1f}"
    return dataset.thumbnail(change.index, caption=caption)


def _about_comparison(comparison: Comparison) -> Html:
    sentences = (
        f"Paired bootstrap over images: both models are evaluated on the same {plural(comparison.draws, 'draw')}, "
        "so the difficulty of a draw affects both and cancels out of the difference.",
        "p is twice the fraction of draws in which the difference has the opposite sign: how certain the sign is for "
        "images of this distribution. It measures neither the size of the difference nor the variation between "
        "training runs.",
    )
    return page.section("About the comparison", *map(page.text, sentences))


def draw_labels(labels: Sequence[LabelResult]) -> Html:
    """Plot the average precision of each label with its interval, best on top; for many labels, both ends only."""
    shown, remark = _both_ends(sorted(labels, key=lambda label: -label.value))
    tall = 8.4 if len(shown) > FEW_LABELS else 0  # as the two drawings next to it
    drawing, axes = new_figure(width=5.2, height=max(tall, 0.8 + 0.235 * len(shown)))
    values = [label.average_precision or Estimate(0) for label in shown]
    _rows(axes, [label.display_name for label in shown], values, [ACCENT] * len(shown))
    axes.set(xlim=(0, 102), xlabel="average precision (%) with 95 % interval")
    return figure(drawing, f"Average precision of each label.{remark}")


def draw_changes(labels: Sequence[LabelChange]) -> list[Html]:
    """Plot the change in each label's average precision with its interval; for many labels, the largest only."""
    shown, remark = _both_ends(sorted(labels, key=lambda label: -label.difference.value))
    half = len(shown) if len(shown) <= FEW_LABELS else -(-len(shown) // 2)
    bounds = [100 * (bound or 0) for label in shown for bound in label.difference]
    colours = {"better": _GREEN, "worse": _VERMILION, "unclear": INK}
    figures: list[Html] = []
    for part in (shown[:half], shown[half:]):
        if part:
            drawing, axes = new_figure(width=5.2, height=0.8 + 0.235 * half)
            differences = [label.difference for label in part]
            _rows(axes, [label.display_name for label in part], differences, [colours[each.verdict] for each in part])
            axes.axvline(0, color=INK, linewidth=0.8)
            axes.set(xlim=(min(bounds) - 2, max(bounds) + 2), ylim=(len(part) - half - 0.7, len(part) - 0.3))
            axes.set_xlabel("change in AP (percentage points) with 95 % interval")
            caption = "Largest gains first." if not figures else "The other labels."
            figures.append(figure(drawing, f"{caption} Hollow: the interval includes 0.{remark}"))
    return figures


def draw_groups(groups: Sequence[Group], caption: str) -> Html:
    """Plot the recall of each group with its interval."""
    drawing, axes = new_figure(width=5.0, height=0.9 + 0.32 * len(groups))
    names = [f"{group.name} ({group.count:,})" for group in groups]
    _rows(axes, names, [group.metrics["recall"] for group in groups], [ACCENT] * len(groups))
    axes.set(xlim=(0, 102), xlabel="recall (%) with 95 % interval")
    return figure(drawing, caption)


def draw_curves(labels: Sequence[LabelResult]) -> Html:
    """Plot the precision-recall curves; the best, median and worst labels are highlighted."""
    rated = sorted(labels, key=lambda label: -label.value)
    drawing, axes = new_figure(width=5.0, height=4.1)
    for label in rated[:: max(1, len(rated) // _MOST_CURVES)]:
        axes.plot(*_points(label), color=INK, alpha=0.16, linewidth=0.8)
    marked = {0: ("best", _GREEN, "-"), len(rated) // 2: ("median", ACCENT, "--")}
    marked |= {len(rated) - 1: ("worst", _VERMILION, "-.")}
    for position, (what, colour, stroke) in marked.items():
        name = f"{what}: {_short(rated[position].display_name)}"
        axes.plot(*_points(rated[position]), color=colour, linestyle=stroke, label=name)
    axes.set(xlim=(0, 102), ylim=(0, 102), xlabel="recall (%)", ylabel="precision (%)")
    drawing.legend(frameon=False, fontsize=9, loc="outside upper left", labelcolor="linecolor")
    return figure(drawing, "Precision-recall curve of each label; best, median and worst highlighted.")


def draw_calibration(curves: Mapping[str, Sequence[CalibrationBin]]) -> Html:
    """Plot reliability diagrams by name; larger dots are bins with more scores."""
    drawing, axes = new_figure(width=5.0, height=3.6)
    axes.plot([0, 100], [0, 100], color=INK, linewidth=0.8, linestyle=":")
    strokes = ((INK, "--"), (ACCENT, "-"))[-len(curves) :]
    for (name, bins), (colour, stroke) in zip(curves.items(), strokes, strict=True):
        scores, fractions = ([100 * getattr(entry, what) for entry in bins] for what in ("score", "fraction"))
        axes.plot(scores, fractions, stroke, color=colour, linewidth=1, label=name)
        axes.scatter(scores, fractions, s=[12 + 20 * math.log10(entry.count) for entry in bins], color=colour, zorder=3)
    axes.set(xlim=(-3, 103), ylim=(-3, 103), xlabel="score (%)", ylabel="label present (%)")
    if len(curves) > 1:
        axes.legend(frameon=False, loc="upper left")
    caption = "Reliability diagram: on the dotted line, scores are calibrated; below it, they are overconfident."
    return figure(drawing, caption)


def _points(label: LabelResult) -> tuple[list[float], list[float]]:
    """Return a curve in per cent, starting at recall 0."""
    recall, precision = label.curve.recall, label.curve.precision
    return [100 * value for value in (0.0, *recall)], [100 * value for value in (precision[0], *precision)]


def _both_ends(ranked: Sequence[Row]) -> tuple[list[Row], str]:
    """Return both ends of a long list, and a remark about the rest."""
    half = _MOST_LABELS // 2
    if len(ranked) <= _MOST_LABELS:
        return list(ranked), ""
    return [*ranked[:half], *ranked[-half:]], f" Shown: the first {half} and the last {half} of {len(ranked):,}."


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"


def _rows(axes: "Axes", names: Sequence[str], values: Sequence[Estimate], colours: Sequence[str]) -> None:
    """Plot one row per value: a dot and its interval; hollow in the text colour."""
    heights = np.arange(len(values))[::-1]
    for height, value, colour in zip(heights, values, colours, strict=True):
        if value.low is not None and value.high is not None:
            axes.plot([100 * value.low, 100 * value.high], [height, height], color=colour, alpha=0.55, linewidth=2)
        face = "none" if colour == INK else colour
        axes.plot(100 * value.value, height, "o", markersize=5, color=colour, markerfacecolor=face)
    axes.set_yticks(heights, [_short(name) for name in names])
    axes.set_ylim(-0.7, len(values) - 0.3)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
