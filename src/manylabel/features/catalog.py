"""Feature stores of a cache folder: list them, remove them, and clean up after killed processes."""

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

ABANDONED_AFTER = 3600.0  # seconds; no temporary file is written to for this long


@dataclass(frozen=True)
class StoreInfo:
    """Summary of a feature store.

    Args:
        folder: Folder of the store; its name is the store's key.
        spec: Spec of the features.
        num_images: Number of images.
        num_bytes: Size on disk in bytes.
        used: Time of last use, in seconds since 1970.
        writer: Process that is writing to it; empty if there is none.
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
    """Return the folder of all stores, in MANYLABEL_CACHE if set, else in the platform's cache folder.

    Examples:
        >>> default_root().name
        'features'
    """
    return cache_folder() / "features"


def list_stores(root: Path | None = None) -> list[StoreInfo]:
    """Return all stores, most recently used first.

    Args:
        root: Cache folder (default: `default_root`).

    Examples:
        >>> list_stores(Path("no such folder"))
        []
    """
    root = default_root() if root is None else root
    infos = filter(None, (_describe(path.parent) for path in root.glob("*/spec.json")))
    return sorted(infos, key=lambda info: info.used, reverse=True)


def remove_store(key: str, root: Path | None = None) -> StoreInfo:
    """Remove a store.

    Args:
        key: Key of the store, or a unique prefix.
        root: Cache folder (default: `default_root`).

    Returns:
        The removed store.

    Raises:
        BusyError: A process is writing to it.
        CacheError: No store matches, or more than one.

    Examples:
        >>> remove_store("abc", Path("no such folder"))
        Traceback (most recent call last):
        manylabel.errors.CacheError: no cached features 'abc'; nothing available
    """
    stores = list_stores(root)
    fitting = [info for info in stores if key and info.key.startswith(key)]
    if not fitting:
        raise CacheError(f"no cached features {key!r}; {list_choices(key, [info.key for info in stores])}")
    if len(fitting) > 1:
        keys = ", ".join(info.key for info in fitting)
        raise CacheError(f"{key!r} matches {len(fitting)} entries; type more digits: {keys}")
    folder = fitting[0].folder
    with WriterLock(folder / "lock"):
        (folder / "journal.jsonl").unlink(missing_ok=True)  # first: without it, a partly removed store counts as empty
        for path in folder.glob("*.[fu]*"):
            path.unlink()
        shutil.rmtree(folder)  # spec.json last, so that a killed removal can be repeated
    return fitting[0]


def remove_leftovers(root: Path | None = None) -> None:
    """Remove leftovers of killed processes: temporary files, empty stores and dead worker sockets.

    Args:
        root: Cache folder (default: `default_root`).
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
    """Remove socket folders (``pymp-*``) that multiprocessing created in processes that no longer exist."""
    with suppress(OSError):  # not Linux: there is no such list
        bound = set(Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").split())
        for folder in Path(tempfile.gettempdir()).glob("pymp-*"):
            sockets = list(folder.iterdir()) if folder.stat().st_uid == os.getuid() else []
            if sockets and all(path.is_socket() and str(path) not in bound for path in sockets):
                shutil.rmtree(folder, ignore_errors=True)


def _describe(folder: Path) -> StoreInfo | None:
    """Summarise a store; None if its folder is not a valid store."""
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
