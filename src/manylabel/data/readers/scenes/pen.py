"""A pen that draws on a unit square, wherever that square lies in a picture and however it is turned.

The square spans 0..1 to the right and downwards. Every stroke becomes a polygon, so that turning, stretching and
mirroring cost nothing and blur nothing.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from PIL import Image, ImageDraw

__all__ = ["Colour", "Pen", "Point", "Transform", "arc", "darker", "lighter", "mix", "spokes"]

Colour = tuple[int, int, int]
Point = tuple[float, float]
Transform = tuple[float, float, float, float, float, float]  # x' = a x + b y + c, y' = d x + e y + f


class Pen:
    """Draws filled shapes, given in unit coordinates, on an RGBA canvas.

    Args:
        canvas: What to draw on.
        transform: Takes unit coordinates to pixels: ``x' = a x + b y + c``, ``y' = d x + e y + f``.

    Examples:
        >>> canvas = Image.new("RGBA", (10, 10))
        >>> Pen(canvas, (10, 0, 0, 0, 10, 0)).box(0, 0, 0.5, 1, (255, 0, 0))
        >>> canvas.getpixel((2, 5)), canvas.getpixel((8, 5))
        ((255, 0, 0, 255), (0, 0, 0, 0))
    """

    def __init__(self, canvas: Image.Image, transform: Transform) -> None:
        self.canvas = canvas
        self.transform = transform
        self._draw = ImageDraw.Draw(canvas)
        a, b, _, d, e, _ = transform
        self._scale = math.sqrt(abs(a * e - b * d))

    def polygon(self, points: Sequence[Point], fill: Colour) -> None:
        """Fill a polygon."""
        a, b, c, d, e, f = self.transform
        self._draw.polygon([(a * x + b * y + c, d * x + e * y + f) for x, y in points], fill=(*fill, 255))

    def ellipse(self, x: float, y: float, width: float, height: float, fill: Colour, *, turn: float = 0) -> None:
        """Fill an ellipse around a centre; `width` and `height` are its radii, `turn` its angle in degrees."""
        self.polygon(arc(x, y, width, height, turn=turn), fill)

    def box(self, left: float, top: float, right: float, bottom: float, fill: Colour, *, radius: float = 0) -> None:
        """Fill a rectangle, with round corners if it has a `radius`."""
        if not radius:
            self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], fill)
            return
        x0, y0, x1, y1 = left + radius, top + radius, right - radius, bottom - radius
        corners = [(x1, y1, 0), (x0, y1, 90), (x0, y0, 180), (x1, y0, 270)]
        self.polygon([p for x, y, start in corners for p in arc(x, y, radius, radius, start, start + 90)], fill)

    def line(self, points: Sequence[Point], width: float, fill: Colour) -> None:
        """Draw a line with round ends through points."""
        a, b, c, d, e, f = self.transform
        pixels = [(a * x + b * y + c, d * x + e * y + f) for x, y in points]
        thickness = max(1, round(width * self._scale))
        self._draw.line(pixels, fill=(*fill, 255), width=thickness, joint="curve")
        for x, y in (pixels[0], pixels[-1]):
            self._draw.circle((x, y), thickness / 2, fill=(*fill, 255))


@lru_cache(maxsize=4096)
def arc(
    x: float, y: float, width: float, height: float, start: float = 0, stop: float = 360, *, turn: float = 0
) -> tuple[Point, ...]:
    """Return points along an ellipse from one angle to another, in degrees, clockwise from the right.

    Examples:
        >>> [(round(x, 2), round(y, 2)) for x, y in arc(0, 0, 2, 1, 0, 180)][::12]
        [(2.0, 0.0), (0.0, 1.0), (-2.0, 0.0)]
    """
    steps = max(2, math.ceil(abs(stop - start) / 7.5))  # finer corners would not show at the largest size
    angles = [math.radians(start + (stop - start) * step / steps) for step in range(steps + 1)]
    cosine, sine = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    flat = [(width * math.cos(angle), height * math.sin(angle)) for angle in angles]
    return tuple((x + cosine * u - sine * v, y + sine * u + cosine * v) for u, v in flat)


def spokes(count: int, radius: float, *, start: float = -90, x: float = 0.5, y: float = 0.5) -> list[Point]:
    """Return `count` points evenly around a centre, the first at the angle `start` (straight up when left out).

    Examples:
        >>> [(round(x, 2), round(y, 2)) for x, y in spokes(4, 0.5)]
        [(0.5, 0.0), (1.0, 0.5), (0.5, 1.0), (0.0, 0.5)]
    """
    angles = [math.radians(start + 360 * step / count) for step in range(count)]
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return a colour between two, `share` of the way to the second.

    Examples:
        >>> mix((0, 0, 0), (200, 100, 0), 0.5)
        (100, 50, 0)
    """
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def lighter(colour: Colour, share: float = 0.35) -> Colour:
    """Return a colour moved towards white."""
    return mix(colour, (255, 255, 255), share)


def darker(colour: Colour, share: float = 0.3) -> Colour:
    """Return a colour moved towards a deep blue-black, as shadows are."""
    return mix(colour, (24, 20, 44), share)
