"""Fingerprints of pictures: two data sets have the same one if they show the same, in the same order."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from manylabel.data.sources import JoinedSource, LazyBytes, PictureSource

__all__ = ["fingerprint_pictures"]


def fingerprint_pictures(source: PictureSource) -> str:
    """Return a fingerprint of the pictures of a source and their order.

    A file is known by its name, size and time of change, so nothing is read; where the folder stands does not matter.
    Bytes are known by their content, unless their source says what they follow from.

    Args:
        source: The pictures; those that are missing count as missing.

    Returns:
        Letters and digits.

    Example:
        >>> drawn = LazyBytes(["a", "b"], load=lambda position: bytes([position]))
        >>> fingerprint_pictures(drawn) == fingerprint_pictures(drawn.take([0, 1]))
        True
        >>> fingerprint_pictures(drawn) == fingerprint_pictures(drawn.take([1, 0]))
        False
    """
    digest = hashlib.sha256()
    for line in _lines(source):
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _lines(source: PictureSource) -> Iterable[str]:
    """Yield one line per picture, for each part of a joined source in turn."""
    if isinstance(source, JoinedSource):
        for part in source.parts:
            yield from _lines(part)
        return
    for index in range(len(source)):
        yield f"{source.name(index)!r} {_content(source, index)}\n"


def _content(source: PictureSource, index: int) -> str:
    if isinstance(source, LazyBytes) and source.identity is not None:
        return f"{source.identity} {index if source.positions is None else source.positions[index]}"
    try:
        picture = source[index]
        return _of_file(picture) if isinstance(picture, Path) else hashlib.sha256(picture).hexdigest()
    except Exception as error:  # noqa: BLE001 - whatever fails here fails again when the picture is decoded, and is told there
        return f"missing: {type(error).__name__}"


def _of_file(path: Path) -> str:
    status = os.stat(path)  # noqa: PTH116 - a third faster than Path.stat, over a hundred thousand files
    return f"{status.st_size} {status.st_mtime_ns}"
