"""The drawings of a report: curves of training, average precision side by side, accuracy against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from manylabel.evaluation import LabelPair, LabelResult
from manylabel.page import ACCENT, INK, Figure, new_figure
from manylabel.runs.run import Run

__all__ = ["STROKES", "draw_curves", "draw_label_dots", "draw_label_pair"]

# Okabe and Ito's colours with a stroke and a mark each: lines are told apart without colours, too.
STROKES = (
    (ACCENT, "-", "o"),
    ("#d55e00", "--", "s"),
    ("#009e73", "-.", "^"),
    ("#cc79a7", ":", "D"),
    ("#e69f00", (0, (5, 1, 1, 1)), "v"),
    ("#56b4e9", (0, (8, 3)), "P"),
)
_MOST_LABELS = 40


def draw_curves(runs: Sequence[Run]) -> list[Figure]:
    """Draw how the loss and mAP went over the epochs, one line for each run.

    Args:
        runs: Those whose epochs are known.

    Returns:
        Two drawings; none where no run has finished an epoch.

    Examples:
        >>> from pathlib import Path
        >>> rows = tuple({"epoch": n, "train_loss": 1 / n, "val_mAP": 1 - 1 / n} for n in (1.0, 2.0, 3.0))
        >>> len(draw_curves([Run(Path("a"), "a", {}, rows, {}, "", True)]))
        2
    """
    told = [run for run in runs if run.epochs]
    if not told:
        return []
    loss, loss_axes = new_figure(width=5.0, height=3.2)
    precision, precision_axes = new_figure(width=5.0, height=3.2)
    for number, run in enumerate(told):
        _line(loss_axes, number, run, "train_loss", run.name)
        _line(loss_axes, number, run, "val_loss", None, faint=True)
        _line(precision_axes, number, run, "val_mAP", run.name, factor=100)
    has_val_loss = any("val_loss" in run.epochs[0] for run in told)
    loss_axes.set(xlabel="epoch", ylabel="loss", yscale="log" if _spans_tenfold(told) else "linear")
    if loss_axes.get_yscale() == "log":
        loss_axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # pages know no TeX
    precision_axes.set(xlabel="epoch", ylabel="mAP on held-out pictures, in per cent")
    for axes in (loss_axes, precision_axes):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(told) > 1:
            axes.legend(frameon=False, fontsize=8.5, labelcolor="linecolor")
    also = "; faint, that on held-out pictures" if has_val_loss else ""
    return [
        Figure(precision, "mAP on the held-out pictures after each epoch."),
        Figure(loss, f"Loss on the training pictures, the mean over each epoch{also}."),
    ]


def _line(
    axes: Axes, number: int, run: Run, what: str, label: str | None, *, factor: float = 1, faint: bool = False
) -> None:
    points = [(row["epoch"], factor * row[what]) for row in run.epochs if what in row]
    if points:
        colour, stroke, mark = STROKES[number % len(STROKES)]
        alpha = 0.4 if faint else 1.0
        epochs, values = zip(*points, strict=True)
        shown = mark if len(points) <= 30 else ""
        axes.plot(epochs, values, color=colour, linestyle=stroke, marker=shown, markersize=4, alpha=alpha, label=label)


def _spans_tenfold(runs: Sequence[Run]) -> bool:
    """Say whether losses differ so much that only a logarithm shows the small ones."""
    losses = [row["train_loss"] for run in runs for row in run.epochs if row.get("train_loss", 0) > 0]
    return bool(losses) and max(losses) > 10 * min(losses)


def draw_label_dots(labels: Mapping[str, Sequence[LabelResult]]) -> Figure:
    """Draw the average precision of each label, a dot for each run, the best label on top.

    Args:
        labels: By the run's name, how well it recognises each label; all runs have the same labels.

    Examples:
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 1]], labels=["cat", "dog"])
        >>> results = evaluate(scored, draws=0).labels
        >>> draw_label_dots({"a": results, "b": results}).caption
        'Average precision of each label in each run.'
    """
    first = next(iter(labels.values()))
    means = np.mean([[label.value for label in results] for results in labels.values()], axis=0)
    order = [place for place in np.argsort(-means) if first[place].positives]
    half = _MOST_LABELS // 2
    shown = order if len(order) <= _MOST_LABELS else [*order[:half], *order[-half:]]
    remark = "" if len(order) <= _MOST_LABELS else f" Shown are the {half} best and the {half} worst of {len(order):,}."
    drawing, axes = new_figure(width=9.6, height=1.2 + 0.235 * len(shown))
    places = np.arange(len(shown))[::-1]
    values = 100 * np.array([[results[place].value for place in shown] for results in labels.values()])
    axes.hlines(places, values.min(axis=0), values.max(axis=0), color=INK, alpha=0.25, linewidth=1)
    for number, (name, row) in enumerate(zip(labels, values, strict=True)):
        colour, _, mark = STROKES[number % len(STROKES)]
        axes.plot(row, places, mark, color=colour, markersize=5.5, alpha=0.85, label=name)
    axes.set_yticks(places, [first[place].display_name[:28] for place in shown])
    axes.set(ylim=(-0.7, len(shown) - 0.3), xlabel="average precision, in per cent")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, fontsize=9, labelcolor="linecolor", loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return Figure(drawing, f"Average precision of each label in each run.{remark}")


def draw_label_pair(pairs: Sequence[LabelPair], first: str, second: str) -> list[Figure]:
    """Draw two labels against each other, a point for each model, and the gap between them, a bar for each.

    Args:
        pairs: What `label_pair` found.
        first: What to call the first label.
        second: What to call the second label.

    Examples:
        >>> figures = draw_label_pair([LabelPair("a", 0.8, 0.9), LabelPair("b", 0.85, 0.9)], "cow", "horse")
        >>> figures[1].caption
        'How far cow and horse are apart, in each run; less is better.'
    """
    cross, cross_axes = new_figure(width=4.6, height=3.4)
    gaps, gap_axes = new_figure(width=4.6, height=0.9 + 0.32 * len(pairs))
    for number, pair in enumerate(pairs):
        colour, _, mark = STROKES[number % len(STROKES)]
        place = (100 * pair.first, 100 * pair.second)
        cross_axes.plot(*place, mark, color=colour)
        cross_axes.annotate(pair.model, place, xytext=(6, 4), textcoords="offset points", fontsize=8.5, color=INK)
        gap_axes.barh(-number, 100 * pair.gap, color=colour, height=0.6)
    cross_axes.set(xlabel=f"average precision of {first}", ylabel=f"average precision of {second}")
    cross_axes.grid(visible=True, axis="both")
    cross_axes.margins(0.2)
    gap_axes.set_yticks([-number for number in range(len(pairs))], [pair.model for pair in pairs])
    gap_axes.set_xlabel("gap of the average precisions, in per cent points")
    gap_axes.grid(visible=True, axis="x")
    gap_axes.grid(visible=False, axis="y")
    return [
        Figure(cross, f"{first} against {second}: up and to the right is better."),
        Figure(gaps, f"How far {first} and {second} are apart, in each run; less is better."),
    ]
