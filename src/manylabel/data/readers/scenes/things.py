"""What people make, drawn on a unit square: each function takes a pen, the main colour and a style.

The outline depends on the style alone, never on the colour, so that it can be known before anything is drawn.
"""

from manylabel.data.readers.scenes.pen import Colour, Pen, arc, darker, lighter, mix, spokes

__all__ = [
    "ball",
    "balloon",
    "boat",
    "book",
    "car",
    "clock",
    "cup",
    "house",
    "kite",
    "lamp",
    "rocket",
    "traffic_light",
    "umbrella",
]

WHITE: Colour = (252, 250, 244)
INK: Colour = (43, 38, 56)
GLASS: Colour = (188, 222, 238)
WOOD: Colour = (158, 108, 72)
METAL: Colour = (150, 156, 170)


def ball(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a ball; styles: beach ball, football."""
    pen.ellipse(0.5, 0.5, 0.48, 0.48, WHITE)
    if style:
        pen.polygon(spokes(5, 0.17), INK)
        for x, y in spokes(5, 0.17):
            pen.line([(x, y), (0.5 + (x - 0.5) * 2, 0.5 + (y - 0.5) * 2)], 0.022, INK)
        for step in range(5):
            pen.polygon([*arc(0.5, 0.5, 0.48, 0.48, 72 * step - 106, 72 * step - 74), spokes(5, 0.34)[step]], INK)
        return
    for step in range(3):
        start = 120 * step - 20
        tint = (colour, (250, 196, 72), mix(colour, (60, 120, 210), 0.75))[step]
        pen.polygon([*arc(0.5, 0.5, 0.48, 0.48, start, start + 60), (0.44, 0.42)], tint)
    pen.ellipse(0.44, 0.42, 0.07, 0.07, WHITE)


def balloon(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a balloon; styles: toy balloon on a string, hot-air balloon."""
    if not style:
        pen.line([(0.5, 0.68), (0.47, 0.78), (0.53, 0.88), (0.5, 0.99)], 0.016, darker(colour, 0.5))
        pen.polygon([(0.5, 0.62), (0.56, 0.71), (0.44, 0.71)], darker(colour, 0.2))
        pen.ellipse(0.5, 0.34, 0.29, 0.34, colour)
        pen.ellipse(0.39, 0.21, 0.055, 0.11, lighter(colour, 0.6), turn=25)
        return
    for x in (0.42, 0.58):
        pen.line([(0.5 + (x - 0.5) * 1.5, 0.66), (x, 0.86)], 0.014, WOOD)
    pen.box(0.4, 0.84, 0.6, 0.99, WOOD, radius=0.03)
    for half, tint in ((0.4, colour), (0.25, WHITE), (0.1, colour)):
        upper = arc(0.5, 0.37, half, 0.36, 180, 360)
        pen.polygon(
            [*upper, (0.5 + half, 0.42), (0.5 + half * 0.3, 0.74), (0.5 - half * 0.3, 0.74), (0.5 - half, 0.42)], tint
        )


def boat(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a boat; styles: sailing boat, steamer."""
    if style:
        pen.box(0.3, 0.46, 0.74, 0.68, WHITE)
        pen.box(0.52, 0.22, 0.66, 0.5, mix(colour, (225, 85, 70), 0.7))
        pen.box(0.52, 0.22, 0.66, 0.29, INK)
        for x in (0.38, 0.52, 0.66):
            pen.ellipse(x, 0.57, 0.042, 0.042, GLASS)
    else:
        pen.line([(0.5, 0.04), (0.5, 0.72)], 0.03, WOOD)
        pen.polygon([(0.53, 0.06), (0.92, 0.6), (0.53, 0.6)], WHITE)
        pen.polygon([(0.47, 0.14), (0.47, 0.6), (0.16, 0.6)], lighter(colour, 0.45))
    pen.polygon([(0.03, 0.66), (0.97, 0.66), (0.82, 0.94), (0.18, 0.94)], colour)
    pen.polygon([(0.03, 0.66), (0.97, 0.66), (0.94, 0.72), (0.06, 0.72)], lighter(colour, 0.55))


def book(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a book; styles: closed, open."""
    if style:
        for side in (-1, 1):
            corners = ((0.0, 0.3), (0.47, 0.22), (0.49, 0.76), (0.0, 0.86))
            pen.polygon([(0.5 + side * x, y) for x, y in corners], colour)
            pages = ((0.0, 0.27), (0.2, 0.2), (0.44, 0.19), (0.45, 0.72), (0.2, 0.74), (0.0, 0.82))
            pen.polygon([(0.5 + side * x, y) for x, y in pages], WHITE if side < 0 else (236, 230, 218))
            for line in range(5):
                y = 0.31 + 0.085 * line
                pen.line([(0.5 + side * 0.08, y + 0.02), (0.5 + side * 0.38, y)], 0.014, METAL)
        pen.line([(0.5, 0.29), (0.5, 0.84)], 0.014, darker(colour))
        return
    pen.box(0.14, 0.02, 0.86, 0.98, darker(colour, 0.35), radius=0.04)
    pen.box(0.2, 0.86, 0.84, 0.95, WHITE)
    pen.box(0.14, 0.02, 0.86, 0.87, colour, radius=0.04)
    pen.box(0.14, 0.02, 0.25, 0.9, darker(colour, 0.2), radius=0.04)
    pen.box(0.36, 0.17, 0.76, 0.4, (246, 226, 178), radius=0.02)
    for y in (0.24, 0.32):
        pen.line([(0.42, y), (0.7, y)], 0.022, darker(colour, 0.3))


def car(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a car; styles: saloon, van."""
    if style:
        pen.polygon([(0.02, 0.24), (0.68, 0.22), (0.84, 0.45), (0.98, 0.5), (0.98, 0.72), (0.02, 0.72)], colour)
        windows = [(0.07, 0.29), (0.3, 0.29), (0.34, 0.28), (0.5, 0.28), (0.54, 0.28), (0.65, 0.28)]
        slants = [0.0, 0.0, 0.0, 0.0, 0.0, 0.11]
    else:
        pen.polygon([(0.16, 0.5), (0.28, 0.26), (0.64, 0.26), (0.8, 0.5)], darker(colour, 0.12))
        pen.box(0.02, 0.47, 0.98, 0.72, colour, radius=0.085)
        windows = [(0.25, 0.31), (0.44, 0.31), (0.48, 0.31), (0.62, 0.31)]
        slants = [-0.06, 0.0, 0.0, 0.1]
    for first in range(0, len(windows), 2):
        (left, top), (right, _) = windows[first], windows[first + 1]
        lower = [(right + slants[first + 1], 0.47), (left + slants[first], 0.47)]
        pen.polygon([(left, top), (right, top), *lower], GLASS)
    pen.box(0.02, 0.6, 0.98, 0.635, lighter(colour, 0.3))
    pen.ellipse(0.94, 0.55, 0.035, 0.035, (255, 232, 150))
    pen.ellipse(0.05, 0.55, 0.028, 0.035, (226, 70, 62))
    for x in (0.24, 0.76):
        pen.ellipse(x, 0.72, 0.125, 0.125, INK)
        pen.ellipse(x, 0.72, 0.058, 0.058, METAL)


def clock(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a clock; styles: wall clock, alarm clock."""
    x, y, radius = (0.5, 0.57, 0.36) if style else (0.5, 0.5, 0.48)
    if style:
        for side in (-1, 1):
            pen.line([(0.5 + side * 0.16, 0.8), (0.5 + side * 0.3, 0.97)], 0.06, darker(colour, 0.4))
            pen.ellipse(0.5 + side * 0.25, 0.19, 0.17, 0.12, mix(colour, METAL, 0.5), turn=side * 38)
        pen.line([(0.5, 0.25), (0.5, 0.08)], 0.05, METAL)
    pen.ellipse(x, y, radius, radius, colour)
    pen.ellipse(x, y, radius * 0.83, radius * 0.83, WHITE)
    outer, inner = (spokes(12, radius * share, x=x, y=y) for share in (0.75, 0.64))
    for hour in range(12):
        pen.line([outer[hour], inner[hour]], 0.02 if hour % 3 else 0.034, INK)
    pen.line([(x, y), (x - radius * 0.36, y - radius * 0.22)], 0.045, INK)
    pen.line([(x, y), (x + radius * 0.3, y - radius * 0.52)], 0.032, INK)
    pen.ellipse(x, y, 0.035, 0.035, (226, 84, 70))


def cup(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a cup; styles: mug, cup on a saucer."""
    if style:
        pen.ellipse(0.46, 0.84, 0.46, 0.1, lighter(colour, 0.3))
        pen.ellipse(0.46, 0.82, 0.34, 0.06, darker(colour, 0.15))
    top, bottom = (0.3, 0.82) if style else (0.12, 0.94)
    middle = (top + bottom) / 2 - 0.04
    pen.line(arc(0.76, middle, 0.17, 0.17, -100, 100), 0.075, darker(colour, 0.15))
    taper = 0.12 if style else 0.03
    base = arc(0.46, bottom - 0.06, 0.36 - taper, 0.08, 0, 180)
    pen.polygon([(0.1, top), (0.82, top), *base], colour)
    halves = [0.36 - taper * drop / (bottom - top - 0.06) for drop in (0.18, 0.28)]
    upper, lower = (arc(0.46, top + drop, half, 0.08, 0, 180) for drop, half in zip((0.18, 0.28), halves, strict=True))
    pen.polygon([*upper, *reversed(lower)], lighter(colour, 0.45))
    pen.ellipse(0.46, top, 0.36, 0.085, lighter(colour, 0.5))
    pen.ellipse(0.46, top + 0.012, 0.31, 0.062, (104, 66, 48))


def house(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a house; styles: cottage, two storeys."""
    roof, wall, eaves = mix(colour, (168, 66, 54), 0.75), lighter(colour, 0.45), 0.34 if style else 0.46
    pen.box(0.68, 0.08, 0.79, 0.4, (150, 90, 78))
    pen.box(0.12, eaves - 0.02, 0.88, 0.98, wall)
    pen.polygon(
        [(0.02, eaves), (0.5, 0.02), (0.98, eaves)]
        if not style
        else [(0.04, 0.36), (0.22, 0.08), (0.78, 0.08), (0.96, 0.36)],
        roof,
    )
    pen.box(0.42, 0.68, 0.6, 0.98, darker(WOOD, 0.1))
    pen.ellipse(0.565, 0.84, 0.018, 0.018, (250, 214, 110))
    rows = (0.42, 0.7) if style else (0.58,)
    for y in rows:
        for x in (0.18, 0.42, 0.66) if y < 0.5 else (0.18, 0.66):
            pen.box(x, y, x + 0.17, y + 0.17, WHITE)
            pen.box(x + 0.02, y + 0.02, x + 0.15, y + 0.15, GLASS)
            pen.line([(x + 0.085, y + 0.02), (x + 0.085, y + 0.15)], 0.014, WHITE)


def kite(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a kite with its tail; styles: the tail to the left, to the right."""
    side = 1 if style else -1
    tail = [(0.5, 0.66), (0.5 + side * 0.09, 0.76), (0.5 - side * 0.03, 0.86), (0.5 + side * 0.12, 0.97)]
    pen.line(tail, 0.018, INK)
    for x, y in tail[1:]:
        pen.polygon(
            [(x - 0.075, y - 0.045), (x + 0.075, y + 0.045), (x + 0.075, y - 0.045), (x - 0.075, y + 0.045)],
            (246, 190, 70),
        )
    top, right, bottom, left = (0.5, 0.01), (0.83, 0.27), (0.5, 0.68), (0.17, 0.27)
    centre, second = (0.5, 0.27), mix(colour, (250, 200, 80), 0.7)
    for corners, tint in (
        ((top, right), colour),
        ((right, bottom), second),
        ((bottom, left), colour),
        ((left, top), second),
    ):
        pen.polygon([centre, *corners], tint)
    pen.line([top, bottom], 0.014, darker(colour, 0.4))
    pen.line([left, right], 0.014, darker(colour, 0.4))


def lamp(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a table lamp; styles: slender stem, round foot."""
    pen.box(0.475, 0.4, 0.525, 0.92, METAL)
    if style:
        pen.ellipse(0.5, 0.72, 0.17, 0.2, darker(colour, 0.2))
        pen.ellipse(0.44, 0.66, 0.04, 0.08, lighter(colour, 0.3), turn=15)
    pen.ellipse(0.5, 0.93, 0.24, 0.055, darker(colour, 0.35))
    pen.polygon([(0.32, 0.04), (0.68, 0.04), (0.88, 0.5), (0.12, 0.5)], lighter(colour, 0.15))
    pen.polygon([(0.4, 0.04), (0.58, 0.04), (0.66, 0.5), (0.32, 0.5)], lighter(colour, 0.55))
    pen.box(0.12, 0.47, 0.88, 0.51, darker(colour, 0.15))


def rocket(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a rocket; styles: one window, two."""
    pen.polygon([(0.42, 0.78), (0.58, 0.78), (0.5, 1.0)], (250, 160, 50))
    pen.polygon([(0.45, 0.78), (0.55, 0.78), (0.5, 0.92)], (255, 226, 120))
    for side in (-1, 1):
        pen.polygon([(0.5 + side * x, y) for x, y in ((0.12, 0.5), (0.33, 0.7), (0.33, 0.88), (0.13, 0.76))], colour)
    hull = [(0.5, 0.0), (0.6, 0.12), (0.665, 0.28), (0.68, 0.46), (0.65, 0.66), (0.6, 0.8)]
    pen.polygon([*hull, *[(1 - x, y) for x, y in reversed(hull)]], (236, 238, 244))
    pen.polygon([(0.5, 0.0), (0.6, 0.12), (0.645, 0.22), (0.355, 0.22), (0.4, 0.12)], colour)
    pen.polygon([(0.385, 0.74), (0.615, 0.74), (0.6, 0.8), (0.4, 0.8)], darker(colour, 0.2))
    for y in (0.36, 0.57) if style else (0.42,):
        pen.ellipse(0.5, y, 0.095, 0.095, METAL)
        pen.ellipse(0.5, y, 0.068, 0.068, (96, 176, 220))


def traffic_light(pen: Pen, colour: Colour, style: int) -> None:
    """Draw a traffic light; styles: red shines, green shines."""
    pen.box(0.46, 0.6, 0.54, 0.98, METAL)
    pen.box(0.36, 0.94, 0.64, 0.99, darker(METAL, 0.3), radius=0.02)
    pen.box(0.31, 0.01, 0.69, 0.7, colour, radius=0.07)
    for position, lit in enumerate(((236, 66, 58), (250, 190, 60), (74, 196, 104))):
        y, shines = 0.14 + 0.215 * position, position == (2 if style else 0)
        pen.ellipse(0.5, y, 0.105, 0.095, darker(colour, 0.5))
        pen.ellipse(0.5, y, 0.09, 0.082, lit if shines else mix(lit, INK, 0.45))
        if shines:
            pen.ellipse(0.47, y - 0.025, 0.032, 0.026, lighter(lit, 0.6))


def umbrella(pen: Pen, colour: Colour, style: int) -> None:
    """Draw an umbrella; styles: with a crook, straight as on a beach."""
    pen.line([(0.5, 0.1), (0.5, 0.98 if style else 0.86)], 0.035, WOOD)
    if not style:
        pen.line(arc(0.58, 0.86, 0.08, 0.1, 180, 0), 0.035, WOOD)
    pen.line([(0.5, 0.02), (0.5, 0.1)], 0.03, WOOD)
    for half, tint in ((0.48, colour), (0.3, WHITE), (0.12, colour)):
        pen.polygon(arc(0.5, 0.52, half, 0.45, 180, 360), tint)
    shade = darker(colour, 0.25)
    for centre, half in ((0.11, 0.09), (0.29, 0.09), (0.5, 0.12), (0.71, 0.09), (0.89, 0.09)):
        pen.polygon(arc(centre, 0.52, half, 0.05, 180, 360), shade)
