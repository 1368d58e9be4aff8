"""Self-contained HTML pages: one file, no requests, light and dark, on paper and on a phone."""

from manylabel.page.figures import ACCENT, INK, figure, new_figure, write_drawing
from manylabel.page.page import (
    Cell,
    Fraction,
    Html,
    Page,
    Thumbnail,
    columns,
    heading,
    note,
    plural,
    section,
    some,
    table,
    text,
    thumbnails,
    tiles,
)

__all__ = [
    "ACCENT",
    "INK",
    "Cell",
    "Fraction",
    "Html",
    "Page",
    "Thumbnail",
    "columns",
    "figure",
    "heading",
    "new_figure",
    "note",
    "plural",
    "section",
    "some",
    "table",
    "text",
    "thumbnails",
    "tiles",
    "write_drawing",
]
