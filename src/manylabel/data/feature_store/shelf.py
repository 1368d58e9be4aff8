"""All stores of a folder: where they are kept, what there is, and how to remove one."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from manylabel.data.feature_store.journal import Journal
from manylabel.data.feature_store.lock import WriterLock
from manylabel.data.feature_store.request import FeatureRequest
from manylabel.data.feature_store.store import JOURNAL, LOCK, MANIFEST, REQUEST
from manylabel.errors import CacheError, list_choices

__all__ = ["StoreInfo", "default_root", "list_stores", "remove_store"]


@dataclass(frozen=True)
class StoreInfo:
    """What a list tells of a store, whole or not.

    Args:
        key: Its name.
        folder: Where it is.
        request: What the features are of.
        pictures_done: How many of the pictures are written.
        num_bytes: What it takes on disk.
        changed: When it was last written to, in seconds since 1970.
        whole: Whether it was written to the end.
        writer: Who writes to it now; empty for nobody.
    """

    key: str
    folder: Path
    request: FeatureRequest
    pictures_done: int
    num_bytes: int
    changed: float
    whole: bool
    writer: str


def default_root() -> Path:
    """Return the folder of all stores: MANYLABEL_CACHE if it is set, else the platform's folder for caches.

    Example:
        >>> default_root().name
        'features'
    """
    given = os.environ.get("MANYLABEL_CACHE")
    if given:
        return Path(given).expanduser() / "features"
    return _platform_caches() / "manylabel" / "features"


def list_stores(root: Path | None = None) -> list[StoreInfo]:
    """Return all stores, the newest first.

    Args:
        root: Where to look; `default_root` when left out.

    Example:
        >>> list_stores(Path("no such folder"))
        []
    """
    root = default_root() if root is None else root
    folders = [path.parent for path in root.glob(f"*/{REQUEST}")]
    infos = [info for info in map(_describe, folders) if info is not None]
    return sorted(infos, key=lambda info: info.changed, reverse=True)


def remove_store(key: str, root: Path | None = None) -> StoreInfo:
    """Remove a store.

    Args:
        key: Its name, or as much of the start of it as no other has.
        root: Where it is; `default_root` when left out.

    Returns:
        What was removed.

    Raises:
        CacheError: There is no such store, more than one, or a process writes to it.

    Example:
        >>> remove_store("abc", Path("no such folder"))
        Traceback (most recent call last):
        manylabel.errors.CacheError: no cached features 'abc'; there is nothing to choose from
    """
    stores = list_stores(root)
    fitting = [info for info in stores if key and info.key.startswith(key)]
    if not fitting:
        raise CacheError(f"no cached features {key!r}; {list_choices(key, [info.key for info in stores])}")
    if len(fitting) > 1:
        raise CacheError(f"{key!r} fits {len(fitting)} stores, write more of it: {', '.join(i.key for i in fitting)}")
    with WriterLock(fitting[0].folder / LOCK):
        (fitting[0].folder / MANIFEST).unlink(missing_ok=True)  # first, so that no half of it is taken for whole
        shutil.rmtree(fitting[0].folder)
    return fitting[0]


def _describe(folder: Path) -> StoreInfo | None:
    """Look at a folder; None if it cannot be understood."""
    try:
        request = FeatureRequest.from_dict(json.loads((folder / REQUEST).read_text(encoding="utf-8")))
        files = [file.stat() for file in folder.iterdir()]
    except (OSError, ValueError):
        return None
    journal = folder / JOURNAL
    holder = WriterLock(folder / LOCK).holder()
    return StoreInfo(
        key=folder.name,
        folder=folder,
        request=request,
        pictures_done=Journal.parse(journal.read_text(encoding="utf-8")).last.end if journal.exists() else 0,
        num_bytes=sum(file.st_size for file in files),
        changed=max(file.st_mtime for file in files),
        whole=(folder / MANIFEST).exists(),
        writer="" if holder is None else str(holder),
    )


def _platform_caches() -> Path:
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if os.uname().sysname == "Darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
