"""How much of each object in a demo scene is seen; known from the outlines, before anything is painted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.data.readers.scenes.catalogue import OUTLINE_MARGIN, OUTLINE_SCALE, outline
from manylabel.data.readers.scenes.layout import Placement

__all__ = ["View", "present_areas", "views"]

GRID = 128  # cells each way on which it is counted what hides what: the smallest object takes 6 x 6


@dataclass(frozen=True)
class View:
    """How much of an object is seen.

    Args:
        visible: The share of the object that is neither hidden nor outside the picture.
        area: The share of the picture that this makes.
    """

    visible: float
    area: float


def views(placements: Sequence[Placement]) -> list[View]:
    """Return how much of each object is seen when they are painted in this order.

    Examples:
        >>> ball = Placement("ball", 0, (255, 0, 0), 0.5, 0.5, (0.4, 0, 0, 0.4))
        >>> [round(view.visible, 1) for view in views([ball, ball])]
        [0.0, 1.0]
    """
    taken = np.zeros((GRID, GRID), dtype=bool)
    found = []
    for placement in reversed(placements):
        mask, left, top = _mask(placement)
        rows = slice(max(top, 0), max(top + mask.shape[0], 0))
        columns = slice(max(left, 0), max(left + mask.shape[1], 0))
        field = taken[rows, columns]  # what lies beyond the right and the lower edge falls away here
        inside = mask[max(-top, 0) :, max(-left, 0) :][: field.shape[0], : field.shape[1]]
        seen = int(np.count_nonzero(inside & ~field))
        field |= inside
        found.append(View(visible=seen / int(np.count_nonzero(mask)), area=seen / GRID**2))
    return found[::-1]


def present_areas(placements: Sequence[Placement], *, min_visible: float) -> dict[str, float]:
    """Return the labels that count as present, each with the share of the picture that its largest object takes.

    Args:
        placements: The objects, in the order in which they are painted.
        min_visible: The share of an object that must be seen for it to count.

    Examples:
        >>> ball = Placement("ball", 0, (255, 0, 0), 0.5, 0.5, (0.4, 0, 0, 0.4))
        >>> {label: round(area, 1) for label, area in present_areas([ball], min_visible=0.3).items()}
        {'ball': 0.1}
    """
    areas: dict[str, float] = {}
    for placement, view in zip(placements, views(placements), strict=True):
        if view.visible >= min_visible:
            areas[placement.label] = max(view.area, areas.get(placement.label, 0.0))
    return areas


def _mask(placement: Placement) -> tuple[NDArray[np.bool_], int, int]:
    """Return the cells that an object covers, and where on the grid they begin: their left and their top."""
    left, top, right, bottom = (GRID * edge for edge in placement.box)
    x, y = math.floor(left), math.floor(top)
    a, b, c, d, e, f = placement.transform(GRID, x, y)  # from the unit square to cells; Pillow wants the way back
    scale = OUTLINE_SCALE / (a * e - b * d)
    a, b, d, e = scale * e, -scale * b, -scale * d, scale * a
    back = (a, b, OUTLINE_MARGIN - a * c - b * f, d, e, OUTLINE_MARGIN - d * c - e * f)
    size = (math.ceil(right) - x, math.ceil(bottom) - y)
    source = outline(placement.label, placement.style)
    return np.asarray(source.transform(size, Image.Transform.AFFINE, back, Image.Resampling.NEAREST)) > 0, x, y
