"""Self-contained HTML pages and their parts: headings, text, notes, tables, images and sections."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, Protocol

from PIL import Image

from manylabel.errors import ConfigError
from manylabel.storage import write_text

__all__ = [
    "Cell",
    "Columns",
    "Fraction",
    "Heading",
    "Note",
    "Page",
    "Part",
    "Section",
    "Table",
    "Text",
    "Thumbnail",
    "Thumbnails",
    "Tile",
    "Tiles",
    "escape",
    "plural",
    "some",
]

_LONG = 100  # rows of a table that can be folded away

# Browsers refuse everything that is not in the file: the page needs no network.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
<header><h1>{title}</h1>{subtitle}</header>
{body}
</main>
<script>
{script}</script>
</body>
</html>
"""


class Part(Protocol):
    """Part of a page."""

    def html(self) -> str:
        """Return the part as HTML, all text escaped."""
        ...


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


@dataclass(frozen=True)
class Heading:
    """A heading.

    Args:
        text: Text.
        level: 2 or 3.

    Examples:
        >>> Heading("Labels").html()
        '<h2>Labels</h2>'
    """

    text: str
    level: Literal[2, 3] = 2

    def html(self) -> str:
        """Return the heading as HTML."""
        return f"<h{self.level}>{escape(self.text)}</h{self.level}>"


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Examples:
        >>> Text("1 < 2").html()
        '<p>1 &lt; 2</p>'
    """

    text: str

    def html(self) -> str:
        """Return the paragraph as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Note:
    """A highlighted remark.

    Args:
        text: Text.
        kind: Severity, shown as a word and a colour.

    Examples:
        >>> Note("All is well.", kind="good").html()
        '<p class="note good"><b>Good</b> All is well.</p>'
    """

    text: str
    kind: Literal["note", "good", "warning", "problem"] = "note"

    def html(self) -> str:
        """Return the note as HTML."""
        return f'<p class="note {self.kind}"><b>{self.kind.capitalize()}</b> {escape(self.text)}</p>'


@dataclass(frozen=True)
class Tile:
    """A key figure: value, label and a remark."""

    value: str
    label: str
    remark: str = ""

    def html(self) -> str:
        """Return the tile as HTML."""
        remark = f"<small>{escape(self.remark)}</small>" if self.remark else ""
        return f"<div><b>{escape(self.value)}</b><span>{escape(self.label)}</span>{remark}</div>"


@dataclass(frozen=True)
class Tiles:
    """Key figures side by side.

    Examples:
        >>> Tiles([Tile("20", "labels")]).html()
        '<div class="tiles"><div><b>20</b><span>labels</span></div></div>'
    """

    tiles: Sequence[Tile]

    def html(self) -> str:
        """Return the tiles as HTML."""
        return f'<div class="tiles">{"".join(tile.html() for tile in self.tiles)}</div>'


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
    def of(cls, image: Image.Image, caption: str, *, height: int = 112) -> Thumbnail:
        """Make the thumbnail of a decoded image.

        Args:
            image: The image.
            caption: Text below it.
            height: Height in pixels; less for very wide images.

        Examples:
            >>> Thumbnail.of(Image.new("RGB", (640, 480)), "a.jpg").html()[:43]
            '<figure><img src="data:image/jpeg;base64,/9'
        """
        small = image.convert("RGB")
        small.thumbnail((2 * height, height))
        encoded = io.BytesIO()
        small.save(encoded, "JPEG", quality=72, optimize=True)
        return cls(encoded.getvalue(), caption)

    def html(self, *, style: str = "") -> str:
        """Return the thumbnail as HTML, with inline CSS for use outside a page."""
        source = f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"
        image = f'<img src="{source}" alt="">' if self.jpeg else '<span class="none">no image</span>'
        opening = f'<figure style="{style}">' if style else "<figure>"
        return f"{opening}{image}<figcaption>{escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Thumbnails:
    """Thumbnails side by side.

    Args:
        images: The thumbnails.
        title: Text above them.

    Examples:
        >>> Thumbnails([Thumbnail(b"", "gone.jpg")], title="Cats").html().count("figcaption")
        2
    """

    images: Sequence[Thumbnail]
    title: str = ""

    def html(self) -> str:
        """Return the thumbnails as HTML."""
        title = f"<h4>{escape(self.title)}</h4>" if self.title else ""
        return f'<div class="images">{title}<div>{"".join(each.html() for each in self.images)}</div></div>'


