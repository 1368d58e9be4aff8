"""Images with their tags below them: drawn, on contact sheets, and as HTML for notebooks."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from manylabel.images import data_url
from manylabel.page import escape

NARROWEST = 240  # pixels; a narrower image gets margins, for the tags to fit
INK, PAPER, CHIP, STRONG = "#1b1f24", "#ffffff", "#e7ecf2", "#9cc3ee"
GAP = 8  # pixels between the images of a sheet


def draw_tags(image: Image.Image, tags: Sequence[tuple[str, float]]) -> Image.Image:
    """Draw tags on a bar below an image, each filled up to its score.

    Args:
        image: The image; not modified.
        tags: Names and scores in 0..1.

    Returns:
        A taller image; narrow ones are also widened.

    Examples:
        >>> draw_tags(Image.new("RGB", (320, 200)), [("cat", 0.98), ("sofa", 0.71)]).size
        (320, 233)
    """
    width = max(image.width, NARROWEST)
    size = max(13, width // 45)
    font, pad = _font(size), size // 2
    chips = [(_shorten(f"{name} {score:.2f}", font, width - 4 * pad), score) for name, score in tags]
    x, y, places = pad, pad, []
    for text, score in chips or [("no tags", 0.0)]:
        length = round(font.getlength(text)) + 2 * pad
        if x > pad and x + length > width - pad:
            x, y = pad, y + 2 * size
        places.append((x, y, length, text, score))
        x += length + pad
    drawn = Image.new("RGB", (width, image.height + y + round(1.6 * size) + pad), PAPER)
    drawn.paste(image, ((width - image.width) // 2, 0))
    pen = ImageDraw.Draw(drawn)
    for x, y, length, text, score in places:
        top, bottom = image.height + y, image.height + y + round(1.6 * size)
        pen.rounded_rectangle((x, top, x + length, bottom), pad // 2, CHIP)
        if score * length > pad:
            pen.rounded_rectangle((x, top, x + score * length, bottom), pad // 2, STRONG)
        pen.text((x + pad, (top + bottom) / 2), text, INK, font, anchor="lm")
    return drawn


def contact_sheet(images: Sequence[Image.Image], *, columns: int = 4) -> Image.Image:
    """Arrange images in rows, on white.

    Args:
        images: Images of any size.
        columns: Images per row.

    Examples:
        >>> contact_sheet([Image.new("RGB", (100, 80))] * 3, columns=2).size
        (224, 184)
    """
    rows = [images[start : start + columns] for start in range(0, len(images), columns)]
    cell = max((image.width for image in images), default=0) + GAP
    heights = [max(image.height for image in row) + GAP for row in rows]
    sheet = Image.new("RGB", (GAP + cell * min(columns, max(1, len(images))), GAP + sum(heights)), PAPER)
    for number, row in enumerate(rows):
        for column, image in enumerate(row):
            sheet.paste(image, (GAP + column * cell, GAP + sum(heights[:number])))
    return sheet


def figure_html(name: str, image: Image.Image | None, tags: Sequence[tuple[str, float]], *, error: str | None) -> str:
    """Return an image and its tags as HTML with inline styles, the only ones that notebooks keep.

    Args:
        name: Name of the image; only the last part of a path is visible.
        image: Thumbnail, if there is one.
        tags: Names and scores in 0..1.
        error: Reason why the image could not be read.

    Examples:
        >>> "&lt;b&gt; 0.90" in figure_html("a.jpg", None, [("<b>", 0.9)], error=None)
        True
    """
    img = "" if image is None else f'<img src="{data_url(image)}" alt="" style="max-width:100%;border-radius:4px">'
    chips = "".join(_CHIP.format(100 * score, escape(label), score) for label, score in tags)
    below = chips or ("no tags" if error is None else f"cannot be read: {escape(error)}")
    return _FIGURE.format(img, escape(name), escape(Path(name).name), below)


_FIGURE = (
    '<figure style="margin:0;width:200px;font-size:12px;overflow-wrap:anywhere">{}'
    '<figcaption><div title="{}" style="opacity:.7">{}</div>{}</figcaption></figure>'
)
_CHIP = (
    '<span style="display:inline-block;margin:2px 4px 0 0;padding:0 6px;border-radius:4px;background:'
    'linear-gradient(90deg,rgba(66,133,214,.45) {:.0f}%,rgba(128,128,128,.2) 0)">{} {:.2f}</span>'
)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return the font that ships with matplotlib, if installed; Pillow's own lacks Greek, Cyrillic and most accents."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return ImageFont.load_default(size)  # type: ignore[return-value] # always a FreeType font if a size is given
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _shorten(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """Cut the middle of a text that is wider than the image; its end is the score."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    name, _, score = text.rpartition(" ")
    while name and font.getlength(f"{name}... {score}") > width:
        name = name[: min(len(name) - 1, 200)]
    return f"{name}... {score}"
