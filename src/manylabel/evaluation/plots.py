"""Plots of evaluations and comparisons, in colours and line styles safe for colour blindness."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from manylabel.evaluation.bootstrap import Estimate
from manylabel.evaluation.compare import LabelChange
from manylabel.evaluation.results import Group, LabelResult
from manylabel.metrics import CalibrationBin
from manylabel.page import ACCENT, INK, Html, figure, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's vermilion and green: distinct for every kind of colour vision, on white and on black.
_VERMILION = "#d55e00"
_GREEN = "#009e73"
_MOST_LABELS = 40  # more rows are unreadable
FEW_LABELS = 12  # fit into a small figure
_MOST_CURVES = 100

Row = TypeVar("Row")


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