@dataclass(frozen=True)
class Columns:
    """Parts side by side, as many as fit.

    Examples:
        >>> Columns([Text("left"), Text("right")]).html()
        '<div class="columns"><p>left</p><p>right</p></div>'
    """

    parts: Sequence[Part]

    def html(self) -> str:
        """Return the parts as HTML."""
        return f'<div class="columns">{"".join(part.html() for part in self.parts)}</div>'


@dataclass(frozen=True)
class Section:
    """Parts that can be folded away under a title.

    Args:
        title: Title.
        parts: Parts.
        is_open: Whether the parts are shown at first.

    Examples:
        >>> Section("More", [Text("Yes.")]).html()
        '<details><summary>More</summary><p>Yes.</p></details>'
    """

    title: str
    parts: Sequence[Part]
    is_open: bool = False

    def html(self) -> str:
        """Return the section as HTML."""
        state = " open" if self.is_open else ""
        body = "\n".join(part.html() for part in self.parts)
        return f"<details{state}><summary>{escape(self.title)}</summary>{body}</details>"


@dataclass(frozen=True)
class Fraction:
    """A fraction, shown as per cent with a bar behind it."""

    value: float


Cell = str | int | float | Fraction | None


@dataclass(frozen=True)
class Table:
    """A table that is sorted by clicking a column head, or with Tab and Enter.

    Args:
        columns: The heads.
        rows: The cells: text, numbers, fractions, or None for an empty cell.
        caption: Text above the table.

    Raises:
        ConfigError: A row has more or fewer cells than there are columns.

    Examples:
        >>> table = Table(["label", "images"], [["cat", 1200], ["dog", None]])
        >>> '<td class="number" data-value="1200">1,200</td>' in table.html()
        True
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    def __post_init__(self) -> None:
        for position, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                wanted = f"{len(self.columns)} cells ({', '.join(self.columns)})"
                raise ConfigError(f"each row must have {wanted}, got {len(row)} in row {position}")

    def html(self) -> str:
        """Return the table as HTML."""
        heads = "".join(map(_head, self.columns, zip(*self.rows, strict=True) if self.rows else self.columns))
        body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        caption = f"<caption><span>{escape(self.caption)}</span></caption>" if self.caption else ""
        # The frame scrolls sideways on a phone; tabindex lets the keyboard scroll it, too.
        frame = (
            f'<div class="frame" tabindex="0"><table>{caption}<thead><tr>{heads}</tr></thead>\n'
            f"<tbody>{body}</tbody></table></div>"
        )
        is_long = len(self.rows) > _LONG
        return f"<details open><summary>{len(self.rows):,} rows</summary>{frame}</details>" if is_long else frame


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
    """A self-contained HTML page; adding to it gives a new page.

    Args:
        title: Title.
        subtitle: Line below the title.
        parts: Parts, from top to bottom.

    Examples:
        >>> from manylabel.page import Heading, Text
        >>> page = Page("Pets").add(Heading("Cats & dogs"), Text("All of them."))
        >>> "<h2>Cats &amp; dogs</h2>" in page.html()
        True
    """

    title: str
    subtitle: str = ""
    parts: tuple[Part, ...] = ()

    def add(self, *parts: Part) -> Page:
        """Return a page with these parts appended."""
        return replace(self, parts=(*self.parts, *parts))

    def html(self) -> str:
        """Return the whole page as text."""
        return _TEMPLATE.format(
            policy=_POLICY,
            title=escape(self.title),
            subtitle=f"<p>{escape(self.subtitle)}</p>" if self.subtitle else "",
            style=_asset("style.css"),
            script=_asset("sort.js"),
            body="\n".join(part.html() for part in self.parts),
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
    """Return the text of a file of this package."""
    return files("manylabel.page").joinpath(name).read_text(encoding="utf-8")
