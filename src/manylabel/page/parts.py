"""What a page is made of: headings, text, key figures, notes, pictures and sections that fold."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from PIL import Image

__all__ = ["Columns", "Heading", "Note", "Part", "Picture", "Pictures", "Section", "Text", "Tile", "Tiles", "escape"]


class Part(Protocol):
    """Anything that can stand on a page."""

    def html(self) -> str:
        """Return the part as HTML, with every text in it escaped."""
        ...


def escape(text: object) -> str:
    """Return a text that is safe inside HTML and its attributes.

    Example:
        >>> escape('<a> & "b"')
        '&lt;a&gt; &amp; &quot;b&quot;'
    """
    # A file name that is not UTF-8 reaches Python with lone surrogates, which no file can hold.
    return html.escape(str(text).encode("utf-8", "replace").decode("utf-8"))


@dataclass(frozen=True)
class Heading:
    """A heading.

    Args:
        text: What it says.
        level: 2 for the parts of a page, 3 for the parts of these.

    Example:
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

    Example:
        >>> Text("1 < 2").html()
        '<p>1 &lt; 2</p>'
    """

    text: str

    def html(self) -> str:
        """Return the paragraph as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Note:
    """Something the reader should not overlook.

    Args:
        text: What it says.
        kind: How bad it is; each has its own colour and its own word.

    Example:
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
    """A key figure: a value, what it is, and a remark."""

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

    Example:
        >>> Tiles([Tile("20", "labels")]).html()
        '<div class="tiles"><div><b>20</b><span>labels</span></div></div>'
    """

    tiles: Sequence[Tile]

    def html(self) -> str:
        """Return the tiles as HTML."""
        return f'<div class="tiles">{"".join(tile.html() for tile in self.tiles)}</div>'


@dataclass(frozen=True)
class Picture:
    """A thumbnail with a caption.

    Args:
        jpeg: The thumbnail, encoded; empty where there is none to show.
        caption: What stands below it.
    """

    jpeg: bytes
    caption: str

    @classmethod
    def of(cls, image: Image.Image, caption: str, *, height: int = 112) -> Picture:
        """Make the thumbnail of a decoded picture.

        Args:
            image: The picture.
            caption: What stands below it.
            height: Height of the thumbnail in pixels; very wide pictures become lower.

        Example:
            >>> Picture.of(Image.new("RGB", (640, 480)), "a.jpg").html()[:43]
            '<figure><img src="data:image/jpeg;base64,/9'
        """
        small = image.convert("RGB")
        small.thumbnail((2 * height, height))
        encoded = io.BytesIO()
        small.save(encoded, "JPEG", quality=72, optimize=True)
        return cls(encoded.getvalue(), caption)

    def html(self) -> str:
        """Return the picture as HTML."""
        source = f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"
        image = f'<img src="{source}" alt="">' if self.jpeg else '<span class="none">no picture</span>'
        return f"<figure>{image}<figcaption>{escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Pictures:
    """Thumbnails side by side, over as many lines as they need.

    Args:
        pictures: The thumbnails.
        title: What they have in common.

    Example:
        >>> Pictures([Picture(b"", "gone.jpg")], title="Cats").html().count("figcaption")
        2
    """

    pictures: Sequence[Picture]
    title: str = ""

    def html(self) -> str:
        """Return the pictures as HTML."""
        title = f"<h4>{escape(self.title)}</h4>" if self.title else ""
        return f'<div class="pictures">{title}<div>{"".join(picture.html() for picture in self.pictures)}</div></div>'


@dataclass(frozen=True)
class Columns:
    """Parts side by side, as many as there is room for.

    Example:
        >>> Columns([Text("left"), Text("right")]).html()
        '<div class="columns"><p>left</p><p>right</p></div>'
    """

    parts: Sequence[Part]

    def html(self) -> str:
        """Return the parts as HTML."""
        return f'<div class="columns">{"".join(part.html() for part in self.parts)}</div>'


@dataclass(frozen=True)
class Section:
    """Parts that fold away under a title.

    Args:
        title: What stays to be seen.
        parts: What folds away.
        is_open: Whether they show at first.

    Example:
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
