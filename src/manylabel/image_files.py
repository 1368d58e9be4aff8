"""Lazy listing of images in folders, glob patterns, lists and on the web.

All commands and readers that walk folders use this module.
"""

import http.client
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from glob import iglob
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from manylabel.errors import ConfigError, DataError, ImageError, list_choices
from manylabel.images import IMAGE_ENDINGS

logger = logging.getLogger(__name__)

SECONDS_TO_FETCH = 30.0
EXPLAINED = ".explained.png"
"""Ending of the heat maps of `manylabel explain`, which folders and patterns leave out."""
MAX_BYTES = 100_000_000  # of a downloaded image


def list_images(
    paths: Sequence[str], *, listed: Iterable[str] = (), allow_urls: bool = False, quiet: bool = False
) -> Iterator[str]:
    """Yield images by path or URL, as they are found.

    Args:
        paths: Files, folders (recursively), patterns such as ``photos/**/*.jpg``, URLs, or ``-`` for `listed`.
        listed: Lines with a path or URL each, such as standard input.
        allow_urls: Whether to accept URLs (``http://``, ``https://``), which are downloaded.
        quiet: Whether to suppress log messages about skipped files.

    Yields:
        One path or URL per image. A missing file is yielded, too: opening it reports the error.

    Raises:
        DataError: A folder contains no images, or nothing matches a pattern.
        ConfigError: A URL is given and not allowed.

    Examples:
        >>> list(list_images(["b.jpg", "-"], listed=["a.jpg", ""]))
        ['b.jpg', 'a.jpg']
    """
    for path in paths:
        names = (line.rstrip("\r\n") for line in listed) if path == "-" else [path]
        for name in filter(None, names):
            if is_address(name) and not allow_urls:
                raise ConfigError(f"{name} is a URL; allow downloads with --allow-urls")
            yield from [name] if path == "-" or is_address(name) else expand(name, quiet=quiet)


def expand(path: str, *, quiet: bool = False) -> Iterator[str]:
    """Yield the images of a folder or pattern, or the path itself.

    Raises:
        DataError: A folder contains no images, or nothing matches a pattern.

    Examples:
        >>> list(expand("no_such.jpg"))
        ['no_such.jpg']
    """
    if os.path.isdir(path):  # noqa: PTH112 - a Path for each of a million names takes seconds
        found: Iterator[str] = (os.path.join(path, name) for name in image_names(path, quiet=quiet))  # noqa: PTH118 - likewise
    elif set(path) & set("*?[") and not Path(path).exists():
        matches: Iterable[str] = iglob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        matches = matches if "**" in path else sorted(matches)  # as a shell does; a whole tree is too much to hold
        found = (name for name in matches if _is_image(name) and Path(name).is_file())
    else:
        found = iter([path])
    first = next(found, None)
    if first is None:
        entries = os.listdir(path) if Path(path).is_dir() else None  # noqa: PTH208 (names alone)
        if entries == []:
            raise DataError(f"no images in {path}: the folder is empty")
        inside = list_choices("", entries, title="found") if entries else "check the pattern"
        raise DataError(f"no images in {path}: none ends in {', '.join(sorted(IMAGE_ENDINGS))}; {inside}")
    yield first
    yield from found


