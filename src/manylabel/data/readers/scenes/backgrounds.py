"""The backgrounds of demo scenes: gradients, noise and a few strokes, painted with Pillow alone."""

import math
from collections.abc import Callable
from random import Random

from PIL import Image, ImageChops, ImageDraw

from manylabel.data.readers.scenes.layout import SHORE
from manylabel.data.readers.scenes.pen import Colour, mix

__all__ = ["BACKGROUNDS"]

Cells = tuple[int, int]


def beach(chance: Random, size: int, horizon: float) -> Image.Image:
    """Paint sky, sea and sand."""
    picture = _sky(chance, size, horizon)
    sea = _surface(chance, size, (58, 150, 190), (120, 206, 210), cells=(5, 60), strength=0.35)
    picture.paste(sea, mask=_below(chance, size, horizon, 0))
    foam = _surface(chance, size, (236, 248, 250), (250, 252, 250), cells=(40, 40))
    picture.paste(foam, mask=_below(chance, size, horizon + SHORE - 0.012, 0.012))
    sand = _surface(chance, size, (238, 212, 160), (222, 186, 126), cells=(128, 128), strength=0.3)
    picture.paste(sand, mask=_below(chance, size, horizon + SHORE, 0.012))
    return picture


def park(chance: Random, size: int, horizon: float) -> Image.Image:
    """Paint sky, hills and a meadow."""
    picture = _sky(chance, size, horizon)
    hills = _surface(chance, size, (150, 196, 160), (110, 170, 124), cells=(24, 24))
    picture.paste(hills, mask=_below(chance, size, horizon - 0.07, 0.04))
    meadow = _surface(chance, size, (152, 200, 98), (92, 158, 76), cells=(90, 30), strength=0.35)
    picture.paste(meadow, mask=_below(chance, size, horizon, 0.015))
    draw = ImageDraw.Draw(picture)
    for _ in range(70):
        near = chance.random()
        x, y = chance.random() * size, (horizon + 0.03 + (0.97 - horizon) * near) * size
        tint = mix((112, 176, 82), (70, 136, 66), chance.random())
        draw.line([(x, y), (x + chance.uniform(-2, 2), y - size * (0.008 + 0.02 * near))], fill=tint)
    return picture


def street(chance: Random, size: int, horizon: float) -> Image.Image:
    """Paint sky, a far skyline, a pavement and a road."""
    picture = _sky(chance, size, horizon)
    draw = ImageDraw.Draw(picture)
    x = -chance.random() * 0.1
    while x < 1:
        width, height = chance.uniform(0.06, 0.15), chance.uniform(0.06, 0.24)
        tint = mix((186, 202, 222), (160, 178, 206), chance.random())
        draw.rectangle([x * size, (horizon - height) * size, (x + width) * size, horizon * size], fill=tint)
        x += width
    pavement = _surface(chance, size, (206, 200, 192), (190, 184, 178), cells=(80, 80))
    picture.paste(pavement, mask=_below(chance, size, horizon, 0))
    edge = horizon + (1 - horizon) * 0.4
    road = _surface(chance, size, (122, 124, 136), (98, 100, 114), cells=(128, 128), strength=0.3)
    picture.paste((232, 228, 220), (0, round((edge - 0.012) * size), size, round(edge * size)))
    picture.paste(road, mask=_below(chance, size, edge, 0))
    middle = edge + (1 - edge) * 0.5
    for dash in range(-1, 5):
        left = (dash + 0.2) / 4
        corners = [(left, middle), (left + 0.13, middle), (left + 0.12, middle + 0.018), (left - 0.02, middle + 0.018)]
        draw.polygon([(x * size, y * size) for x, y in corners], fill=(234, 230, 214))
    return picture


