"""Drawings of a label graph: a heat map sorted by subset, and a circle of labels with their strongest links.

Letters in shape comments: L drawn labels, E links.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, Wedge
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from manylabel.errors import ConfigError
from manylabel.labelgraph.graph import LabelGraph
from manylabel.labelgraph.partition import Partition

# The colours of Okabe and Ito, safe for colour-blind readers, without those too faint for thin lines. They repeat after
# six subsets, whose numbers differ.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_HEAT = LinearSegmentedColormap.from_list("heat", ["#ffffff", "#d3e3f0", "#7fb2d5", "#2f76ab", "#123a5e", "#071a2c"])
_INK, _FAINT = "#22262b", "#c3c9cf"
_TITLES = {"co": "Co-occurring labels", "dis": "Dissimilar labels", "random": "Random partition"}
_RING_NUMBER = {"ha": "center", "va": "center_baseline", "fontsize": 8, "weight": "bold", "color": "white"}
_LINKS_PER_LABEL = 3
_LONGEST_NAME = 22


def draw_graph(
    graph: LabelGraph,
    partitions: Sequence[Partition],
    *,
    at_most: int = 100,
    only: Literal["heat map", "circle"] | None = None,
) -> Figure:
    """Draw a label graph, one row per partition of its labels.

    On the left the affinities as a heat map whose blocks are the subsets; on the right the labels on a circle, each
    linked to the three it co-occurs with most. Links within a subset have its colour.

    Args:
        graph: The labels and their links.
        partitions: Partitions, which determine order and colour.
        at_most: Largest number of labels to draw, the most frequent ones.
        only: One of the two, smaller and without a title, for a column of a page (default: both).

    Returns:
        A matplotlib figure; `page.write_drawing` saves it.

    Raises:
        ConfigError: There is no partition, or it has other labels.

    Examples:
        >>> from manylabel.labelgraph import partition_labels
        >>> from manylabel.targets import Targets
        >>> from manylabel.types import LabelSpace
        >>> targets = Targets.from_lists([[0, 1], [2, 3], [1, 2]], num_labels=4)
        >>> graph = LabelGraph.from_targets(targets, LabelSpace(["cup", "table", "boat", "sea"]))
        >>> len(draw_graph(graph, [partition_labels(graph, 2)]).axes)  # heat map, its scale, circle
        3
    """
    if not partitions:
        raise ConfigError("a drawing needs a partition; make one with partition_labels")
    if any(sorted(name for subset in part.subsets for name in subset) != sorted(graph.labels) for part in partitions):
        raise ConfigError("the partition and the graph have different labels; make it with partition_labels")
    scale = 1.0 if only is None else 0.7
    width = 15.5 if only is None else 7.75 * scale
    figure = Figure(figsize=(width, 7.9 * scale * len(partitions)), layout="constrained")
    rows = figure.subfigures(len(partitions), squeeze=False)[:, 0]
    for row, partition in zip(rows, partitions, strict=True):
        sorted_graph = _SortedGraph(graph, partition, at_most, scale)
        if only is None:
            row.suptitle(_title(sorted_graph), x=0.02, ha="left", color=_INK, fontsize=13)
        draw = {"heat map": _draw_heat_map, "circle": _draw_circle}
        chosen = [draw[only]] if only else list(draw.values())
        for axes, draw_part in zip(row.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
            draw_part(axes, sorted_graph)
    return figure


@dataclass(frozen=True, eq=False)
class _SortedGraph:
    """The drawn part of a graph: its labels by subset, similar ones adjacent."""

    graph: LabelGraph
    partition: Partition
    at_most: int
    scale: float

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Positions of the drawn labels in the graph, ``[L]``."""
        frequent = np.argsort(-self.graph.counts, kind="stable")[: self.at_most]
        members = [np.intersect1d(subset, frequent) for subset in self.partition.positions(self.graph.labels)]
        return np.concatenate([subset[_leaves(self.graph, subset)] for subset in members])

    @cached_property
    def subset_of(self) -> NDArray[np.int64]:
        """Subset of each drawn label, ``[L]``."""
        subset_of = np.empty(len(self.graph.labels), dtype=np.int64)
        for number, subset in enumerate(self.partition.positions(self.graph.labels)):
            subset_of[subset] = number
        return np.asarray(subset_of[self.order])

    @cached_property
    def affinity(self) -> NDArray[np.float64]:
        """P+ of the drawn labels, ``[L, L]``."""
        return np.asarray(self.graph.affinity[self.order][:, self.order].toarray())

    @property
    def names(self) -> list[str]:
        """Display names, truncated."""
        names = (self.graph.labels.display(self.graph.labels[position]) for position in self.order)
        return [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in names]

    @property
    def blocks(self) -> list[tuple[int, int, int]]:
        """Number, start and end of every drawn subset."""
        numbers, starts, sizes = np.unique(self.subset_of, return_index=True, return_counts=True)
        return list(zip(numbers.tolist(), starts.tolist(), (starts + sizes).tolist(), strict=True))

    @property
    def font_size(self) -> float:
        """Largest font size for the number of labels."""
        return min(10, self.scale * max(460 / max(len(self.order), 1), 4.5))