def image_names(folder: str | Path, *, quiet: bool = False) -> Iterator[str]:
    """Walk a folder recursively, with the names of one folder at a time in memory.

    Symbolic links are followed; every folder is walked once, however many links lead to it.

    Args:
        folder: Folder to walk; unreadable subfolders are skipped and logged.
        quiet: Whether to suppress log messages.

    Yields:
        Names of image files (by extension) relative to `folder`, with ``/`` as separator, each folder in sorted order;
        hidden files and folders are skipped.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> for name in ("b.jpg", "a.PNG", "notes.txt"):
        ...     (root / name).touch()
        >>> list(image_names(root))
        ['a.PNG', 'b.jpg']
    """
    level = logging.DEBUG if quiet else logging.WARNING
    seen: dict[tuple[int, int], str] = {}
    stack = [_entries(str(folder), "", seen, level)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
        elif entry[1]:
            stack.append(_entries(str(folder), f"{entry[0]}/", seen, level))
        else:
            yield entry[0]


def _entries(root: str, prefix: str, seen: dict[tuple[int, int], str], level: int) -> Iterator[tuple[str, bool]]:
    """Yield the images and subfolders of a folder, each with whether it is a folder; nothing for one seen before."""
    path = os.path.join(root, prefix)  # noqa: PTH118 - a Path for each of a million names takes seconds
    try:
        status = os.stat(path)  # noqa: PTH116 - likewise
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            logger.log(level, "skipping folder %s: it is the same as %s", path, first)
            return
        with os.scandir(path) as entries:
            found = sorted(
                (entry.name, _is_folder(entry, level)) for entry in entries if not entry.name.startswith(".")
            )
    except OSError as error:
        logger.log(level, "skipping folder %s: %s", path, error.strerror)
        return
    for name, is_folder in found:
        if is_folder or _is_image(name):
            yield f"{prefix}{name}", is_folder


def _is_folder(entry: os.DirEntry[str], level: int) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:  # such as a link to itself
        logger.log(level, "skipping %s: %s", entry.path, error.strerror)
        return False


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_ENDINGS and not name.endswith(EXPLAINED)  # noqa: PTH122 - as above


def is_address(path: str) -> bool:
    """Return whether a path is a URL.

    Examples:
        >>> is_address("https://example.org/a.jpg"), is_address("a.jpg")
        (True, False)
    """
    return path.lower().startswith(("http://", "https://"))


def relative_path(image: str | Path, folder: Path) -> str:
    """Return the path of an image relative to a folder, with forward slashes; URLs stay as they are.

    Examples:
        >>> relative_path("photos/a.jpg", Path("photos/tables")), relative_path("https://example.org/a.jpg", Path())
        ('../a.jpg', 'https://example.org/a.jpg')
    """
    if is_address(str(image)):
        return str(image)
    try:
        return Path(os.path.relpath(image, folder)).as_posix()
    except ValueError:  # another drive of Windows
        return Path(image).absolute().as_posix()


def origin(address: str) -> str:
    """Return the scheme, host and port of a URL; empty if it is not a valid one with ``http`` or ``https``.

    Examples:
        >>> origin("http://user@Example.org:8080/a.jpg"), origin("file:///etc/passwd")
        ('http://example.org:8080', '')
    """
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}" if is_address(address) and host else ""


def fetch(
    address: str,
    *,
    seconds: float | None = None,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    origins: Sequence[str] | None = None,
    max_bytes: int | None = None,
) -> bytes:
    """Download a URL.

    Args:
        address: URL with ``http://`` or ``https://``; redirects to anything else are refused.
        seconds: Total time limit in seconds (default: 30).
        headers: Further headers, which are not sent on to where a redirect leads.
        content: Body of a POST request (default: a GET request).
        origins: Origins that a redirect may lead to (default: any).
        max_bytes: Maximum size of the response (default: 100 MB).

    Raises:
        ImageError: The download fails, takes too long, or is too large.
    """
    seconds = SECONDS_TO_FETCH if seconds is None else seconds
    max_bytes = MAX_BYTES if max_bytes is None else max_bytes
    answers: list[bytes | str] = []

    try:
        request = urllib.request.Request(_ascii(address), content, headers={"User-Agent": "manylabel"})  # noqa: S310 - see `_download`
    except ValueError as error:
        raise ImageError(address, f"it could not be fetched: {error}") from error
    for name, value in (headers or {}).items():
        request.add_unredirected_header(name, value)
    download = partial(_download, request, seconds, origins, max_bytes)
    thread = threading.Thread(target=lambda: answers.append(download()), daemon=True)
    thread.start()
    thread.join(seconds)  # the limit of a socket is for each read: a slow server would take forever
    received = answers[0] if answers else "timed out"
    if isinstance(received, str):
        reason = f"it took longer than {seconds:g} seconds" if "timed out" in received else received
        raise ImageError(address, f"it could not be fetched: {reason}")
    if len(received) > max_bytes:
        raise ImageError(address, f"it has more than {max_bytes:,} bytes")
    return received


def _download(
    request: urllib.request.Request, seconds: float, origins: Sequence[str] | None, max_bytes: int
) -> bytes | str:
    """Return the content of a URL, or why there is none; redirects cannot reach files or FTP."""
    web = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        _Redirects(origins),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        web.add_handler(handler)
    try:
        with web.open(request, timeout=seconds) as answer:
            content: bytes = answer.read(max_bytes + 1)
            return content
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(error)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects to some origins only (default: any)."""

    def __init__(self, origins: Sequence[str] | None) -> None:
        self.origins = origins

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:  # noqa: ANN401 - as in the parent
        """Return the next request, or refuse it; the last argument is its URL."""
        place = origin(arguments[-1])
        if self.origins is not None and place not in self.origins:
            raise urllib.error.URLError(f"it redirects to {place or 'no web address'}, which is not allowed")
        return super().redirect_request(*arguments)


def _ascii(address: str) -> str:
    """Encode a URL as ASCII: percent-encoding, and IDNA for the host."""
    parts = urlsplit(address)
    host = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode()
    path, query = (quote(text, safe="/%:=&?~+!$,;'@()*[]") for text in (parts.path, parts.query))
    return urlunsplit((parts.scheme, host, path, query, ""))