def table(chance: Random, size: int, horizon: float) -> Image.Image:
    """Paint a papered wall and a wooden table."""
    tints: tuple[Colour, ...] = ((226, 214, 196), (198, 216, 212), (214, 204, 222), (232, 208, 190))
    tint = chance.choice(tints)
    picture = _surface(chance, size, mix(tint, (255, 255, 255), 0.25), mix(tint, (90, 80, 90), 0.12), cells=(40, 40))
    draw = ImageDraw.Draw(picture)
    stripes, stripe = chance.choice((8, 12, 16)), mix(tint, (255, 255, 255), 0.35)
    for step in range(0, stripes, 2):
        draw.rectangle([step * size / stripes, 0, (step + 1) * size / stripes, size], fill=stripe)
    picture = ImageChops.multiply(picture, _surface(chance, size, (255, 255, 255), (214, 208, 206), cells=(60, 60)))
    wood: tuple[Colour, ...] = ((190, 134, 88), (160, 106, 72), (210, 166, 118))
    tone = chance.choice(wood)
    board = _surface(chance, size, mix(tone, (255, 240, 210), 0.25), mix(tone, (60, 30, 20), 0.2), (3, 90), 0.5)
    picture.paste(board, mask=_below(chance, size, horizon, 0))
    edge = round(horizon * size)
    picture.paste(mix(tone, (255, 255, 255), 0.45), (0, edge, size, edge + max(1, size // 90)))
    return picture


def night(chance: Random, size: int, horizon: float) -> Image.Image:
    """Paint a night sky over dark hills."""
    high = mix((20, 22, 56), (40, 24, 74), chance.random())
    low = mix((66, 74, 134), (116, 80, 136), chance.random())
    picture = _surface(chance, size, high, low, cells=(5, 8), strength=0.3, until=horizon)
    for drop, top, bottom in ((-0.09, (62, 72, 128), (54, 66, 116)), (0.0, (62, 92, 118), (34, 54, 82))):
        hills = _surface(chance, size, top, bottom, cells=(60, 30), strength=0.3)
        picture.paste(hills, mask=_below(chance, size, horizon + drop, 0.035))
    return picture


BACKGROUNDS: dict[str, Callable[[Random, int, float], Image.Image]] = {
    "beach": beach,
    "park": park,
    "street": street,
    "table": table,
    "night": night,
}


def _sky(chance: Random, size: int, horizon: float) -> Image.Image:
    """Paint a day sky, from noon blue to evening rose."""
    evening = chance.random() ** 3
    high = mix((104, 172, 228), (128, 134, 204), evening)
    low = mix((214, 236, 246), (252, 206, 170), evening)
    return _surface(chance, size, high, low, cells=(4, 7), strength=0.2, until=horizon)


def _surface(
    chance: Random,
    size: int,
    top: Colour,
    bottom: Colour,
    cells: Cells,
    strength: float = 0.18,
    until: float = 1.0,
) -> Image.Image:
    """Paint a gradient between two colours, mottled by noise of so many cells across and down."""
    ramp = Image.linear_gradient("L").resize((size, max(1, round(size * until))), Image.Resampling.BILINEAR)
    tones = Image.new("L", (size, size), 255)
    tones.paste(ramp)
    across, down = (min(size, count) for count in cells)
    noise = Image.frombytes("L", (across, down), chance.randbytes(across * down))
    noise = noise.resize((size, size), Image.Resampling.BICUBIC)
    picture = Image.new("RGB", (size, size), top)
    picture.paste(bottom, mask=Image.blend(tones, noise, strength))
    return picture


def _below(chance: Random, size: int, height: float, swing: float) -> Image.Image:
    """Return a mask of what lies below a gently waving line."""
    if not swing:
        mask = Image.new("L", (size, size))
        mask.paste(255, (0, round(height * size), size, size))
        return mask
    phase, waves = chance.uniform(0, 6.28), chance.uniform(0.7, 1.6)
    steps = [step / 24 for step in range(25)]
    line = [(x, height + swing * math.sin(phase + waves * 6.28 * x)) for x in steps]
    mask = Image.new("L", (2 * size, 2 * size))
    ImageDraw.Draw(mask).polygon([(2 * size * x, 2 * size * y) for x, y in [*line, (1, 1), (0, 1)]], fill=255)
    return mask.reduce(2)
