"""What grows, lives or shines, drawn on a unit square: each function takes a pen, the main colour and a style.

The outline depends on the style alone, never on the colour, so that it can be known before anything is drawn.
"""

from manylabel.data.readers.scenes.pen import Colour, Pen, arc, darker, lighter, mix, spokes

__all__ = ["apple", "bird", "cat", "cloud", "fish", "flower", "moon", "mushroom", "star", "sun", "tree"]

WHITE: Colour = (252, 250, 244)
INK: Colour = (43, 38, 56)
LEAF: Colour = (86, 158, 84)
BARK: Colour = (122, 84, 62)


def apple(pen: Pen, colour: Colour, style: int) -> None:
    """Draw an apple; styles: with one leaf, with two."""
    pen.line([(0.5, 0.3), (0.52, 0.16), (0.58, 0.05)], 0.06, BARK)
    pen.ellipse(0.7, 0.12, 0.16, 0.075, LEAF, turn=-20)
    if style:
        pen.ellipse(0.36, 0.14, 0.14, 0.065, darker(LEAF, 0.15), turn=25)
    for x in (0.33, 0.67):
        pen.ellipse(x, 0.57, 0.29, 0.36, colour)
    pen.polygon([(0.4, 0.9), (0.6, 0.9), (0.7, 0.5), (0.3, 0.5)], colour)
    pen.ellipse(0.5, 0.275, 0.13, 0.045, darker(colour))
    pen.ellipse(0.24, 0.45, 0.06, 0.12, lighter(colour, 0.5), turn=20)


