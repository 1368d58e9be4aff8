"""Explanations: a heat map over an image for a label, drawn alone or as a grid.

Letters in shape comments: H and W positions of a map.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import matplotlib as mpl
import numpy as np
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.types import InputSpec

COLOURS = "inferno"
"""Matplotlib colour map of the heat; perceptually uniform, also for colour-blind readers and in print."""

_FAINTEST, _STRONGEST = 0.12, 0.75  # opacity of the coldest and the hottest position
_INK, _SOFT = "#22262b", "#5a6675"
_TITLES = {"cam": "CAM", "grad_cam": "Grad-CAM", "grad_cam_plus_plus": "Grad-CAM++", "eigen_cam": "EigenCAM"}
_LONGEST = 480  # pixels of an image in the grid


@dataclass(frozen=True, eq=False)
class Explanation:
    """Heat map of a label over an image.

    Args:
        image: Part of the image that the model sees.
        label: Name of the label.
        score: Predicted probability of the label.
        heat: ``[H, W]``, 0 to 1, at the resolution of its feature map.
        method: Method of explanation; one of `METHODS`.
        block: Stage of the backbone, counted from 0.
        model: Name of the model in a grid.
        source: Name of the image in a grid.

    Examples:
        >>> import torch
        >>> explanation = Explanation(Image.new("RGB", (60, 40)), "cat", 0.9, torch.eye(2), "cam")
        >>> explanation.overlay().size, explanation.hottest()
        ((60, 40), (0.25, 0.25))
    """

    image: Image.Image
    label: str
    score: float
    heat: Tensor
    method: str
    block: int = -1
    model: str = ""
    source: str = ""

    def enlarged(self, width: int, height: int) -> NDArray[np.float32]:
        """Return the heat at a size in pixels, ``[height, width]``."""
        enlarged = F.interpolate(self.heat[None, None], (height, width), mode="bicubic", align_corners=False)
        return np.asarray(enlarged[0, 0].clamp(0, 1).numpy(), dtype=np.float32)

    def overlay(self, *, longest: int | None = None) -> Image.Image:
        """Return the image overlaid with the heat; colder positions are more transparent.

        Args:
            longest: Maximum length of the longer side in pixels (default: that of the image).
        """
        image = self.image.convert("RGB")
        if longest is not None:
            image.thumbnail((longest, longest))
        heat = self.enlarged(*image.size)[..., None]
        colour = np.asarray(image, dtype=np.float32) / 255
        grey = colour.mean(axis=2, keepdims=True)
        quiet = 0.5 * colour + 0.5 * grey  # less colour: the heat stands out
        opacity = _FAINTEST + (_STRONGEST - _FAINTEST) * heat
        mixed = (1 - opacity) * quiet + opacity * mpl.colormaps[COLOURS](heat[..., 0])[..., :3]
        return Image.fromarray(np.round(255 * mixed).astype(np.uint8))

    def hottest(self) -> tuple[float, float]:
        """Return the centre (x, y) of the hottest cell, as fractions of the image's width and height."""
        height, width = self.heat.shape
        row, column = divmod(int(self.heat.argmax()), width)
        return (column + 0.5) / width, (row + 0.5) / height


def scale_heat(maps: Tensor) -> Tensor:
    """Scale each map of ``[..., H, W]`` to the range 0 to 1; constant maps become 0.

    Examples:
        >>> import torch
        >>> scale_heat(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
        tensor([[0.0000, 0.2500],
                [0.5000, 1.0000]])
    """
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    span = high - low
    return ((maps - low) / span.clamp(min=1e-12)).where(span > 0, 0)


def seen_part(image: Image.Image, spec: InputSpec) -> Image.Image:
    """Return the part of an image that a model sees: all of it, or the centre where the model crops.

    Examples:
        >>> seen_part(Image.new("RGB", (200, 100)), InputSpec(size=(50, 50), resize="crop", crop_fraction=0.5)).size
        (50, 50)
        >>> seen_part(Image.new("RGB", (200, 100)), InputSpec(size=(50, 50))).size
        (200, 100)
    """
    if spec.resize != "crop":
        return image
    height, width = spec.size
    scale = spec.crop_fraction * min(image.width / width, image.height / height)
    seen = round(scale * width), round(scale * height)
    left, top = (image.width - seen[0]) // 2, (image.height - seen[1]) // 2
    return image.crop((left, top, left + seen[0], top + seen[1]))


