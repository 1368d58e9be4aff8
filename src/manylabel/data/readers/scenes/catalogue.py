"""What demo scenes are made of: the kinds of objects, their outlines, and the themes that bring them together."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial import ConvexHull

from manylabel.data.readers.scenes import nature, things
from manylabel.data.readers.scenes.pen import Colour, Pen

__all__ = ["KINDS", "OUTLINE_MARGIN", "OUTLINE_SCALE", "THEMES", "Kind", "Theme", "outline", "reach"]

OUTLINE_SCALE = 128  # pixels of an outline per unit
OUTLINE_MARGIN = 16  # pixels around the unit square: round ends of lines reach a little beyond it

RED: Colour = (222, 78, 68)
ORANGE: Colour = (240, 146, 58)
YELLOW: Colour = (250, 208, 84)
GREEN: Colour = (98, 172, 92)
TEAL: Colour = (58, 160, 158)
BLUE: Colour = (74, 134, 208)
VIOLET: Colour = (146, 106, 190)
PINK: Colour = (234, 122, 158)
CREAM: Colour = (250, 240, 212)
WHITE: Colour = (250, 250, 252)
BROWN: Colour = (160, 112, 78)
GREY: Colour = (136, 140, 156)
DARK: Colour = (66, 66, 84)
BRIGHT = (RED, ORANGE, YELLOW, GREEN, TEAL, BLUE, VIOLET, PINK)


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    Args:
        draw: Draws it with a pen, in a main colour and a style; the outline depends on the style alone.
        colours: The main colours it comes in.
        zone: Where it belongs: in the sky, in water where there is some, or on the ground.
        styles: How many styles it comes in.
        turn: How far it may lean to either side, in degrees.
        glows: Whether it gives light instead of casting a shadow.
    """

    draw: Callable[[Pen, Colour, int], None]
    colours: tuple[Colour, ...]
    zone: Literal["sky", "water", "ground"]
    styles: int = 2
    turn: float = 6
    glows: bool = False


KINDS: dict[str, Kind] = {
    "apple": Kind(nature.apple, (RED, GREEN, YELLOW), "ground", turn=25),
    "ball": Kind(things.ball, (RED, TEAL, PINK, VIOLET), "ground", turn=180),
    "balloon": Kind(things.balloon, BRIGHT, "sky", turn=12),
    "bird": Kind(nature.bird, (BLUE, RED, GREEN, ORANGE, VIOLET), "sky", turn=15),
    "boat": Kind(things.boat, (BLUE, RED, TEAL, ORANGE), "water"),
    "book": Kind(things.book, (RED, GREEN, BLUE, VIOLET, TEAL), "ground", turn=20),
    "car": Kind(things.car, (RED, YELLOW, BLUE, GREEN, ORANGE, GREY), "ground", turn=4),
    "cat": Kind(nature.cat, (ORANGE, GREY, BROWN, DARK, CREAM), "ground", turn=10),
    "clock": Kind(things.clock, (RED, TEAL, BLUE, BROWN, DARK), "ground", turn=10),
    "cloud": Kind(nature.cloud, (WHITE, (238, 242, 250), (226, 232, 244)), "sky", turn=3),
    "cup": Kind(things.cup, BRIGHT, "ground", turn=5),
    "fish": Kind(nature.fish, (ORANGE, BLUE, TEAL, RED, VIOLET), "water", turn=25),
    "flower": Kind(nature.flower, (RED, PINK, VIOLET, ORANGE, WHITE), "ground", styles=3, turn=14),
    "house": Kind(things.house, (ORANGE, CREAM, BLUE, TEAL, PINK), "ground", turn=2),
    "kite": Kind(things.kite, BRIGHT, "sky", turn=40),
    "lamp": Kind(things.lamp, (YELLOW, ORANGE, TEAL, PINK), "ground", glows=True),
    "moon": Kind(nature.moon, ((250, 236, 180), (244, 226, 160), (236, 234, 226)), "sky", turn=30, glows=True),
    "mushroom": Kind(nature.mushroom, (RED, BROWN, ORANGE, VIOLET), "ground", turn=12),
    "rocket": Kind(things.rocket, (RED, BLUE, ORANGE, TEAL), "sky", turn=60),
    "star": Kind(nature.star, (YELLOW, (255, 226, 130), (250, 190, 80)), "sky", turn=36, glows=True),
    "sun": Kind(nature.sun, ((255, 200, 70), (255, 214, 94), (250, 180, 70)), "sky", turn=45, glows=True),
    "traffic light": Kind(things.traffic_light, (DARK, (54, 74, 66), (226, 172, 60)), "ground", turn=3),
    "tree": Kind(nature.tree, (GREEN, (70, 146, 96), (132, 176, 74), (218, 138, 66)), "ground", turn=4),
    "umbrella": Kind(things.umbrella, (RED, ORANGE, TEAL, BLUE, PINK), "ground", turn=20),
}


@dataclass(frozen=True)
class Theme:
    """A kind of scene: what is mostly seen together.

    Args:
        labels: The objects at home in it; most of a scene comes from here.
        light: What the colours of its objects are multiplied with.
    """

    labels: tuple[str, ...]
    light: Colour = (255, 255, 255)


THEMES: dict[str, Theme] = {
    "beach": Theme(("sun", "umbrella", "boat", "ball", "fish", "cloud")),
    "park": Theme(("tree", "flower", "mushroom", "bird", "kite", "balloon", "cloud")),
    "street": Theme(("house", "car", "traffic light", "tree", "cat", "cloud")),
    "table": Theme(("cup", "book", "clock", "apple", "lamp", "cat"), light=(255, 246, 234)),
    "night": Theme(("moon", "star", "rocket", "house", "tree"), light=(204, 206, 244)),
}


@cache
def outline(label: str, style: int) -> Image.Image:
    """Return where an object of this style is, as an 8-bit mask of the unit square and a margin around it.

    Examples:
        >>> outline("ball", 0).size, outline("ball", 0).getpixel((80, 80)), outline("ball", 0).getpixel((0, 0))
        ((160, 160), 255, 0)
    """
    side = OUTLINE_SCALE + 2 * OUTLINE_MARGIN
    canvas = Image.new("RGBA", (side, side))
    pen = Pen(canvas, (OUTLINE_SCALE, 0, OUTLINE_MARGIN, 0, OUTLINE_SCALE, OUTLINE_MARGIN))
    KINDS[label].draw(pen, KINDS[label].colours[0], style)
    return canvas.getchannel("A")


@cache
def reach(label: str, style: int) -> NDArray[np.float64]:
    """Return the corners of the tightest convex shape around an outline, ``[2, P]``, from the middle of its square.

    Examples:
        >>> reach("ball", 0).max(axis=1).round(1).tolist()
        [0.5, 0.5]
    """
    rows, columns = np.nonzero(np.asarray(outline(label, style)))
    edges = [(columns + x, rows + y) for x in (0, 1) for y in (0, 1)]
    points = np.concatenate([np.stack(edge, axis=1) for edge in edges]).astype(float)
    corners = points[ConvexHull(points).vertices]
    return np.ascontiguousarray((corners.T - OUTLINE_MARGIN) / OUTLINE_SCALE - 0.5)
