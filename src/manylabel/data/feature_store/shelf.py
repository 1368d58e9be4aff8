"""All stores of a folder: where they are kept, what there is, and how to remove one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from manylabel.data.feature_store.journal import Journal
from manylabel.data.feature_store.kind import FeatureKind
from manylabel.errors import CacheError, list_choices
from manylabel.lock import WriterLock
from manylabel.storage import cache_folder

__all__ = ["EXPORTS", "StoreInfo", "default_root", "list_stores", "remove_store"]

EXPORTS = "onnx"  # the folder of exported backbones, beside the stores


@dataclass(frozen=True)
class StoreInfo:
    """What a list tells of a store.

    Args:
        folder: Where it is; its name is the store's key.
        kind: What the features are.
        num_pictures: Pictures in it.
        bad: Names of pictures that could not be decoded, and why.
        num_bytes: What it takes on disk.
        used: When it was last opened or written to, in seconds since 1970.
        writer: Who writes to it now; empty for nobody.
    """

    folder: Path
    kind: FeatureKind
    num_pictures: int
    bad: dict[str, str]
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
        root: Where to look; `default_root` when left out.

    Examples:
        >>> list_stores(Path("no such folder"))
        []
    """
    root = default_root() if root is None else root
    infos = [_describe(path.parent) for path in root.glob("*/kind.json")]
    return sorted((info for info in infos if info is not None), key=lambda info: info.used, reverse=True)


def remove_store(key: str, root: Path | None = None) -> StoreInfo:
    """Remove a store.

    Args:
        key: Its name, or as much of the start of it as no other has.
        root: Where it is; `default_root` when left out.

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


def _describe(folder: Path) -> StoreInfo | None:
    """Look at a folder; None if it cannot be understood."""
    try:
        kind = FeatureKind.from_json((folder / "kind.json").read_text(encoding="utf-8"))
        text = folder / "journal.jsonl"
        journal = Journal.parse(text.read_text(encoding="utf-8", errors="replace") if text.exists() else "")
        files = [file.stat() for file in folder.iterdir()]
    except (OSError, UnicodeDecodeError):
        return None
    holder = WriterLock(folder / "lock").holder()
    return StoreInfo(
        folder=folder,
        kind=kind,
        num_pictures=journal.rows,
        bad=journal.bad,
        num_bytes=sum(file.st_size for file in files),
        used=max(file.st_mtime for file in files),
        writer="" if holder is None else str(holder),
    )
