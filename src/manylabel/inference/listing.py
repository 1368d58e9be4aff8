"""Which pictures are to be tagged: files, folders, patterns, lists and addresses, never all of them at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from glob import iglob
from pathlib import Path

from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.images import IMAGE_ENDINGS

__all__ = ["is_address", "list_pictures"]

logger = logging.getLogger(__name__)


def list_pictures(paths: Sequence[str], *, listed: Iterable[str] = (), allow_urls: bool = False) -> Iterator[str]:
    """Give pictures by their path or address, as they are found.

    Args:
        paths: Files, folders (with all below), patterns such as ``photos/**/*.jpg``, addresses, or ``-`` for `listed`.
        listed: A path or address on each line, such as the standard input.
        allow_urls: Whether addresses (``http://``, ``https://``) are fetched.

    Yields:
        One path or address per picture; folders in the order of their names, hidden files left out. A file that is not
        there is given, too: whoever opens it says so.

    Raises:
        DataError: A folder holds no pictures, or nothing matches a pattern.
        ConfigError: An address is given and not allowed.

    Examples:
        >>> list(list_pictures(["b.jpg", "-"], listed=["a.jpg", ""]))
        ['b.jpg', 'a.jpg']
    """
    for path in paths:
        if path == "-":
            for line in listed:
                if name := line.rstrip("\r\n"):
                    yield _allowed(name, allow_urls=allow_urls) if is_address(name) else name
        elif is_address(path):
            yield _allowed(path, allow_urls=allow_urls)
        else:
            yield from _expand(path)


def is_address(path: str) -> bool:
    """Tell whether a picture is to be fetched.

    Examples:
        >>> is_address("https://example.org/a.jpg"), is_address("a.jpg")
        (True, False)
    """
    return path.lower().startswith(("http://", "https://"))


def _allowed(address: str, *, allow_urls: bool) -> str:
    if not allow_urls:
        raise ConfigError(f"{address} would be fetched from the network; allow that with --allow-urls")
    return address


def _expand(path: str) -> Iterator[str]:
    """Give the pictures that a path stands for."""
    if Path(path).is_dir():
        yield from _at_least_one(_inside(path), path)
    elif not Path(path).exists() and set(path) & set("*?["):
        matches = iglob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        yield from _at_least_one((name for name in matches if _is_picture(name) and Path(name).is_file()), path)
    else:
        yield path


def _inside(folder: str) -> Iterator[str]:
    """Walk a folder; names of one folder at a time are in memory."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        logger.warning("folder %s is left out: %s", folder, error.strerror)
        return
    for name, is_folder in found:
        path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each of a million names takes seconds
        if is_folder:
            yield from _inside(path)
        elif _is_picture(name):
            yield path


def _at_least_one(names: Iterator[str], path: str) -> Iterator[str]:
    first = next(names, None)
    if first is None:
        inside = (
            list_choices("", [each.name for each in Path(path).iterdir()])
            if Path(path).is_dir()
            else "check the pattern"
        )
        raise DataError(f"no pictures in {path}: none of {', '.join(sorted(IMAGE_ENDINGS))}; {inside}")
    yield first
    yield from names


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_ENDINGS  # noqa: PTH122 - as above
