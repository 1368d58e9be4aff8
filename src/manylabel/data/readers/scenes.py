"""Demo scenes: synthetic images of simple things, with labels that are correct by construction.

Two label sets: 24 things that co-occur by theme, of all sizes, occluding one another; and 256 compositions of colour,
texture and shape for zero-shot learning ("red striped star").

Lengths are fractions of the image's width; an image is square. Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from PIL import Image, ImageDraw
from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import check_choices
from manylabel.data.sources import LazyBytes
from manylabel.errors import ConfigError
from manylabel.storage import refuse_existing, replacing
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = ["scenes", "write_scenes"]

Colour: TypeAlias = tuple[int, int, int]
LabelSet = Literal["things", "compositions"]

GRID = 128  # cells per side, to compute occlusion
HALF = 127  # of an opacity
MIN_VISIBLE = 0.3  # of an object, neither occluded nor outside the image, for its label to be present
VAL_EVERY = 5  # every fifth image is for validation

COLOURS: dict[str, Colour] = {
    "red": (214, 46, 46),
    "orange": (244, 140, 36),
    "yellow": (246, 212, 54),
    "green": (52, 152, 74),
    "blue": (42, 96, 206),
    "purple": (130, 62, 172),
    "brown": (130, 84, 50),
    "black": (34, 34, 40),
    "white": (250, 248, 240),
    "grey": (136, 140, 156),
    "glass": (196, 226, 242),
}

# Drawings are steps on a square of 100 x 100, each a letter, numbers and a colour: e(llipse) and b(ox) with left, top,
# right and bottom, p(olygon) with its corners. The colour * is the thing's own, - erases.
SHAPES = {
    "circle": "e 2 2 98 98 *",
    "square": "b 6 6 94 94 *",
    "triangle": "p 50 4 98 92 2 92 *",
    "star": "p 50 0 62 35 98 35 69 57 79 92 50 71 21 92 31 57 2 35 38 35 *",
    "heart": "e 2 6 52 58 *; e 48 6 98 58 *; p 5 44 50 30 95 44 50 97 *",
    "cross": "b 34 3 66 97 *; b 3 34 97 66 *",
    "diamond": "p 50 0 86 50 50 100 14 50 *",
    "crescent": "e 2 2 98 98 *; e 34 10 114 90 -",
}
TEXTURES = {
    "plain": "",
    "striped": "; ".join(f"p {x} 0 {x + 10} 0 {x + 30} 100 {x + 20} 100 white" for x in range(-20, 100, 20)),
    "dotted": "; ".join(
        f"e {x} {y} {x + 11} {y + 11} white" for y in range(4, 100, 20) for x in range(4 + y // 2 % 20, 100, 20)
    ),
    "checked": "; ".join(
        f"b {x} {y} {x + 16} {y + 16} white" for y in range(0, 100, 17) for x in range(y % 2 * 17, 100, 34)
    ),
}
COMPOSED = tuple(COLOURS)[:8]
COMPOSITIONS = tuple(f"{colour} {texture} {shape}" for colour in COMPOSED for texture in TEXTURES for shape in SHAPES)


class Thing(NamedTuple):
    """A kind of object: the part of a scene where it belongs, its colours, and how it is drawn."""

    zone: Literal["sky", "ground"]
    colours: str
    drawing: str


_THINGS = """
apple: ground: red green yellow: e 6 22 94 98 *; b 47 4 53 30 brown; e 52 4 82 20 green
ball: ground: red blue purple: e 2 2 98 98 *; b 2 42 98 58 white; e 36 36 64 64 *
balloon: sky: red blue green orange: e 14 2 86 80 *; p 50 74 40 86 60 86 *; b 49 86 51 100 black
bird: sky: blue red orange: e 20 35 80 75 *; e 64 20 92 48 *; p 90 32 100 36 90 40 yellow; p 26 50 2 34 6 66 *;
  p 36 46 62 46 46 4 *; e 76 28 82 34 black
boat: ground: blue red orange: p 2 66 98 66 82 96 18 96 *; b 48 6 52 66 brown; p 54 8 88 58 54 58 white
book: ground: red green blue purple: b 12 4 88 96 *; b 12 4 24 96 black; b 34 20 78 40 white
car: ground: red blue yellow green: b 2 46 98 78 *; p 16 48 30 22 68 22 84 48 *; p 24 46 34 28 48 28 48 46 glass;
  p 52 46 52 28 65 28 75 46 glass; e 14 64 40 92 black; e 60 64 86 92 black
