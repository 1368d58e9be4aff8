"""Reversible escaping of labels and names in text files.

A character that a file cannot hold is percent-encoded as in URLs (``a|b`` becomes ``a%7Cb``), as is a ``%`` that would
look like such an escape; `unquote` reverses it.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from urllib.parse import unquote

SEPARATOR = "|"
"""Separator of labels in a CSV cell."""

TAG_COLUMNS = ("image", "tags", "scores", "error")
"""Header of a CSV file of tags, by which the file is recognised when it is read back."""

LABEL_FILE = ".label"
"""File with the percent-encoded label of a folder whose name differs from it."""

_UNPRINTABLE = "\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"  # not allowed in XML 1.0
_ESCAPE_LIKE = "%(?=[0-9A-Fa-f]{2})"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
PROTECTED = r"^'('*[=+\-@\t\r])"
"""Regular expression for a cell that `protect_cell` changed; its group is the text without the apostrophe."""

_DEVICES = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")  # names reserved by Windows
_LONGEST_NAME = 180  # bytes; file systems allow 255, and sync programs may append to names


def printable(label: str, *, reserved: str = "") -> str:
    r"""Percent-encode control characters and reserved characters.

    Args:
        label: Any text.
        reserved: Other characters to encode, as in the brackets of a regular expression.

    Examples:
        >>> printable("50 % off\x07"), unquote(printable("%41"))
        ('50 % off%07', '%41')
    """
    return re.sub(f"[{_UNPRINTABLE}{reserved}]|{_ESCAPE_LIKE}", _percent, label)


def valid_unicode(name: str) -> str:
    r"""Return a file name as valid Unicode, escaping invalid parts, which most files cannot contain.

    Examples:
        >>> print(valid_unicode("caf\udce9.jpg"))
        caf\udce9.jpg
    """
    return name.encode("utf-8", "backslashreplace").decode()


def protect_cell(text: str) -> str:
    """Prefix a CSV cell that looks like a spreadsheet formula with an apostrophe.

    Examples:
        >>> protect_cell("=1+1"), protect_cell("a=b"), unprotect_cell("'=1+1")
        ("'=1+1", 'a=b', '=1+1')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unprotect_cell(cell: str) -> str:
    """Reverse `protect_cell`."""
    return re.sub(PROTECTED, r"\1", cell)


def join_labels(labels: Iterable[str]) -> str:
    """Join labels into a CSV cell.

    Examples:
        >>> join_labels(["cat", "a|b"]), split_labels("cat|a%7Cb")
        ('cat|a%7Cb', ['cat', 'a|b'])
    """
    return protect_cell(SEPARATOR.join(printable(label, reserved=r"|") for label in labels))


def split_labels(cell: str) -> list[str]:
    """Split an unprotected cell of `join_labels` into labels."""
    return [unquote(label, errors="surrogatepass") for label in cell.split(SEPARATOR) if label]


def folder_name(label: str) -> str:
    """Return a folder name for a label that is valid on every system and unique to the label.

    A long name is truncated and ends in a hash of the label.

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
