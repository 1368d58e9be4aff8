"""All stores of features of a cache folder: list them, remove them, and remove what killed processes left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from manylabel.errors import CacheError, list_choices
from manylabel.features.key import FeatureSpec
from manylabel.features.store import parse_journal
from manylabel.inference.engine import EXPORTS
from manylabel.lock import WriterLock
from manylabel.storage import cache_folder

__all__ = ["StoreInfo", "default_root", "list_stores", "remove_leftovers", "remove_store"]

ABANDONED_AFTER = 3600.0  # seconds; nobody writes to a temporary file for so long


@dataclass(frozen=True)
class StoreInfo:
    """A store as a list shows it.

    Args:
        folder: Where it is; its name is the store's key.
        spec: What the features are.
        num_images: Images in it.
        num_bytes: Bytes on disk.
        used: When it was last opened or written to, in seconds since 1970.
        writer: The process that writes to it now; empty if there is none.
    """

    folder: Path
    spec: FeatureSpec
    num_images: int
    num_bytes: int
    used: float
    writer: str

    @property
    def key(self) -> str:
        """Name of the store."""
        return self.folder.name


def default_root() -> Path:
    """Return the folder of all stores: in MANYLABEL_CACHE if that is set, else in the platform's folder for caches.

    Examples:
        >>> default_root().name
        'features'
    """
    return cache_folder() / "features"


def list_stores(root: Path | None = None) -> list[StoreInfo]:
    """Return all stores, the last used first.

    Args:
        root: Where to look (default: `default_root`).

    Examples:
        >>> list_stores(Path("no such folder"))
        []
    """
    root = default_root() if root is None else root
    infos = [_describe(path.parent) for path in root.glob("*/spec.json")]
    return sorted((info for info in infos if info is not None), key=lambda info: info.used, reverse=True)


def remove_store(key: str, root: Path | None = None) -> StoreInfo:
    """Remove a store.

    Args:
        key: Its name, or as much of the start of it as no other has.
        root: Where it is (default: `default_root`).

    Returns:
        What was removed.

    Raises:
        BusyError: A process writes to it.
        CacheError: There is no such store, or more than one.

    Examples:
        >>> remove_store("abc", Path("no such folder"))
        Traceback (most recent call last):
        manylabel.errors.CacheError: no cached features 'abc'; there is nothing to choose from
    """
    stores = list_stores(root)
    fitting = [info for info in stores if key and info.key.startswith(key)]
    if not fitting:
        raise CacheError(f"no cached features {key!r}; {list_choices(key, [info.key for info in stores])}")
    if len(fitting) > 1:
        keys = ", ".join(info.key for info in fitting)
        raise CacheError(f"{key!r} fits {len(fitting)} stores, write more of it: {keys}")
    folder = fitting[0].folder
    with WriterLock(folder / "lock"):
        (folder / "journal.jsonl").unlink(missing_ok=True)  # first, so that no half of it is taken for the whole
        for path in folder.glob("*.[fu]*"):
            path.unlink()
        shutil.rmtree(folder)  # last what makes it known, so that a removal that was killed can be repeated
    return fitting[0]


def remove_leftovers(root: Path | None = None) -> None:
    """Remove what killed processes left: temporary files, stores that were never begun, and dead sockets of workers.

    Args:
        root: Folder of all stores (default: `default_root`).
    """
    root = default_root() if root is None else root
    for path in (*root.glob("*/.*"), *(cache_folder() / EXPORTS).glob(".*")):
        with suppress(OSError):
            if _is_abandoned(path):
                path.unlink()
    for folder in root.glob("*/"):
        with suppress(OSError):
            if _is_abandoned(folder) and all(path.name == "lock" for path in folder.iterdir()):
                with WriterLock(folder / "lock"):
                    shutil.rmtree(folder)
    _remove_dead_sockets()


def _is_abandoned(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > ABANDONED_AFTER


def _remove_dead_sockets() -> None:
    """Remove folders of sockets (``pymp-*``) that Python's multiprocessing made in processes that are gone."""
    with suppress(OSError):  # no Linux: there is no such list
        bound = set(Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").split())
        for folder in Path(tempfile.gettempdir()).glob("pymp-*"):
            sockets = list(folder.iterdir()) if folder.stat().st_uid == os.getuid() else []
            if sockets and all(path.is_socket() and str(path) not in bound for path in sockets):
                shutil.rmtree(folder, ignore_errors=True)


def _describe(folder: Path) -> StoreInfo | None:
    """Look at a folder; None if it cannot be understood."""
    try:
        spec = FeatureSpec.from_json((folder / "spec.json").read_text(encoding="utf-8"))
        journal = folder / "journal.jsonl"
        chunks = parse_journal(journal.read_bytes() if journal.exists() else b"")
        files = [file.stat() for file in folder.iterdir()]
    except (OSError, UnicodeDecodeError):
        return None
    holder = WriterLock(folder / "lock").holder()
    return StoreInfo(
        folder=folder,
        spec=spec,
        num_images=sum(chunk.end - chunk.start for chunk in chunks),
        num_bytes=sum(file.st_size for file in files),
        used=max(file.st_mtime for file in files),
        writer="" if holder is None else str(holder),
    )
