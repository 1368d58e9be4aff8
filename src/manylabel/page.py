"""Self-contained HTML pages: one file, no requests, light and dark, on paper and on a phone.

Each part of a page is a function that returns HTML with all text escaped: headings, notes, tables, images, and
matplotlib figures as inline SVG.
"""

from __future__ import annotations

import base64
import html
import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType

from PIL import Image

from manylabel.errors import ConfigError
from manylabel.storage import replacing, write_text

if TYPE_CHECKING:  # matplotlib takes a second to import, and most commands draw nothing
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Html = NewType("Html", str)
"""A part of a page: HTML, all text escaped."""

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

_LONG = 100  # rows of a table that can be folded away


def escape(text: object) -> str:
    """Escape text for HTML and its attributes.

    Examples:
        >>> escape('<a> & "b"')
        '&lt;a&gt; &amp; &quot;b&quot;'
    """
    # File names that are not UTF-8 have lone surrogates, which cannot be encoded.
    return html.escape(str(text).encode("utf-8", "replace").decode("utf-8"))


def plural(count: int, noun: str) -> str:
    """Write a count and its noun.

    Examples:
        >>> plural(1, "image"), plural(1200, "image")
        ('1 image', '1,200 images')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(names: Sequence[str], *, at_most: int = 12) -> str:
    """Write the first few names.

    Examples:
        >>> some(["a", "b", "c"], at_most=2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - at_most:,} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def heading(words: str, *, level: Literal[2, 3] = 2) -> Html:
    """Return a heading.

    Examples:
        >>> heading("Cats & dogs")
        '<h2>Cats &amp; dogs</h2>'
    """
    return Html(f"<h{level}>{escape(words)}</h{level}>")


def text(words: str) -> Html:
    """Return a paragraph.

    Examples:
        >>> text("1 < 2")
        '<p>1 &lt; 2</p>'
    """
    return Html(f"<p>{escape(words)}</p>")


def note(words: str, kind: Literal["note", "good", "warning", "problem"] = "note") -> Html:
    """Return a highlighted remark; its kind is shown as a word and a colour.

    Examples:
        >>> note("All is well.", "good")
        '<p class="note good"><b>Good</b> All is well.</p>'
    """
    return Html(f'<p class="note {kind}"><b>{kind.capitalize()}</b> {escape(words)}</p>')


def tile(count: int, noun: str, remark: str) -> tuple[str, str, str]:
    """Return a key figure of `tiles` that is a count.

    Examples:
        >>> tile(1, "label", "of 20")
        ('1', 'label', 'of 20')
    """
    value, _, name = plural(count, noun).partition(" ")
    return value, name, remark