cat: ground: orange grey brown: e 24 44 80 98 *; e 16 14 64 58 *; p 18 30 20 2 36 18 *; p 44 18 60 2 62 30 *;
  e 28 28 35 37 black; e 45 28 52 37 black; p 76 92 98 60 90 56 70 80 *
clock: ground: red blue brown: e 2 2 98 98 *; e 12 12 88 88 white; b 47 24 53 52 black; b 48 47 72 53 black
cloud: sky: white: e 2 38 46 84 *; e 22 16 68 74 *; e 52 32 98 82 *; b 22 60 78 84 *
cup: ground: red blue green orange: e 58 28 98 72 *; e 68 38 88 62 -; p 6 12 78 12 70 94 14 94 *; e 6 4 78 22 white
fish: ground: orange blue purple: e 20 22 98 78 *; p 32 50 2 22 2 78 *; e 76 40 84 48 black; p 54 24 70 4 74 28 *
flower: ground: red purple orange white: b 47 50 53 100 green; e 35 4 65 34 *; e 60 22 90 52 *; e 50 50 80 80 *;
  e 20 50 50 80 *; e 10 22 40 52 *; e 37 28 63 54 yellow
house: ground: white orange blue: b 12 44 88 98 *; p 2 46 50 4 98 46 red; b 42 66 60 98 brown; b 20 56 36 72 glass;
  b 66 56 82 72 glass
kite: sky: red green purple orange: p 50 2 82 32 50 74 18 32 *; p 50 2 82 32 50 32 white; p 50 74 18 32 50 32 white;
  b 49 74 51 100 black
lamp: ground: yellow orange: p 32 4 68 4 90 46 10 46 *; b 46 46 54 90 grey; b 26 88 74 98 grey
moon: sky: yellow white: e 4 4 96 96 *; e 34 0 116 82 -
mushroom: ground: red brown: p 40 50 60 50 66 98 34 98 white; e 4 6 96 90 *; b 0 56 100 100 -;
  p 40 56 60 56 66 98 34 98 white; e 24 22 40 36 white; e 58 18 76 34 white
rocket: sky: red blue orange: p 24 92 34 52 50 66 *; p 76 92 66 52 50 66 *; p 40 80 60 80 50 100 yellow;
  e 32 2 68 104 white; b 24 82 76 100 -; p 40 82 60 82 50 98 yellow; e 40 28 60 48 *
star: sky: yellow: p 50 0 62 35 98 35 69 57 79 92 50 71 21 92 31 57 2 35 38 35 *
sun: sky: yellow orange: p 50 0 57 20 43 20 *; p 50 100 57 80 43 80 *; p 0 50 20 57 20 43 *; p 100 50 80 57 80 43 *;
  p 15 15 34 26 26 34 *; p 85 85 66 74 74 66 *; p 85 15 66 26 74 34 *; p 15 85 34 74 26 66 *; e 20 20 80 80 *
traffic light: ground: black: b 30 2 70 70 *; b 46 70 54 98 grey; e 40 6 60 26 red; e 40 27 60 47 yellow;
  e 40 48 60 68 green
tree: ground: green orange: b 43 60 57 100 brown; e 8 30 92 76 *; e 20 2 80 56 *
umbrella: ground: red blue orange purple: b 48 44 52 98 brown; e 2 6 98 96 *; b 0 52 100 100 -; b 48 44 52 98 brown;
  p 50 6 34 52 66 52 white