def draw_grid(explanations: Sequence[Explanation], *, title: str = "") -> Figure:
    """Draw explanations as a grid: the image, then a column for each model, method and block.

    Args:
        explanations: Results of `explain`, of one image or more; each source and label starts a new row.
        title: Title of the grid.

    Returns:
        A matplotlib figure; `page.write_drawing` saves it.

    Raises:
        ConfigError: There is nothing to draw.

    Examples:
        >>> import torch
        >>> image = Image.new("RGB", (60, 40))
        >>> heat = [Explanation(image, "cat", 0.9, torch.eye(2), method) for method in ("attention", "grad_cam")]
        >>> len(draw_grid(heat).axes)  # the image, two heat maps, the scale
        4
    """
    if not explanations:
        raise ConfigError("nothing to draw: pass at least one explanation")
    rows = [list(group) for _, group in groupby(explanations, key=lambda each: (each.source, each.label))]
    columns = list(dict.fromkeys(_column(each) for each in explanations))
    height = 2.3
    widths = [height * min(max(row[0].image.width / row[0].image.height, 0.6), 1.8) for row in rows]
    figure = Figure(figsize=(0.3 + max(widths) * (1 + len(columns)), 0.9 + height * len(rows)), layout="constrained")
    if title:
        figure.suptitle(title, color=_INK, fontsize=12, parse_math=False)
    grid = figure.subplots(len(rows), 1 + len(columns), squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        _draw_row(axes, row, columns)
    for axis, title in zip(grid[0, 1:], _titles(columns), strict=True):
        axis.set_title(title, color=_INK, fontsize=10, parse_math=False)
    scale = figure.colorbar(
        ScalarMappable(cmap=COLOURS), ax=grid, location="bottom", shrink=0.35, aspect=40, pad=0.02, ticks=[0, 1]
    )
    scale.ax.set_xticklabels(["matters least", "matters most"], fontsize=8, color=_SOFT)
    scale.outline.set_visible(False)
    return figure


_Column = tuple[str, str, int]


def _column(explanation: Explanation) -> _Column:
    return explanation.model, explanation.method, explanation.block


def _titles(columns: Sequence[_Column]) -> list[str]:
    """Return the titles of the columns: the properties in which they differ, or the method."""
    has_models, has_methods, has_blocks = (len(set(values)) > 1 for values in zip(*columns, strict=True))
    has_methods = has_methods or not (has_models or has_blocks)
    titles = []
    for model, method, block in columns:
        parts = ((has_models, model), (has_methods, _TITLES.get(method, method)), (has_blocks, f"block {block}"))
        titles.append(", ".join(words for is_shown, words in parts if is_shown))
    return titles


def _draw_row(axes: Sequence[Axes], row: Sequence[Explanation], columns: Sequence[_Column]) -> None:
    found = {_column(each): each for each in row}
    has_models = len({model for model, _, _ in columns}) > 1  # each with a score of its own
    score = "" if has_models else f"\n{100 * row[0].score:.0f} %"
    _show(axes[0], row[0].image)
    axes[0].set_ylabel(f"{row[0].label}{score}", color=_INK, fontsize=11, parse_math=False)
    for axis, column in zip(axes[1:], columns, strict=True):
        if column not in found:
            axis.axis("off")
            continue
        _show(axis, found[column].overlay(longest=_LONGEST))
        if has_models:
            axis.set_xlabel(f"{100 * found[column].score:.0f} %", color=_SOFT, fontsize=9)


def _show(axes: Axes, image: Image.Image) -> None:
    small = image.convert("RGB")
    small.thumbnail((_LONGEST, _LONGEST))
    axes.imshow(np.asarray(small))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