def _leaves(graph: LabelGraph, members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order a subset's labels such that similar ones are adjacent."""
    if len(members) < 3:
        return np.arange(len(members))
    distance = 1 - graph.affinity[members][:, members].toarray()
    np.fill_diagonal(distance, 0)
    return np.asarray(leaves_list(linkage(squareform(distance, checks=False), "average", optimal_ordering=True)))


def _title(drawn: _SortedGraph) -> str:
    partition, drawn_labels, all_labels = drawn.partition, len(drawn.order), len(drawn.graph.labels)
    few = f"the {drawn_labels:,} most frequent of {all_labels:,}" if drawn_labels < all_labels else f"{all_labels:,}"
    subsets = f"{len(partition)} subset{'s' if len(partition) > 1 else ''}"
    return f"{_TITLES[partition.kind]}: {few} labels, {subsets}, stability {partition.stability:.2f}"


def _colour(subset: int) -> str:
    return _COLOURS[subset % len(_COLOURS)]


def _draw_heat_map(axes: Axes, drawn: _SortedGraph) -> None:
    """Draw the affinities, similar labels adjacent, with a frame around each subset."""
    size = len(drawn.order)
    affinity = np.ma.masked_array(drawn.affinity, mask=np.eye(size, dtype=bool))
    image = axes.imshow(affinity, cmap=_HEAT, vmin=0, vmax=max(drawn.affinity.max(), 1e-9))
    axes.set_facecolor("#e9ecef")  # the diagonal
    strip = 0.022 * size
    for number, start, end in drawn.blocks:
        colour, length = _colour(number), end - start
        axes.add_patch(Rectangle((start - 0.5, start - 0.5), length, length, fill=False, edgecolor=colour, linewidth=2))
        axes.add_patch(Rectangle((-0.5 - strip, start - 0.5), strip, length, facecolor=colour, edgecolor="white"))
        if length > 0.025 * size:  # else the numbers would overlap
            axes.text(1.01 * size, (start + end - 1) / 2, str(number + 1), color=colour, va="center", weight="bold")
    axes.set(xlim=(-0.5 - strip, size - 0.5), xticks=[])
    axes.set_yticks(range(size), labels=drawn.names, fontsize=drawn.font_size, color=_INK, parse_math=False)
    axes.tick_params(length=0, pad=3)
    axes.spines[:].set_visible(False)
    scale = axes.figure.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.02)
    scale.set_label("affinity: strength of co-occurrence", color=_INK, fontsize=9)
    scale.ax.tick_params(labelsize=8, colors=_INK, length=2)
    scale.outline.set_visible(False)


