"""Labels and names as text in files, escaped so that no file breaks and everything can be read back.

Inside a text, a character that a file cannot hold is percent-encoded as in web addresses (``a|b`` becomes ``a%7Cb``),
and so is a ``%`` that would look like such an escape; `unquote` undoes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from urllib.parse import unquote

__all__ = [
    "LABEL_FILE",
    "PROTECTED",
    "SEPARATOR",
    "TAG_COLUMNS",
    "folder_name",
    "join_labels",
    "printable",
    "protect_cell",
    "split_labels",
    "unprotect_cell",
]

SEPARATOR = "|"
"""Stands between the labels of a CSV cell."""

TAG_COLUMNS = ("image", "tags", "scores", "error")
"""The header of a CSV file of tags; by it such a file is known when it is read back."""

LABEL_FILE = ".label"
"""Holds the label of a folder whose name cannot be it, percent-encoded."""

_UNPRINTABLE = "\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"  # no XML 1.0 may hold these
_ESCAPE_LIKE = "%(?=[0-9A-Fa-f]{2})"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
PROTECTED = r"^'('*[=+\-@\t\r])"
"""A cell that `protect_cell` changed, as a regular expression whose group is its text without the apostrophe."""

_DEVICES = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")  # names that Windows keeps for itself
_LONGEST_NAME = 180  # bytes; file systems take 255, and a sync program may add to it


def printable(label: str, *, reserved: str = "") -> str:
    r"""Percent-encode control characters, and those that are reserved.

    Args:
        label: Any text.
        reserved: More characters to encode, as in the brackets of a regular expression.

    Examples:
        >>> printable("50 % off\x07"), unquote(printable("%41"))
        ('50 % off%07', '%41')
    """
    return re.sub(f"[{_UNPRINTABLE}{reserved}]|{_ESCAPE_LIKE}", _percent, label)


def protect_cell(text: str) -> str:
    """Return the text of a CSV cell that no spreadsheet takes for a formula: behind an apostrophe where it starts so.

    Examples:
        >>> protect_cell("=1+1"), protect_cell("a=b"), unprotect_cell("'=1+1")
        ("'=1+1", 'a=b', '=1+1')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unprotect_cell(cell: str) -> str:
    """Undo `protect_cell`."""
    return re.sub(PROTECTED, r"\1", cell)


def join_labels(labels: Iterable[str]) -> str:
    """Return a CSV cell of labels.

    Examples:
        >>> join_labels(["cat", "a|b"]), split_labels("cat|a%7Cb")
        ('cat|a%7Cb', ['cat', 'a|b'])
    """
    return protect_cell(SEPARATOR.join(printable(label, reserved=r"|") for label in labels))


def split_labels(cell: str) -> list[str]:
    """Return the labels of a cell that `join_labels` made, once its protection is undone."""
    return [unquote(label, errors="surrogatepass") for label in cell.split(SEPARATOR) if label]


def folder_name(label: str) -> str:
    """Return a name for a label's folder on every system, another one for each label.

    A name that would be too long is cut, and ends in a hash of the whole label.

    Examples:
        >>> folder_name("traffic light"), folder_name("cat/dog?"), folder_name("..")
        ('traffic light', 'cat%2Fdog%3F', '%2E%2E')
    """
    name = printable(label, reserved=r'<>:"/\\|?*')
    name = re.sub(r"^\.+|[. ]+$", lambda ends: "".join(f"%{ord(each):02X}" for each in ends[0]), name)
    if _DEVICES.match(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name.encode()) > _LONGEST_NAME:
        digest = blake2b(label.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        name = f"{name.encode()[:_LONGEST_NAME].decode(errors='ignore')}~{digest}"
    return name


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
