"""What stands where in a demo scene.

Lengths are shares of the picture's width; the picture is square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from manylabel.data.readers.scenes.catalogue import KINDS, THEMES, Kind, reach
from manylabel.data.readers.scenes.pen import Colour, Transform

__all__ = ["SHORE", "Box", "Placement", "Scene", "arrange"]

SMALLEST, LARGEST = 0.05, 0.6  # of the picture's width
OUTSIDERS = 0.12  # the share of objects that come from any theme
REPEATS = 0.2  # the share of objects that may be of a kind that is there already
SHORE = 0.2  # how far below the horizon the sea ends

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Placement:
    """An object in a picture.

    Args:
        label: What it is.
        style: Which of the styles of its kind.
        colour: Its main colour.
        x: Where the middle of its unit square is, from the left.
        y: The same, from the top.
        pose: The matrix ``(a, b, d, e)`` that turns, stretches, mirrors and scales the unit square.
    """

    label: str
    style: int
    colour: Colour
    x: float
    y: float
    pose: tuple[float, float, float, float]

    @cached_property
    def box(self) -> Box:
        """The smallest upright rectangle around it."""
        left, top, right, bottom = _extent(self.label, self.style, self.pose)
        return left + self.x, top + self.y, right + self.x, bottom + self.y

    def transform(self, scale: float, left: float = 0, top: float = 0) -> Transform:
        """Return what takes unit coordinates to pixels, `scale` pixels a width, from a corner on."""
        a, b, d, e = (scale * value for value in self.pose)
        return a, b, scale * self.x - (a + b) / 2 - left, d, e, scale * self.y - (d + e) / 2 - top


@dataclass(frozen=True)
class Scene:
    """All that is in a picture.

    Args:
        theme: Which theme it follows.
        horizon: Where the ground begins, from the top.
        placements: The objects, the farthest first: later ones hide earlier ones.
    """

    theme: str
    horizon: float
    placements: tuple[Placement, ...]


def arrange(seed: int, index: int) -> Scene:
    """Return the scene with a number; the same for the same seed and number, always.

    Examples:
        >>> arrange(0, 7) == arrange(0, 7), arrange(0, 7) == arrange(1, 7)
        (True, False)
    """
    chance = Random(f"scene {seed} {index}")
    theme = chance.choice(list(THEMES))
    horizon = chance.uniform(0.4, 0.54)
    placements: list[Placement] = []
    for _ in range(chance.randint(3, 8)):
        label = _choose(chance, theme, {other.label for other in placements})
        placements.append(_place(chance, label, theme, horizon, [other.box for other in placements]))
    placements.sort(key=_depth)
    return Scene(theme, horizon, tuple(placements))


def _choose(chance: Random, theme: str, seen: set[str]) -> str:
    """Choose what to show next: mostly of the theme, mostly something that is not there yet."""
    labels = list(KINDS) if chance.random() < OUTSIDERS else list(THEMES[theme].labels)
    fresh = [label for label in labels if label not in seen]
    return chance.choice(labels if not fresh or chance.random() < REPEATS else fresh)


def _place(chance: Random, label: str, theme: str, horizon: float, others: Sequence[Box]) -> Placement:
    """Choose size, pose, colour and place of an object; of a few places, the one that hides the others least."""
    kind = KINDS[label]
    style = chance.randrange(kind.styles)
    pose = _pose(chance, label, style, kind)
    colour = _vary(chance, chance.choice(kind.colours))
    extent = _extent(label, style, pose)
    spots = [_spot(chance, kind, theme, horizon, extent) for _ in range(3)]
    choices = [Placement(label, style, colour, x, y, pose) for x, y in spots]
    return min(choices, key=lambda choice: sum(_overlap(choice.box, other) for other in others))


def _pose(chance: Random, label: str, style: int, kind: Kind) -> tuple[float, float, float, float]:
    """Turn, stretch and mirror an object, and scale it so that its width and height lie within the limits."""
    angle = math.radians(chance.uniform(-kind.turn, kind.turn))
    wide = math.sqrt(chance.uniform(0.85, 1.18))
    side = chance.choice((-1, 1))
    cosine, sine = math.cos(angle), math.sin(angle)
    pose = (side * wide * cosine, -sine / wide, side * wide * sine, cosine / wide)
    left, top, right, bottom = _extent(label, style, pose)
    smallest, largest = SMALLEST / (right - left), LARGEST / max(right - left, bottom - top)
    scale = smallest * (largest / smallest) ** (chance.random() ** 0.65)  # mostly middling, seldom tiny
    a, b, d, e = (scale * value for value in pose)
    return a, b, d, e


def _spot(chance: Random, kind: Kind, theme: str, horizon: float, extent: Box) -> tuple[float, float]:
    """Choose the middle of an object so that it stands or floats where its kind does, mostly inside the picture."""
    left, top, right, bottom = extent
    width, height = right - left, bottom - top
    x = chance.uniform(-0.12 * width, 1 - 0.88 * width) - left
    if kind.zone == "sky":
        lowest = max(0.02, horizon + 0.02 - height)
        return x, chance.uniform(-0.1 * height, lowest) - top
    if kind.zone == "water" and theme == "beach":
        return x, horizon + SHORE * chance.uniform(0.15, 0.95) + 0.15 * height - bottom
    near = min(1.0, 0.1 + max(width, height) / LARGEST * 0.75 + chance.uniform(0, 0.3))  # the larger, the nearer
    return x, horizon + (1 - horizon) * near - bottom


def _vary(chance: Random, colour: Colour) -> Colour:
    """Return a colour a little off the given one."""
    bright = chance.uniform(0.92, 1.06)
    red, green, blue = (min(255, round(value * bright * chance.uniform(0.97, 1.03))) for value in colour)
    return red, green, blue


def _extent(label: str, style: int, pose: tuple[float, float, float, float]) -> Box:
    """Return the rectangle around a posed object, relative to the middle of its unit square."""
    ends = np.array(pose).reshape(2, 2) @ reach(label, style)  # [2, P]
    (left, top), (right, bottom) = ends.min(axis=1).tolist(), ends.max(axis=1).tolist()
    return left, top, right, bottom


def _overlap(first: Box, second: Box) -> float:
    """Return the area that two rectangles share."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)


def _depth(placement: Placement) -> tuple[bool, float]:
    """Sort what is in the sky behind the rest, and the rest by where it stands."""
    return KINDS[placement.label].zone != "sky", placement.box[3]
