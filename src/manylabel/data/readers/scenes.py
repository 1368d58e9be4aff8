"""Demo scenes: synthetic images of simple things, with labels that are correct by construction.

Two label sets: 24 things that co-occur by theme, of all sizes, occluding one another; and 256 compositions of colour,
texture and shape for zero-shot learning ("red striped star").

Lengths are fractions of the image's width; an image is square. Letters in shape comments: N images, L labels.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from PIL import Image, ImageDraw
from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import check_choices
from manylabel.data.readers.table import write_table
from manylabel.data.sources import Files, LazyBytes
from manylabel.errors import ConfigError
from manylabel.storage import refuse_existing, replacing
from manylabel.targets import Targets
from manylabel.types import LabelSpace

Colour: TypeAlias = tuple[int, int, int]
LabelSet = Literal["things", "compositions"]

GRID = 128  # cells per side, to compute occlusion
HALF = 127  # of an opacity
MIN_VISIBLE = 0.3  # of an object, neither occluded nor outside the image, for its label to be present
VAL_EVERY = 5  # every fifth image is for validation


@dataclass(frozen=True)
class Thing:
    """A kind of object: the part of a scene where it belongs, its colours, and how it is drawn."""

    zone: Literal["sky", "ground"]
    colours: tuple[str, ...]
    drawing: str


@dataclass(frozen=True)
class Theme:
    """A kind of scene: the things at home in it, and the colours of sky and ground, each from top to bottom."""

    labels: tuple[str, ...]
    sky: tuple[Colour, Colour]
    ground: tuple[Colour, Colour]


@dataclass(frozen=True)
class Stock:
    """Content of ``scenes.yaml``, which explains it."""

    colours: dict[str, Colour]
    shapes: dict[str, str]
    things: dict[str, Thing]
    themes: dict[str, Theme]


STOCK = msgspec.yaml.decode(files(__package__).joinpath("scenes.yaml").read_bytes(), type=Stock)
COLOURS, SHAPES, THINGS, THEMES = STOCK.colours, STOCK.shapes, STOCK.things, STOCK.themes
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
    check_choices(labels=(labels, LabelSet))
    if n < 1:
        raise ConfigError(f"n must be at least 1, got {n}")
    if size < 32:
        raise ConfigError(f"size must be at least 32 pixels, got {size}; smaller objects cannot be recognised")
    if not 0 <= unknown < 1:
        raise ConfigError(f"unknown must be a fraction from 0 to below 1, got {unknown}")
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
    written = replace(dataset, images=Files(table.parent, names), splits={})
    return write_table(written, table, overwrite=overwrite, as_columns=True)


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
    return Placement(label, chance.choice(thing.colours), chance.random(), y, side, chance.uniform(-12, 12))


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