"""
THINGS: dict[str, Thing] = {
    name: Thing(zone, colours, drawing)  # type: ignore[arg-type] # the table has no other zones
    for name, zone, colours, drawing in (
        map(str.strip, entry.split(":")) for entry in re.split(r"\n(?! )", _THINGS.strip())
    )
}


class Theme(NamedTuple):
    """A kind of scene: the things at home in it, and the colours of sky and ground, each from top to bottom."""

    labels: tuple[str, ...]
    sky: tuple[Colour, Colour]
    ground: tuple[Colour, Colour]


_DAY: tuple[Colour, Colour] = ((104, 172, 228), (214, 236, 246))
THEMES = {
    "beach": Theme(("sun", "umbrella", "boat", "ball", "fish", "cloud"), _DAY, ((92, 178, 200), (238, 212, 160))),
    "park": Theme(
        ("tree", "flower", "mushroom", "bird", "kite", "balloon", "cloud"), _DAY, ((150, 196, 110), (92, 158, 76))
    ),
    "street": Theme(
        ("house", "car", "traffic light", "tree", "cat", "cloud"), _DAY, ((206, 200, 192), (110, 112, 124))
    ),
    "table": Theme(
        ("cup", "book", "clock", "apple", "lamp", "cat"),
        ((232, 220, 202), (214, 204, 222)),
        ((200, 150, 104), (160, 106, 72)),
    ),
    "night": Theme(
        ("moon", "star", "rocket", "house", "tree"), ((20, 22, 56), (96, 84, 140)), ((62, 92, 118), (34, 54, 82))
    ),
}


class Placement(NamedTuple):
    """An object in an image: its label and colour, the middle and the side of its square, and its angle in degrees."""

    label: str
    colour: str
    x: float
    y: float
    side: float
    angle: float


def scenes(
    n: int = 200,
    *,
    split: Literal["train", "val"] | None = None,
    seed: int = 0,
    size: int = 256,
    unknown: float = 0.0,
    labels: LabelSet = "things",
) -> ImageDataset:
    """Generate synthetic images of several objects each, with labels that are correct by construction.

    Each scene of things has a theme (beach, park, street, table, night), which makes labels co-occur. Objects are 6 to
    60 % as wide as the image and occlude one another. Image i of a seed is the same for any number of images.

    Args:
        n: Number of images.
        split: Every fifth image is in ``val``, the others are in ``train`` (default: both).
        seed: Random seed.
        size: Width and height in pixels.
        unknown: Fraction of all entries, present or absent, to make unknown.
        labels: ``things`` (24), or ``compositions`` (256) of colour, texture and shape: 2 to 6 shapes, side by side.

    Returns:
        The images, as JPEG files drawn on access; `areas` holds the fraction of the image that a label's largest object
        visibly covers. A label is present if at least 30 % of one of its objects is visible.

    Raises:
        ConfigError: A number is out of range.

    Examples:
        >>> dataset = scenes(10, seed=3)
        >>> len(dataset), len(dataset.labels), len(dataset.split("val"))
        (10, 24, 2)
        >>> values, known = dataset.targets.dense([0])
        >>> [label for label, value in zip(dataset.labels, values[0]) if value]
        ['house', 'rocket', 'star']
    """
    _check(n=n, size=size, unknown=unknown, labels=labels)
    names = COMPOSITIONS if labels == "compositions" else tuple(THINGS)
    areas = np.zeros((n, len(names)), dtype=np.float32)  # [N, L]
    for index in range(n):
        for label, area in present_areas(_arrange(seed, index, labels)[1]).items():
            areas[index, names.index(label)] = area
    chances = (Random(f"unknown {seed} {index}") for index in range(n))
    blank = np.array([[chance.random() < unknown for _ in names] for chance in chances])  # [N, L]
    areas[blank] = 0
    validation = np.arange(n) % VAL_EVERY == VAL_EVERY - 1
    dataset = ImageDataset(
        LazyBytes(
            [f"scene-{index:05}.jpg" for index in range(n)],
            load=partial(_encode, seed=seed, size=size, labels=labels),
            identity=f"{labels} of manylabel {version('manylabel')}, seed={seed}, size={size}",
        ),
        Targets(csr_array(areas > 0), unknown=csr_array(blank) if unknown else None),
        LabelSpace(names),
        name="scenes" if labels == "things" else labels,
        splits={"train": np.flatnonzero(~validation), "val": np.flatnonzero(validation)},
        areas=csr_array(areas),
    )
    return dataset if split is None else dataset.split(split)


def write_scenes(
    folder: str | Path, n: int = 200, *, seed: int = 0, size: int = 256, unknown: float = 0.0, overwrite: bool = False
) -> Path:
    """Write demo scenes as JPEG files under ``images/`` and their labels as ``labels.csv``.

    The table has a column ``image`` and one column per label: 1 present, 0 absent, blank unknown.

    Args:
        folder: Output folder, created if missing.
        n: Number of images.
        seed: Random seed.
        size: Width and height in pixels.
        unknown: Fraction of all entries to make unknown.
        overwrite: Whether to replace existing files.

    Returns:
        The path of the table.

    Raises:
        OutputExistsError: A file exists and `overwrite` is false.

    Examples:
        >>> from tempfile import mkdtemp
        >>> table = write_scenes(mkdtemp(), 2, size=64)
        >>> table.name, sorted(path.name for path in (table.parent / "images").iterdir())
        ('labels.csv', ['scene-00000.jpg', 'scene-00001.jpg'])
    """
    table = Path(folder) / "labels.csv"
    refuse_existing(table, overwrite=overwrite)  # before any image is drawn
    dataset = scenes(n, seed=seed, size=size, unknown=unknown)
    names = [f"images/{dataset.images.name(index)}" for index in range(n)]
    for index, name in enumerate(names):
        with replacing(table.parent / name, overwrite=overwrite) as temporary:
            temporary.write_bytes(_encode(index, seed=seed, size=size, labels="things"))
    values, known = dataset.targets.dense()
    columns = np.where(known, values, np.nan).T
    frame = pl.DataFrame({"image": names} | dict(zip(dataset.labels, columns, strict=True)))
    with replacing(table, overwrite=overwrite) as temporary:
        frame.with_columns(pl.exclude("image").fill_nan(None).cast(pl.Int8)).write_csv(temporary)
    return table


def present_areas(placements: list[Placement], *, min_visible: float = MIN_VISIBLE) -> dict[str, float]:
    """Return the labels that count as present, each with the visible fraction of its largest object.

    Examples:
        >>> ball, book = Placement("ball", "red", 0.5, 0.5, 0.2, 0), Placement("book", "red", 0.5, 0.5, 0.8, 0)
        >>> sorted(present_areas([ball, book])), sorted(present_areas([book, ball]))
        (['book'], ['ball', 'book'])
    """
    taken = np.zeros((GRID, GRID), dtype=bool)
    areas: dict[str, float] = {}
    for placement in reversed(placements):  # the nearest first
        stamp, corner = _turn(_outline(placement.label), placement, GRID)
        mask = Image.new("L", (GRID, GRID))
        mask.paste(stamp, corner)
        inside = np.asarray(mask) > HALF
        seen = np.count_nonzero(inside & ~taken)
        taken |= inside
        if seen and seen >= min_visible * np.count_nonzero(np.asarray(stamp) > HALF):
            areas[placement.label] = max(seen / GRID**2, areas.get(placement.label, 0.0))
    return areas


def _arrange(seed: int, index: int, labels: LabelSet) -> tuple[Theme | None, list[Placement]]:
    """Return the theme, if there is one, and the objects of an image, the farthest first."""
    chance = Random(f"{labels} {seed} {index}")
    if labels == "compositions":  # 3 x 3 cells, each with at most one shape: nothing is hidden
        cells = chance.sample(range(9), chance.randint(2, 6))
        return None, [_in_cell(chance, chance.choice(COMPOSITIONS), cell % 3, cell // 3) for cell in cells]
    theme = THEMES[chance.choice(list(THEMES))]
    chosen: list[str] = []
    for _ in range(chance.randint(3, 8)):
        pool = list(THINGS) if chance.random() < 0.08 else list(theme.labels)  # an occasional outsider
        fresh = [label for label in pool if label not in chosen]
        chosen.append(chance.choice(pool if not fresh or chance.random() < 0.2 else fresh))
    placed = [_place(chance, label) for label in chosen]
    return theme, sorted(placed, key=lambda each: (THINGS[each.label].zone == "ground", each.y + each.side / 2))


def _in_cell(chance: Random, label: str, column: int, row: int) -> Placement:
    side = chance.uniform(0.18, 0.3)
    x, y = ((cell + 0.5) / 3 + chance.uniform(side - 1 / 3, 1 / 3 - side) / 2 for cell in (column, row))
    return Placement(label, label.split()[0], x, y, side, chance.uniform(-15, 15))


def _place(chance: Random, label: str) -> Placement:
    thing = THINGS[label]
    side = 0.06 + 0.54 * chance.random() ** 1.7  # small ones are more frequent
    low, high = (0.05, 0.45) if thing.zone == "sky" else (0.5, 1.0)  # of the middle, or of the foot
    y = chance.uniform(low, high) - (0 if thing.zone == "sky" else side / 2)
    return Placement(label, chance.choice(thing.colours.split()), chance.random(), y, side, chance.uniform(-12, 12))


def _encode(index: int, *, seed: int, size: int, labels: LabelSet) -> bytes:
    """Draw the image of a given number as a JPEG file."""
    theme, placements = _arrange(seed, index, labels)
    image = _background(Random(f"background {labels} {seed} {index}"), theme, size)
    for placement in placements:
        drawn = _draw(placement.label, placement.colour, max(2, round(2 * placement.side * size)))
        stamp, corner = _turn(drawn, placement, size)
        image.paste(stamp, corner, stamp)
    file = BytesIO()
    image.save(file, "JPEG", quality=92, subsampling=0)
    return file.getvalue()


def _turn(square: Image.Image, placement: Placement, size: int) -> tuple[Image.Image, tuple[int, int]]:
    """Return an object as it appears in an image of `size` pixels, and its upper left corner."""
    side = max(1, round(placement.side * size))
    small = square.resize((side, side), Image.Resampling.BOX)
    stamp = small.rotate(placement.angle, Image.Resampling.BICUBIC, expand=True)
    return stamp, (round(placement.x * size - stamp.width / 2), round(placement.y * size - stamp.height / 2))


def _background(chance: Random, theme: Theme | None, size: int) -> Image.Image:
    """Paint a gradient of pale greys, or of sky and ground, with coarse noise."""
    horizon = round(size * chance.uniform(0.45, 0.55))
    if theme is None:
        light, dark = (tuple(chance.randint(low, low + 30) for _ in range(3)) for low in (205, 175))
        image = _gradient((light, dark), size, size).rotate(chance.choice((0, 90, 180)))
    else:
        image = _gradient(theme.ground, size, size)
        image.paste(_gradient(theme.sky, size, horizon))
    noise = Image.frombytes("RGB", (12, 12), chance.randbytes(432)).resize((size, size), Image.Resampling.BICUBIC)
    return Image.blend(image, noise, 0.04 if theme is None else 0.06)


def _gradient(colours: tuple[tuple[int, ...], ...], width: int, height: int) -> Image.Image:
    top, bottom = (Image.new("RGB", (width, height), colour) for colour in colours)
    return Image.composite(bottom, top, Image.linear_gradient("L").resize((width, height)))


def _draw(label: str, colour: str, side: int) -> Image.Image:
    """Draw a thing, or a shape with its texture, on a transparent square."""
    if label in THINGS:
        return _steps(THINGS[label].drawing, colour, Image.new("RGBA", (side, side)))
    _, texture, shape = label.split()
    surface = _steps(TEXTURES[texture], colour, Image.new("RGBA", (side, side), (*COLOURS[colour], 255)))
    surface.putalpha(_steps(SHAPES[shape], colour, Image.new("RGBA", (side, side))).getchannel("A"))
    return surface


def _steps(drawing: str, colour: str, image: Image.Image) -> Image.Image:
    draw, scale = ImageDraw.Draw(image), image.width / 100
    for kind, *numbers, fill in (step.split() for step in drawing.split(";") if step.strip()):
        corners = [scale * float(number) for number in numbers]
        tint = (0, 0, 0, 0) if fill == "-" else COLOURS[colour if fill == "*" else fill]
        {"e": draw.ellipse, "b": draw.rectangle, "p": draw.polygon}[kind](corners, fill=tint)
    return image


@cache
def _outline(label: str) -> Image.Image:
    """Return the mask of an object in its square."""
    colour = "red" if label in THINGS else label.split()[0]
    return _draw(label, colour, 2 * GRID).getchannel("A")


def _check(*, n: int, size: int, unknown: float, labels: str) -> None:
    check_choices(labels=(labels, LabelSet))
    if n < 1:
        raise ConfigError(f"n must be at least 1 image, got {n}")
    if size < 32:
        raise ConfigError(
            f"size must be at least 32 pixels, got {size}; objects in smaller images cannot be recognised"
        )
    if not 0 <= unknown < 1:
        raise ConfigError(f"unknown must be a fraction from 0 to below 1, got {unknown}")