def tiles(figures: Iterable[tuple[str, str, str]]) -> Html:
    """Return key figures side by side, each a value, its name and a remark.

    Examples:
        >>> tiles([("20", "labels", "")])
        '<div class="tiles"><div><b>20</b><span>labels</span><small></small></div></div>'
    """
    shown = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(remark)}</small></div>"
        for value, name, remark in figures
    )
    return Html(f'<div class="tiles">{shown}</div>')


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail with a caption.

    Args:
        jpeg: Encoded thumbnail; empty if there is none.
        caption: Text below it.
    """

    jpeg: bytes
    caption: str

    @classmethod
    def of(cls, image: Image.Image, caption: str, *, size: tuple[int, int] = (224, 112)) -> Thumbnail:
        """Make the thumbnail of a decoded image.

        Args:
            image: The image.
            caption: Text below it.
            size: Largest width and height in pixels.

        Examples:
            >>> Thumbnail.of(Image.new("RGB", (640, 480)), "a.jpg").html()[:43]
            '<figure><img src="data:image/jpeg;base64,/9'
        """
        small = image.convert("RGB")
        small.thumbnail(size)
        encoded = io.BytesIO()
        small.save(encoded, "JPEG", quality=72, optimize=True)
        return cls(encoded.getvalue(), caption)

    def html(self, *, style: str = "") -> Html:
        """Return the thumbnail as HTML, with inline CSS for use outside a page."""
        source = f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"
        image = f'<img src="{source}" alt="">' if self.jpeg else '<span class="none">no image</span>'
        opening = f'<figure style="{style}">' if style else "<figure>"
        return Html(f"{opening}{image}<figcaption>{escape(self.caption)}</figcaption></figure>")


def thumbnails(images: Iterable[Thumbnail], *, title: str = "") -> Html:
    """Return thumbnails side by side, with a title above them.

    Examples:
        >>> thumbnails([Thumbnail(b"", "gone.jpg")], title="Cats").count("figcaption")
        2
    """
    head = f"<h4>{escape(title)}</h4>" if title else ""
    return Html(f'<div class="images">{head}<div>{"".join(each.html() for each in images)}</div></div>')


def columns(*parts: Html) -> Html:
    """Return parts side by side, as many as fit.

    Examples:
        >>> columns(text("left"), text("right"))
        '<div class="columns"><p>left</p><p>right</p></div>'
    """
    return Html(f'<div class="columns">{"".join(parts)}</div>')


def section(title: str, *parts: Html, is_open: bool = False) -> Html:
    """Return parts that can be folded away under a title.

    Examples:
        >>> section("More", text("Yes."))
        '<details><summary>More</summary><p>Yes.</p></details>'
    """
    body = "\n".join(parts)
    return Html(f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{body}</details>")


@dataclass(frozen=True)
class Fraction:
    """A fraction, shown as per cent with a bar behind it."""

    value: float


Cell = str | int | float | Fraction | None


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, caption: str = "") -> Html:
    """Return a table that is sorted by clicking a column head, or with Tab and Enter.

    Args:
        columns: The heads.
        rows: The cells: text, numbers, fractions, or None for an empty cell.
        caption: Text above the table.

    Raises:
        ConfigError: A row has more or fewer cells than there are columns.

    Examples:
        >>> '<td class="number" data-value="1200">1,200</td>' in table(["label", "images"], [["cat", 1200]])
        True
    """
    rows = list(rows)
    for position, row in enumerate(rows):
        if len(row) != len(columns):
            wanted = f"{len(columns)} cells ({', '.join(columns)})"
            raise ConfigError(f"each row must have {wanted}, got {len(row)} in row {position}")
    heads = "".join(map(_head, columns, zip(*rows, strict=True) if rows else columns))
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    # The frame scrolls sideways on a phone; tabindex lets the keyboard scroll it, too.
    frame = Html(
        f'<div class="frame" tabindex="0"><table>{title}<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )
    return section(f"{len(rows):,} rows", frame, is_open=True) if len(rows) > _LONG else frame


def _head(name: str, cells: Sequence[Cell]) -> str:
    """Return the head of a column; a button, for keyboard access."""
    is_text = any(isinstance(cell, str) for cell in cells)
    kind = "" if is_text else ' class="number"'
    return f'<th scope="col"{kind}><button type="button">{escape(name)}</button></th>'


def _cell(value: Cell) -> str:
    """Return a cell, with its number to sort by."""
    if value is None:
        return '<td class="number"></td>'
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    if isinstance(value, Fraction):
        per_cent = 100 * value.value
        bar = f'<i style="--fraction:{min(value.value, 1):.3f}"></i>'
        return f'<td class="number fraction" data-value="{value.value!r}">{bar}<span>{per_cent:z.1f} %</span></td>'
    shown = f"{value:,}" if isinstance(value, int) else f"{value:z,.4g}"
    return f'<td class="number" data-value="{value!r}">{shown}</td>'


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page.

    Args:
        title: Title.
        subtitle: Line below the title.
        parts: Parts, from top to bottom.

    Examples:
        >>> page = Page("Pets", "my own", [heading("Cats & dogs"), text("All of them.")])
        >>> "<h2>Cats &amp; dogs</h2>" in page.html()
        True
    """

    title: str
    subtitle: str
    parts: Sequence[Html]

    def html(self) -> str:
        """Return the whole page as text."""
        return _asset("page.html").format(
            title=escape(self.title),
            subtitle=f"<p>{escape(self.subtitle)}</p>" if self.subtitle else "",
            style=_asset("page.css"),
            script=_asset("page.js"),
            body="\n".join(self.parts),
        )

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page to a file.

        Args:
            path: The file; parent folders are created.
            overwrite: Whether to replace an existing file.

        Returns:
            The path.

        Raises:
            OutputExistsError: The file exists and `overwrite` is false.
        """
        return write_text(path, self.html(), overwrite=overwrite)


@cache
def _asset(name: str) -> str:
    """Return the text of a file next to this one."""
    return files("manylabel").joinpath(name).read_text(encoding="utf-8")


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
