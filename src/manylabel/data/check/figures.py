"""The drawings of a check: histograms, and which labels come together.

Letters in shape comments: L labels that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from manylabel.data.check.report import CheckReport
from manylabel.page import ACCENT, INK, Figure, new_figure

__all__ = ["draw_bars", "draw_heat_map", "draw_histogram", "draw_ranking"]

_MOST_LABELS = 60  # more names than this cannot be read
_MOST_WITH_NUMBERS = 25


def draw_bars(counts: Sequence[int], *, what: str, caption: str) -> Figure:
    """Draw how many pictures have 0, 1, 2, ... of something."""
    drawing, axes = new_figure(width=3.7, height=2.4)
    axes.bar(range(len(counts)), counts, color=ACCENT, width=0.8)
    axes.set(xlabel=what, ylabel="pictures")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return Figure(drawing, caption)


def draw_histogram(values: ArrayLike, *, what: str, caption: str) -> Figure:
    """Draw how a measure of the pictures is spread; the outermost half per cent each side joins the last bar."""
    values = np.asarray(values, dtype=np.float64)
    drawing, axes = new_figure(width=3.7, height=2.4)
    low, high = np.quantile(values, [0.005, 0.995])
    axes.hist(values.clip(low, high), bins=40 if high > low else 1, color=ACCENT)
    axes.set(xlabel=what, ylabel="pictures")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return Figure(drawing, caption)


def draw_ranking(counts: Sequence[int], *, few: int, caption: str) -> Figure:
    """Draw the number of pictures of each label, the most frequent first; `few` is marked."""
    drawing, axes = new_figure(width=8.0, height=2.8)
    ordered = np.sort(np.asarray(counts))[::-1]
    axes.fill_between(np.arange(1, len(ordered) + 1), ordered, step="mid", color=ACCENT, alpha=0.3, linewidth=0)
    axes.step(np.arange(1, len(ordered) + 1), ordered, where="mid", color=ACCENT)
    axes.axhline(few, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set(
        xlabel="labels, the most frequent first", ylabel="pictures", xlim=(0.5, len(ordered) + 0.5), ylim=(0, None)
    )
    return Figure(drawing, caption)


def draw_heat_map(report: CheckReport) -> Figure | None:
    """Draw which labels come together, those that do next to each other; None where no two labels do."""
    positives = np.array([label.positives for label in report.labels])
    shared = np.asarray(report.cooccurrence.sum(axis=1)).ravel() - positives
    shown = np.sort(np.argsort(-shared, kind="stable")[: min(_MOST_LABELS, int((shared > 0).sum()))])
    if len(shown) < 2:
        return None
    counts = report.cooccurrence[shown][:, shown].toarray()  # [L, L]
    order = _order(counts)
    shown, counts = shown[order], counts[order][:, order]
    share = counts / counts.diagonal()[:, None]
    np.fill_diagonal(share, np.nan)
    caption = (
        "Of the pictures with the label on the left, the share that also has the label above. "
        "Labels that come together stand together."
    )
    if len(shown) < len(report.labels):
        caption += f" Shown are {len(shown)} of {len(report.labels):,} labels, those that come together most."
    return _draw_matrix(share, [report.labels[label].display_name for label in shown], caption=caption)


def _draw_matrix(share: NDArray[np.float64], names: Sequence[str], *, caption: str) -> Figure:
    with_numbers = len(names) <= _MOST_WITH_NUMBERS
    side = 1.8 + len(names) * (0.36 if with_numbers else 0.17)
    drawing, axes = new_figure(width=side, height=side)
    # From clear to coloured rather than from white: the page behind may be dark.
    colours = LinearSegmentedColormap.from_list("accent", [f"{ACCENT}00", f"{ACCENT}ff"])
    axes.imshow(share, cmap=colours, norm=PowerNorm(0.7, vmin=0, vmax=1), interpolation="nearest")
    short = [name if len(name) <= 22 else f"{name[:21]}…" for name in names]
    size = 9 if with_numbers else 7
    axes.set_xticks(range(len(names)), short, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), short, fontsize=size)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if with_numbers:
        for row, column in np.argwhere(share >= 0.005):
            axes.text(column, row, f"{100 * share[row, column]:.0f}", ha="center", va="center", fontsize=7.5)
    return Figure(drawing, caption)


def _order(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return an order of the labels in which those with many pictures in common are neighbours."""
    positives = counts.diagonal()
    distance = 1 - counts / (positives[:, None] + positives[None] - counts)  # Jaccard
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
    return np.asarray(leaves_list(tree))
