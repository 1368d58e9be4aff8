"""Pictures of shapes with a colour and a texture, whose names are put together: hundreds of labels for zero-shot.

A model that knows "red striped star" and "blue dotted heart" can work out "red dotted star": there is a right answer
for combinations that were never seen.

Lengths are shares of the picture's width; the picture is square.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from random import Random

import numpy as np
from PIL import Image

from manylabel.data.readers.scenes.pen import Colour, Pen, arc, spokes

__all__ = ["COLOURS", "COMPOSITIONS", "SHAPES", "TEXTURES", "Shape", "composed_areas", "encode_composition"]

COLOURS: dict[str, Colour] = {
    "red": (214, 46, 46),
    "orange": (244, 140, 36),
    "yellow": (246, 212, 54),
    "green": (52, 152, 74),
    "blue": (42, 96, 206),
    "purple": (130, 62, 172),
    "brown": (130, 84, 50),
    "black": (34, 34, 40),
}
LIGHT: Colour = (250, 248, 240)  # of stripes, dots and checks
CELLS = 3  # a picture has 3 x 3 cells, each with at most one shape: nothing is hidden
SMALLEST, LARGEST = 0.18, 0.3
TURN = 0.25  # radians; more would make a diamond of a square
FEWEST, MOST = 2, 6  # shapes in a picture
OVERSAMPLING = 3


def _circle(pen: Pen, fill: Colour) -> None:
    pen.ellipse(0.5, 0.5, 0.48, 0.48, fill)


def _square(pen: Pen, fill: Colour) -> None:
    pen.box(0.06, 0.06, 0.94, 0.94, fill)


def _triangle(pen: Pen, fill: Colour) -> None:
    pen.polygon([(0.5, 0.04), (0.98, 0.92), (0.02, 0.92)], fill)


def _star(pen: Pen, fill: Colour) -> None:
    pairs = zip(spokes(5, 0.5), spokes(10, 0.2)[1::2], strict=True)
    pen.polygon([point for pair in pairs for point in pair], fill)


def _heart(pen: Pen, fill: Colour) -> None:
    pen.ellipse(0.27, 0.32, 0.25, 0.26, fill)
    pen.ellipse(0.73, 0.32, 0.25, 0.26, fill)
    pen.polygon([(0.04, 0.42), (0.5, 0.3), (0.96, 0.42), (0.5, 0.97)], fill)


def _cross(pen: Pen, fill: Colour) -> None:
    pen.box(0.34, 0.03, 0.66, 0.97, fill)
    pen.box(0.03, 0.34, 0.97, 0.66, fill)


def _diamond(pen: Pen, fill: Colour) -> None:
    pen.polygon([(0.5, 0.0), (0.86, 0.5), (0.5, 1.0), (0.14, 0.5)], fill)


def _crescent(pen: Pen, fill: Colour) -> None:
    outer = arc(0.5, 0.5, 0.48, 0.48, 60, 300)
    inner = arc(0.72, 0.5, 0.4, 0.42, 290, 70)
    pen.polygon([*outer, *inner], fill)


SHAPES: dict[str, Callable[[Pen, Colour], None]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "cross": _cross,
    "diamond": _diamond,
    "crescent": _crescent,
}


def _plain(pen: Pen) -> None:
    """Leave the shape in its colour alone."""


def _striped(pen: Pen) -> None:
    for step in range(-1, 6):
        pen.polygon([(step / 5, 0), (step / 5 + 0.1, 0), (step / 5 + 0.3, 1), (step / 5 + 0.2, 1)], LIGHT)


def _dotted(pen: Pen) -> None:
    for row in range(5):
        for column in range(5):
            pen.ellipse(0.1 + 0.2 * column + 0.1 * (row % 2), 0.1 + 0.2 * row, 0.055, 0.055, LIGHT)


def _checked(pen: Pen) -> None:
    for row in range(6):
        for column in range(row % 2, 6, 2):
            pen.box(column / 6, row / 6, (column + 1) / 6, (row + 1) / 6, LIGHT)


TEXTURES: dict[str, Callable[[Pen], None]] = {
    "plain": _plain,
    "striped": _striped,
    "dotted": _dotted,
    "checked": _checked,
}

COMPOSITIONS = tuple(f"{colour} {texture} {shape}" for colour in COLOURS for texture in TEXTURES for shape in SHAPES)
"""All labels: colour, texture and shape."""


@dataclass(frozen=True)
class Shape:
    """A shape in a picture.

    Args:
        label: Colour, texture and shape.
        x: Where its middle is, from the left.
        y: The same, from the top.
        size: Its width.
        angle: How far it is turned, in radians.
    """

    label: str
    x: float
    y: float
    size: float
    angle: float


def composed_areas(seed: int, index: int) -> dict[str, float]:
    """Return the labels of a picture, each with the share of the picture that its largest shape takes.

    Examples:
        >>> sorted(composed_areas(0, 0)) == sorted(composed_areas(0, 0)), 1 <= len(composed_areas(0, 0)) <= 6
        (True, True)
    """
    areas: dict[str, float] = {}
    for shape in _arrange(seed, index):
        area = _filled(shape.label.split()[-1]) * shape.size**2
        areas[shape.label] = max(area, areas.get(shape.label, 0.0))
    return areas


def encode_composition(seed: int, index: int, *, size: int) -> bytes:
    """Return the picture with a number as a JPEG file.

    Examples:
        >>> Image.open(BytesIO(encode_composition(0, 3, size=64))).size
        (64, 64)
    """
    chance = Random(f"composition background {seed} {index}")
    light, dark = (tuple(chance.randint(low, low + 30) for _ in range(3)) for low in (205, 175))
    picture = Image.composite(
        Image.new("RGB", (size, size), light),
        Image.new("RGB", (size, size), dark),
        Image.linear_gradient("L").rotate(chance.choice((0, 90, 180, 270))).resize((size, size)),
    )
    for shape in _arrange(seed, index):
        _add(picture, shape)
    file = BytesIO()
    picture.save(file, "JPEG", quality=92, subsampling=0)
    return file.getvalue()


def _arrange(seed: int, index: int) -> list[Shape]:
    """Return the shapes of a picture; the same for the same seed and number, always."""
    chance = Random(f"composition {seed} {index}")
    cells = chance.sample(range(CELLS**2), chance.randint(FEWEST, MOST))
    return [_place(chance, cell) for cell in cells]


def _place(chance: Random, cell: int) -> Shape:
    size = chance.uniform(SMALLEST, LARGEST)
    room = (1 / CELLS - size) / 2
    x, y = ((place + 0.5) / CELLS + chance.uniform(-room, room) for place in (cell % CELLS, cell // CELLS))
    return Shape(chance.choice(COMPOSITIONS), x, y, size, chance.uniform(-TURN, TURN))


def _add(picture: Image.Image, shape: Shape) -> None:
    """Paint a shape: its texture, cut out by its outline."""
    colour, texture, outline = shape.label.split()
    side = math.ceil(1.5 * shape.size * picture.width)  # room for its turned corners
    canvas = (OVERSAMPLING * side, OVERSAMPLING * side)
    surface = Image.new("RGBA", canvas, (*COLOURS[colour], 255))
    mask = Image.new("RGBA", canvas)
    scale = OVERSAMPLING * shape.size * picture.width
    a, b = scale * math.cos(shape.angle), -scale * math.sin(shape.angle)
    middle = canvas[0] / 2
    transform = (a, b, middle - (a + b) / 2, -b, a, middle - (a - b) / 2)
    TEXTURES[texture](Pen(surface, transform))
    SHAPES[outline](Pen(mask, transform), COLOURS[colour])
    left, top = (round(place * picture.width - side / 2) for place in (shape.x, shape.y))
    picture.paste(surface.reduce(OVERSAMPLING).convert("RGB"), (left, top), mask.reduce(OVERSAMPLING).getchannel("A"))


@cache
def _filled(outline: str) -> float:
    """Return the share of its unit square that a shape covers."""
    canvas = Image.new("RGBA", (128, 128))
    SHAPES[outline](Pen(canvas, (128, 0, 0, 0, 128, 0)), LIGHT)
    return float((np.asarray(canvas.getchannel("A")) > 0).mean())
