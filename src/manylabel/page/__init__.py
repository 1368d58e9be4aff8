"""Self-contained HTML pages: one file, no requests, light and dark, on paper and on a phone."""

from manylabel.page.figure import ACCENT, INK, Figure, new_figure, write_drawing
from manylabel.page.page import Page
from manylabel.page.parts import Columns, Heading, Note, Part, Picture, Pictures, Section, Text, Tile, Tiles
from manylabel.page.table import Cell, Share, Table

__all__ = [
    "ACCENT",
    "INK",
    "Cell",
    "Columns",
    "Figure",
    "Heading",
    "Note",
    "Page",
    "Part",
    "Picture",
    "Pictures",
    "Section",
    "Share",
    "Table",
    "Text",
    "Tile",
    "Tiles",
    "new_figure",
    "write_drawing",
]