def bird(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a bird; styles: standing, flying."""
    wing = darker(colour, 0.25)
    if style:
        pen.polygon([(0.52, 0.5), (0.4, 0.02), (0.3, 0.0), (0.26, 0.3), (0.3, 0.52)], darker(colour, 0.4))
    else:
        for x in (0.47, 0.58):
            pen.line([(x, 0.75), (x, 0.96), (x + 0.07, 0.97)], 0.025, (224, 140, 60))
    pen.polygon([(0.3, 0.5), (0.0, 0.5), (0.02, 0.62), (0.3, 0.68)], wing)
    pen.ellipse(0.49, 0.58, 0.28, 0.21, colour, turn=-8)
    pen.ellipse(0.55, 0.66, 0.2, 0.12, lighter(colour, 0.55), turn=-8)
    pen.polygon([(0.86, 0.32), (1.0, 0.4), (0.86, 0.44)], (242, 160, 60))
    pen.ellipse(0.74, 0.37, 0.165, 0.16, colour)
    pen.ellipse(0.79, 0.34, 0.04, 0.04, WHITE)
    pen.ellipse(0.8, 0.345, 0.024, 0.024, INK)
    if style:
        pen.polygon([(0.6, 0.56), (0.66, 0.12), (0.6, 0.04), (0.46, 0.22), (0.36, 0.54), (0.46, 0.62)], wing)
    else:
        pen.polygon([*arc(0.42, 0.52, 0.2, 0.15, -60, 90), (0.16, 0.7), (0.24, 0.5)], wing)


def cat(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a cat; styles: its face, sitting."""
    if style:
        pen.line([(0.66, 0.9), (0.86, 0.9), (0.92, 0.76), (0.88, 0.6)], 0.08, darker(colour, 0.15))
        pen.ellipse(0.48, 0.78, 0.25, 0.22, colour)
        pen.ellipse(0.48, 0.62, 0.19, 0.3, colour)
        pen.ellipse(0.48, 0.7, 0.1, 0.17, lighter(colour, 0.5))
        for x in (0.37, 0.59):
            pen.ellipse(x, 0.95, 0.1, 0.05, lighter(colour, 0.3))
    x, y, size = (0.48, 0.29, 0.56) if style else (0.5, 0.56, 1.0)
    for side in (-1, 1):
        ear = [(x + side * size * u, y + size * v) for u, v in ((0.42, -0.08), (0.38, -0.52), (0.08, -0.28))]
        inner = [(x + side * size * u, y + size * v) for u, v in ((0.36, -0.16), (0.34, -0.4), (0.16, -0.27))]
        pen.polygon(ear, colour)
        pen.polygon(inner, (240, 170, 165))
    pen.ellipse(x, y, 0.44 * size, 0.37 * size, colour)
    pen.ellipse(x, y + 0.19 * size, 0.2 * size, 0.14 * size, lighter(colour, 0.6))
    for side in (-1, 1):
        pen.ellipse(x + side * 0.18 * size, y - 0.05 * size, 0.085 * size, 0.095 * size, (190, 214, 90))
        pen.ellipse(x + side * 0.18 * size, y - 0.05 * size, 0.032 * size, 0.085 * size, INK)
        for drop in (0.12, 0.2):
            start = (x + side * 0.16 * size, y + (drop + 0.02) * size)
            pen.line([start, (x + side * 0.42 * size, y + drop * size)], 0.014 * size, darker(colour, 0.6))
    nose = [(x + size * u, y + size * v) for u, v in ((-0.055, 0.09), (0.055, 0.09), (0.0, 0.16))]
    pen.polygon(nose, (226, 120, 120))


def cloud(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a cloud; styles: with its crown to the left, in the middle."""
    puffs = ((0.2, 0.58, 0.2), (0.42, 0.42, 0.25), (0.66, 0.48, 0.2), (0.84, 0.62, 0.16))
    if style:
        puffs = ((0.15, 0.63, 0.15), (0.34, 0.52, 0.19), (0.56, 0.4, 0.24), (0.8, 0.58, 0.2))
    shadow = mix(colour, (150, 170, 205), 0.35)
    for x, y, radius in puffs:
        pen.ellipse(x, y, radius, radius, shadow)
    pen.box(0.08, 0.6, 0.94, 0.78, shadow, radius=0.085)
    for x, y, radius in puffs:
        pen.ellipse(x - 0.012, y - 0.03, radius * 0.92, radius * 0.9, colour)
    pen.box(0.09, 0.57, 0.92, 0.72, colour, radius=0.07)


def fish(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a fish; styles: slender, tall with stripes."""
    height = 0.3 if style else 0.21
    fin = darker(colour, 0.25)
    pen.polygon([(0.3, 0.5), (0.02, 0.24), (0.09, 0.5), (0.02, 0.76)], fin)
    pen.polygon([(0.4, 0.5 - height * 0.8), (0.52, 0.3 - height * 0.8), (0.72, 0.5 - height * 0.8)], fin)
    pen.polygon([(0.46, 0.5 + height * 0.8), (0.48, 0.64 + height * 0.6), (0.64, 0.5 + height * 0.8)], fin)
    pen.ellipse(0.59, 0.5, 0.39, height, colour)
    if style:
        for x, half in ((0.42, 0.25), (0.58, 0.285)):
            pen.polygon([(x, 0.5 - half), (x + 0.07, 0.5 - half), (x + 0.07, 0.5 + half), (x, 0.5 + half)], WHITE)
    else:
        pen.polygon(arc(0.59, 0.5, 0.36, height * 0.9, 10, 170), lighter(colour, 0.45))
    pen.polygon([(0.52, 0.5), (0.4, 0.62), (0.44, 0.5), (0.42, 0.42)], fin)
    pen.ellipse(0.82, 0.44, 0.055, 0.055, WHITE)
    pen.ellipse(0.83, 0.44, 0.03, 0.03, INK)
    pen.line([(0.965, 0.53), (0.9, 0.56)], 0.018, INK)


def flower(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a flower; styles: daisy with eight petals, five round petals, tulip."""
    pen.line([(0.5, 0.4), (0.52, 0.7), (0.5, 0.98)], 0.05, LEAF)
    pen.ellipse(0.66, 0.78, 0.17, 0.07, LEAF, turn=-35)
    pen.ellipse(0.35, 0.84, 0.16, 0.06, darker(LEAF, 0.15), turn=35)
    if style == 2:
        pen.polygon([(0.28, 0.06), (0.5, 0.3), (0.72, 0.06), (0.74, 0.3), *arc(0.5, 0.32, 0.24, 0.2, 0, 180)], colour)
        pen.polygon(
            [(0.5, 0.02), (0.64, 0.26), *arc(0.5, 0.34, 0.14, 0.18, 0, 180), (0.36, 0.26)], lighter(colour, 0.2)
        )
        return
    count, long, wide = ((8, 0.16, 0.075), (5, 0.145, 0.12))[style]
    for turn, (x, y) in enumerate(spokes(count, 0.17, x=0.5, y=0.32)):
        tint = lighter(colour, 0.12) if turn % 2 else colour
        pen.ellipse(x, y, long, wide, tint, turn=-90 + 360 * turn / count)
    pen.ellipse(0.5, 0.32, 0.105, 0.105, (244, 190, 66))
    pen.ellipse(0.48, 0.3, 0.055, 0.055, (252, 214, 110))


def moon(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a moon; styles: crescent, full."""
    if style:
        pen.ellipse(0.5, 0.5, 0.48, 0.48, colour)
        for x, y, radius in ((0.34, 0.34, 0.11), (0.66, 0.44, 0.08), (0.44, 0.7, 0.09), (0.68, 0.72, 0.05)):
            pen.ellipse(x, y, radius, radius, mix(colour, (150, 140, 130), 0.35))
        return
    inner = arc(0.63, 0.5, 0.37, 0.4, -118, -242)
    pen.polygon([*arc(0.5, 0.5, 0.48, 0.48, 63, 297), *inner[:1], *inner], colour)
    pen.ellipse(0.16, 0.56, 0.05, 0.05, mix(colour, (150, 140, 130), 0.3))
    pen.ellipse(0.25, 0.72, 0.035, 0.035, mix(colour, (150, 140, 130), 0.3))


def mushroom(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a mushroom; styles: round cap, pointed cap."""
    pen.polygon(
        [(0.4, 0.5), (0.6, 0.5), (0.66, 0.92), *arc(0.5, 0.92, 0.16, 0.06, 0, 180), (0.34, 0.92)], (244, 230, 208)
    )
    pen.ellipse(0.5, 0.54, 0.44, 0.09, darker((236, 216, 190), 0.25))
    if style:
        pen.polygon([(0.05, 0.54), (0.28, 0.22), (0.5, 0.02), (0.72, 0.22), (0.95, 0.54), (0.5, 0.58)], colour)
    else:
        pen.polygon([*arc(0.5, 0.54, 0.46, 0.48, 180, 360), *arc(0.5, 0.54, 0.46, 0.05, 0, 180)], colour)
    for x, y, radius in ((0.5, 0.25, 0.085), (0.27, 0.42, 0.065), (0.72, 0.42, 0.07), (0.5, 0.47, 0.04)):
        pen.ellipse(x, y, radius, radius * 0.9, WHITE)


def star(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a star with five points; styles: slender, stout."""
    tips, notches = spokes(5, 0.5, y=0.53), spokes(5, 0.26 if style else 0.2, start=-54, y=0.53)
    for tip in range(5):
        pen.polygon([(0.5, 0.53), notches[tip - 1], tips[tip]], lighter(colour, 0.25))
        pen.polygon([(0.5, 0.53), tips[tip], notches[tip]], colour)


def sun(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a sun; styles: pointed rays, free rays."""
    if style:
        for inner, outer in zip(spokes(10, 0.36), spokes(10, 0.47), strict=True):
            pen.line([inner, outer], 0.055, colour)
    else:
        tips, notches = spokes(12, 0.5), spokes(12, 0.36, start=-75)
        rays = [point for pair in zip(tips, notches, strict=True) for point in pair]
        pen.polygon(rays, mix(colour, (244, 130, 50), 0.45))
    pen.ellipse(0.5, 0.5, 0.29, 0.29, colour)
    pen.ellipse(0.47, 0.47, 0.21, 0.21, lighter(colour, 0.3))


def tree(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a tree; styles: round crown, fir."""
    pen.polygon([(0.45, 0.5), (0.55, 0.5), (0.59, 0.99), (0.41, 0.99)], BARK)
    if style:
        for level, (top, bottom, half) in enumerate(((0.42, 0.86, 0.33), (0.22, 0.62, 0.27), (0.01, 0.38, 0.2))):
            tint = mix(darker(colour, 0.3), colour, level / 2)
            pen.polygon([(0.5, top), (0.5 + half, bottom), (0.5, bottom + 0.04), (0.5 - half, bottom)], tint)
        return
    pen.line([(0.5, 0.72), (0.66, 0.55)], 0.04, BARK)
    for x, y, radius in ((0.3, 0.45, 0.19), (0.7, 0.45, 0.19), (0.5, 0.48, 0.19)):
        pen.ellipse(x, y, radius, radius * 0.9, darker(colour, 0.22))
    for x, y, radius in ((0.36, 0.28, 0.2), (0.62, 0.26, 0.2), (0.5, 0.2, 0.19), (0.5, 0.38, 0.2)):
        pen.ellipse(x, y, radius, radius * 0.95, colour)
    for x, y in ((0.36, 0.22), (0.56, 0.14), (0.66, 0.28), (0.48, 0.36)):
        pen.ellipse(x, y, 0.06, 0.045, lighter(colour, 0.25))
