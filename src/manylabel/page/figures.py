"""Matplotlib figures: inline SVG that follows the light or dark mode of a page, or PNG files."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manylabel.page.page import Html, escape
from manylabel.storage import replacing

if TYPE_CHECKING:  # matplotlib takes a second to import, and most commands draw nothing
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

__all__ = ["ACCENT", "INK", "figure", "new_figure", "write_drawing"]

# Placeholders, replaced by colours of the style sheet.
INK = "#010203"
ACCENT = "#2a78c1"
_FAINT = "#040506"
_IN_THE_PAGE = {INK: "currentColor", ACCENT: "var(--accent)", _FAINT: "var(--line)"}

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": _FAINT,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.color": _FAINT,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
}


def new_figure(*, width: float = 6.4, height: float = 3.0) -> tuple[Drawing, Axes]:
    """Return an empty drawing in the style of the page, and its axes.

    Text is never parsed as a formula; a logarithmic axis therefore needs a plain formatter.

    Args:
        width: Width in inches.
        height: Height in inches.

    Examples:
        >>> drawing, axes = new_figure()
        >>> _ = axes.bar([1, 2, 3], [5, 3, 1], color=ACCENT)
        >>> "var(--accent)" in figure(drawing, "Labels per image")
        True
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure as Drawing

    with mpl.rc_context(_STYLE):
        drawing = Drawing(figsize=(width, height), layout="constrained")
        return drawing, drawing.add_subplot()


def figure(drawing: Drawing, caption: str) -> Html:
    """Return a drawing as inline SVG, with a caption that screen readers read, too.

    Args:
        drawing: A figure of `new_figure`.
        caption: Text below it.
    """
    words = escape(caption)
    svg = _svg(drawing, salt=caption).replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    return Html(f'<figure class="drawing">{svg}<figcaption>{words}</figcaption></figure>')


def write_drawing(drawing: Drawing, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a drawing as a PNG file.

    Args:
        drawing: A matplotlib figure.
        path: The file.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.

    Raises:
        OutputExistsError: The file exists and `overwrite` is false.

    Examples:
        >>> import tempfile
        >>> write_drawing(new_figure()[0], Path(tempfile.mkdtemp()) / "empty.png").name
        'empty.png'
    """
    with replacing(path, overwrite=overwrite) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawing.savefig(temporary, format="png", dpi=130, facecolor="white")
    return Path(path)


def _svg(drawing: Drawing, *, salt: str) -> str:
    """Return a drawing as SVG with text as text, and the colours of the page."""
    import matplotlib as mpl
    from matplotlib.text import Text

    encoded = io.StringIO()
    # The salt makes ids reproducible, and unique on a page.
    settings = _STYLE | {"svg.fonttype": "none", "svg.hashsalt": salt}
    for text in drawing.findobj(Text):
        text.set_parse_math(False)  # such as a label "$5 bill$"
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The browser renders the text, with fonts that have the letters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        _wrap_titles(drawing)
        drawing.savefig(encoded, format="svg", transparent=True, metadata={"Date": None})
    svg = encoded.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg ") :], flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # unused, and the same in every drawing
    for stand_in, colour in _IN_THE_PAGE.items():
        svg = svg.replace(stand_in, colour)
    return svg


def _wrap_titles(drawing: Drawing) -> None:
    """Wrap titles of x axes that would be cut off at the edges of the drawing."""
    drawing.draw_without_rendering()  # computes the layout
    edge = drawing.bbox
    for axes in drawing.axes:
        box = axes.get_window_extent()
        centre = (box.x0 + box.x1) / 2
        room = 2 * min(centre - edge.x0, edge.x1 - centre)
        width = axes.xaxis.label.get_window_extent().width
        words = axes.get_xlabel()
        if width > room:
            axes.set_xlabel(textwrap.fill(words, max(10, int(0.95 * len(words) * room / width))))
