"""Explanations side by side: a row for each label or picture, a column for each method, block or model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from PIL import Image

from manylabel.errors import ConfigError
from manylabel.explain.explanation import COLOURS, Explanation

__all__ = ["draw_grid"]

_INK, _SOFT = "#22262b", "#5a6675"
_TITLES = {"cam": "CAM", "grad_cam": "Grad-CAM", "grad_cam_plus_plus": "Grad-CAM++", "eigen_cam": "EigenCAM"}
_LONGEST = 480  # pixels of a picture in the grid


def draw_grid(explanations: Sequence[Explanation], *, title: str = "") -> Figure:
    """Draw explanations as a grid: the picture, then a column for each model, method and block.

    Args:
        explanations: What `explain` gave, of one picture or more; a new row begins where source or label change.
        title: What stands above the grid.

    Returns:
        A matplotlib figure; `page.write_drawing` saves it.

    Raises:
        ConfigError: There is nothing to draw.

    Examples:
        >>> import torch
        >>> picture = Image.new("RGB", (60, 40))
        >>> heat = [Explanation(picture, "cat", 0.9, torch.eye(2), method) for method in ("attention", "grad_cam")]
        >>> len(draw_grid(heat).axes)  # the picture, two heat maps, the scale
        4
    """
    if not explanations:
        raise ConfigError("there is nothing to draw: give at least one explanation")
    rows = [list(group) for _, group in groupby(explanations, key=lambda each: (each.source, each.label))]
    columns = list(dict.fromkeys(_column(each) for each in explanations))
    height = 2.3
    widths = [height * min(max(row[0].picture.width / row[0].picture.height, 0.6), 1.8) for row in rows]
    figure = Figure(figsize=(0.3 + max(widths) * (1 + len(columns)), 0.9 + height * len(rows)), layout="constrained")
    if title:
        figure.suptitle(title, color=_INK, fontsize=12, parse_math=False)
    grid = figure.subplots(len(rows), 1 + len(columns), squeeze=False)
    for number, (axes, row) in enumerate(zip(grid, rows, strict=True)):
        _draw_row(axes, row, columns)
        if number == 0:
            _name_columns(axes, columns, _namer(explanations))
    scale = figure.colorbar(
        ScalarMappable(cmap=COLOURS), ax=grid, location="bottom", shrink=0.35, aspect=40, pad=0.02, ticks=[0, 1]
    )
    scale.ax.set_xticklabels(["matters least", "matters most"], fontsize=8, color=_SOFT)
    scale.outline.set_visible(False)
    return figure


_Column = tuple[str, str, int]


def _column(explanation: Explanation) -> _Column:
    return explanation.model, explanation.method, explanation.block


def _namer(explanations: Sequence[Explanation]) -> Callable[[_Column], str]:
    """Return what names a column: by what the columns differ in."""
    has_blocks = len({each.block for each in explanations}) > 1
    has_methods = len({each.method for each in explanations}) > 1
    models = {each.model for each in explanations}

    def name(column: _Column) -> str:
        model, method, block = column
        parts = [model] if len(models) > 1 else []
        if has_methods or not (parts or has_blocks):
            parts.append(_TITLES.get(method, method))
        if has_blocks:
            parts.append(f"block {block}")
        return ", ".join(parts)

    return name


def _draw_row(axes: Sequence[Axes], row: Sequence[Explanation], columns: Sequence[_Column]) -> None:
    found = {_column(each): each for each in row}
    has_models = len({model for model, _, _ in columns}) > 1  # each with a score of its own
    score = "" if has_models else f"\n{100 * row[0].score:.0f} %"
    _show(axes[0], row[0].picture)
    axes[0].set_ylabel(f"{row[0].label}{score}", color=_INK, fontsize=11, parse_math=False)
    for place, column in zip(axes[1:], columns, strict=True):
        if column not in found:
            place.axis("off")
            continue
        _show(place, found[column].overlay(longest=_LONGEST))
        if has_models:
            place.set_xlabel(f"{100 * found[column].score:.0f} %", color=_SOFT, fontsize=9)


def _name_columns(axes: Sequence[Axes], columns: Sequence[_Column], name: Callable[[_Column], str]) -> None:
    for place, column in zip(axes[1:], columns, strict=True):
        place.set_title(name(column), color=_INK, fontsize=10, parse_math=False)


def _show(axes: Axes, picture: Image.Image) -> None:
    small = picture.convert("RGB")
    small.thumbnail((_LONGEST, _LONGEST))
    axes.imshow(np.asarray(small))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