def _draw_circle(axes: Axes, drawn: _SortedGraph) -> None:
    """Draw the labels on a circle, as dots sized by frequency, and curves between them."""
    angles = _angles(drawn)
    positions = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # [L, 2]
    colours = to_rgba_array([_colour(number) for number in drawn.subset_of])
    axes.add_collection(_links(drawn, positions, colours))
    size = drawn.graph.counts[drawn.order] / max(drawn.graph.counts.max(), 1)
    axes.scatter(
        positions[:, 0], positions[:, 1], s=12 + 190 * size, color=colours, edgecolor="white", linewidth=0.8, zorder=3
    )
    _draw_ring(axes, drawn, angles)
    for name, angle, (x, y) in zip(drawn.names, angles, 1.15 * positions, strict=True):
        turn, side = (180, "right") if x < 0 else (0, "left")  # no name is upside down
        settings = {"rotation": np.degrees(angle) + turn, "rotation_mode": "anchor", "ha": side, "va": "center"}
        axes.text(x, y, name, settings, fontsize=1.2 * drawn.font_size, color=_INK, parse_math=False)
    reach = 1.17 + 0.0026 / drawn.scale * drawn.font_size * max(map(len, drawn.names))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.axis("off")


def _angles(drawn: _SortedGraph) -> NDArray[np.float64]:
    """Return the angle of each label, clockwise from the top, with a gap between subsets."""
    size, gap = len(drawn.order), 0.012 * len(drawn.order) + 0.6
    before = np.repeat(np.arange(len(drawn.blocks)), [end - start for _, start, end in drawn.blocks])  # gaps, [L]
    steps = np.arange(size) + gap * (before + 0.5)
    return np.asarray(np.pi / 2 - 2 * np.pi * steps / (size + gap * len(drawn.blocks)))


def _draw_ring(axes: Axes, drawn: _SortedGraph, angles: NDArray[np.float64]) -> None:
    """Draw a numbered arc around each subset."""
    half_step = 0.45 * 2 * np.pi / max(len(angles), 8)
    for number, start, end in drawn.blocks:
        first, last = angles[start] + half_step, angles[end - 1] - half_step
        arc = Wedge((0, 0), 1.12, np.degrees(last), np.degrees(first), width=0.055, color=_colour(number), linewidth=0)
        axes.add_patch(arc)
        middle = (first + last) / 2
        x, y = 1.0925 * np.cos(middle), 1.0925 * np.sin(middle)
        axes.text(x, y, str(number + 1), _RING_NUMBER)


def _links(drawn: _SortedGraph, positions: NDArray[np.float64], colours: NDArray[np.float64]) -> LineCollection:
    """Return the strongest links of each label as curves through the middle, wider for stronger links."""
    strongest = np.argsort(-drawn.affinity, axis=1, kind="stable")[:, :_LINKS_PER_LABEL]
    ends = np.stack([np.repeat(np.arange(len(positions)), strongest.shape[1]), strongest.ravel()], axis=1)
    ends = np.unique(np.sort(ends[drawn.affinity[tuple(ends.T)] > 0], axis=1), axis=0)  # [E, 2]
    strength = drawn.affinity[tuple(ends.T)]
    ends, strength = ends[np.argsort(strength)], np.sort(strength)
    start, end = positions[ends[:, :1]], positions[ends[:, 1:]]  # [E, 1, 2]
    along = np.linspace(0, 1, 40)[:, None]
    length = np.linalg.norm(end - start, axis=2, keepdims=True)
    bend = (0.45 - 0.15 * length) * (start + end)  # near labels: along the rim
    curves = (1 - along) ** 2 * start + 2 * along * (1 - along) * bend + along**2 * end  # [E, 40, 2]
    within = drawn.subset_of[ends[:, 0]] == drawn.subset_of[ends[:, 1]]
    shades = np.where(within[:, None], colours[ends[:, 0]], to_rgba_array(_FAINT))
    shades[:, 3] = 0.35 + 0.55 * strength
    return LineCollection(list(curves), colors=shades, linewidths=0.5 + 3 * strength, zorder=1, capstyle="round")
