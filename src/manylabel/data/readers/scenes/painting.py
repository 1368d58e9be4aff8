"""Painting a demo scene: the background, then each object with soft edges, light and shadow."""

import math
from functools import cache
from io import BytesIO
from random import Random

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from manylabel.data.readers.scenes.backgrounds import BACKGROUNDS
from manylabel.data.readers.scenes.catalogue import KINDS, THEMES
from manylabel.data.readers.scenes.layout import Placement, Scene, arrange
from manylabel.data.readers.scenes.pen import Colour, Pen, lighter

__all__ = ["encode", "paint", "stamp"]

OVERSAMPLING = 3  # objects are drawn so many times larger and shrunk: smooth edges
QUALITY = 92  # of the JPEG: no blocks show, a 256-pixel picture takes about 20 kB


def paint(scene: Scene, *, size: int, chance: Random) -> Image.Image:
    """Paint a scene.

    Args:
        scene: What is in it.
        size: Width and height in pixels.
        chance: Decides what the layout leaves open: clouds of noise, blades of grass.

    Returns:
        The picture, in RGB.

    Examples:
        >>> paint(arrange(0, 0), size=64, chance=Random(0)).size
        (64, 64)
    """
    picture = BACKGROUNDS[scene.theme](chance, size, scene.horizon)
    for placement in scene.placements:
        _add(picture, placement, THEMES[scene.theme].light)
    return picture


def encode(seed: int, index: int, *, size: int) -> bytes:
    """Return the scene with a number as a JPEG file.

    Examples:
        >>> Image.open(BytesIO(encode(0, 3, size=64))).size
        (64, 64)
    """
    picture = paint(arrange(seed, index), size=size, chance=Random(f"background {seed} {index}"))
    file = BytesIO()
    picture.save(file, "JPEG", quality=QUALITY, subsampling=0)
    return file.getvalue()


def stamp(placement: Placement, *, size: int, light: Colour = (255, 255, 255)) -> tuple[Image.Image, int, int]:
    """Draw one object on a transparent patch.

    Args:
        placement: The object.
        size: Width and height in pixels of the picture that it goes into.
        light: What its colours are multiplied with.

    Returns:
        The patch, in RGBA, and where in the picture its left and its top are.

    Examples:
        >>> patch, left, top = stamp(Placement("ball", 0, (255, 0, 0), 0.5, 0.5, (0.5, 0, 0, 0.5)), size=100)
        >>> patch.size, left, top
        ((50, 50), 25, 25)
    """
    left, top, right, bottom = (size * edge for edge in placement.box)
    x, y = math.floor(left), math.floor(top)
    width, height = math.ceil(right) - x, math.ceil(bottom) - y
    canvas = Image.new("RGBA", (OVERSAMPLING * width, OVERSAMPLING * height))
    pen = Pen(canvas, placement.transform(OVERSAMPLING * size, OVERSAMPLING * x, OVERSAMPLING * y))
    KINDS[placement.label].draw(pen, placement.colour, placement.style)
    drawn = canvas.reduce(OVERSAMPLING)
    shaded = ImageChops.multiply(drawn.convert("RGB"), _light(light).resize(drawn.size, Image.Resampling.BILINEAR))
    shaded.putalpha(drawn.getchannel("A"))
    return shaded, x, y


@cache
def _light(tint: Colour) -> Image.Image:
    """Return light that falls from the upper left, to be stretched over an object."""
    ramp = Image.linear_gradient("L").resize((32, 32))
    slope = Image.blend(ramp, ramp.transpose(Image.Transpose.ROTATE_90), 0.35)
    return Image.merge("RGB", [slope.point([round(c * (1 - 0.2 * v / 255)) for v in range(256)]) for c in tint])


def _add(picture: Image.Image, placement: Placement, light: Colour) -> None:
    """Paint one object into a picture, over its shadow or in its glow."""
    kind, size = KINDS[placement.label], picture.width
    patch, x, y = stamp(placement, size=size, light=(255, 255, 255) if kind.glows else light)
    long = max(patch.size)
    if kind.glows:
        _soften(picture, patch, x, y, blur=0.14 * long, strength=0.55, tint=lighter(placement.colour, 0.4))
    elif kind.zone == "ground":
        _ground_shadow(picture, x, y + patch.height, patch.width)
    else:
        drop = max(1, round(0.03 * long))
        _soften(picture, patch, x + drop, y + drop, blur=0.03 * long, strength=0.22, tint=(30, 34, 70))
    picture.paste(patch, (x, y), patch)


def _soften(
    picture: Image.Image, patch: Image.Image, x: int, y: int, *, blur: float, strength: float, tint: Colour
) -> None:
    """Paint the blurred outline of a patch: a shadow when the tint is dark, a glow when it is light."""
    margin = math.ceil(2 * blur)
    mask = Image.new("L", (patch.width + 2 * margin, patch.height + 2 * margin))
    mask.paste(round(255 * strength), (margin, margin), patch)
    mask = mask.filter(ImageFilter.BoxBlur(blur)).filter(ImageFilter.BoxBlur(blur))  # twice is nearly Gaussian
    picture.paste(tint, (x - margin, y - margin), mask)


def _ground_shadow(picture: Image.Image, x: int, y: int, width: int) -> None:
    """Paint a soft dark pool on the ground below an object that stands."""
    half, margin = max(1, round(0.05 * width)), max(2, round(0.06 * width))
    mask = Image.new("L", (width + 2 * margin, 2 * half + 2 * margin))
    ImageDraw.Draw(mask).ellipse([margin * 1.5, margin, width + margin * 0.5, margin + 2 * half], fill=96)
    mask = mask.filter(ImageFilter.BoxBlur(margin / 2))
    picture.paste((24, 22, 40), (x - margin // 2, y - half - margin - 1), mask)
