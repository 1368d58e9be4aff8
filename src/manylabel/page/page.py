"""The page itself: a title, parts one below the other, and everything they need inside one file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from manylabel.page.parts import Part, escape
from manylabel.storage import write_text

__all__ = ["Page"]

# The browser itself refuses whatever is not in the file, so a page that opens also opens without a network.
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


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page; adding to it gives a new page.

    Args:
        title: The title, in the browser's tab and on top of the page.
        subtitle: A line below the title.
        parts: What the page shows, from top to bottom.

    Example:
        >>> from manylabel.page import Heading, Text
        >>> page = Page("Pets").add(Heading("Cats & dogs"), Text("All of them."))
        >>> "<h2>Cats &amp; dogs</h2>" in page.html()
        True
    """

    title: str
    subtitle: str = ""
    parts: tuple[Part, ...] = ()

    def add(self, *parts: Part) -> Page:
        """Return a page with these parts below those that are there."""
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
        """Write the page in one move.

        Args:
            path: Where the file goes; parent folders are made.
            overwrite: Whether a file that is there may be replaced.

        Returns:
            The path, for the caller to name.

        Raises:
            OutputExistsError: The file is there and `overwrite` is false.
        """
        return write_text(path, self.html(), overwrite=overwrite)


@cache
def _asset(name: str) -> str:
    """Return the text of a file that lies beside this module."""
    return files("manylabel.page").joinpath(name).read_text(encoding="utf-8")
