"""Adds features to a store so that nothing is lost: appended, journalled, and continued after a kill."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from manylabel.data.feature_store.journal import Chunk, Journal
from manylabel.data.feature_store.kind import DTYPE, FeatureKind
from manylabel.data.feature_store.store import StoreFiles
from manylabel.errors import BusyError, CacheError, DiskFullError
from manylabel.lock import WriterLock
from manylabel.storage import write_text
from manylabel.types import BadImage

__all__ = ["StoreWriter", "check_room"]

SPARE_BYTES = 32 * 2**20  # left free on the disk, for the journal and for everybody else


class StoreWriter:
    """Adds features batch by batch; use it as a context.

    It goes on behind the last batch that is on disk as it was written. Only one process writes to a store at a time.

    Args:
        folder: Where the store is or will be.
        kind: What the features are.
        repair: Whether to compare all that is there with its checksums, not only what a kill may have left; from the
            first batch that is damaged on, everything is dropped.

    Raises:
        BusyError: Another process writes.
        CacheError: The disk is full, or the folder cannot be written to.

    Examples:
        >>> import tempfile
        >>> from manylabel.data.feature_store import FeatureStore
        >>> kind = FeatureKind(
        ...     dataset="pets", backbone="resnet10t", weights="b2", transform="Resize", stages=(3,),
        ...     shapes=((8, 1, 1),), pooling="average", view=0, seed=0,
        ... )
        >>> folder = Path(tempfile.mkdtemp()) / kind.key
        >>> with StoreWriter(folder, kind) as writer:
        ...     writer.append([np.ones((2, 8, 1, 1), np.float16)], ids=np.array([11, 22], np.uint64))
        >>> len(FeatureStore(folder))
        2
    """

    def __init__(self, folder: Path, kind: FeatureKind, *, repair: bool = False) -> None:
        self.folder = folder
        self.kind = kind
        self.repair = repair
        self.files = StoreFiles(folder, kind)
        self.lock = WriterLock(folder / "lock")
        self.journal = Journal()
        self._open: list[BinaryIO] = []  # the files of rows, then the journal

    def __enter__(self) -> Self:
        with self._disk_errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock.__enter__()
        try:
            with self._disk_errors():
                self._go_on()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with suppress(OSError):  # a full disk was told when it was met; what follows is looked at again next time
                self._make_safe()
        finally:
            self._close()

    def append(
        self, features: Sequence[NDArray[np.float16]], *, ids: NDArray[np.uint64], bad: Sequence[BadImage] = ()
    ) -> None:
        """Add the features of some pictures.

        Args:
            features: ``[B, C, H, W]`` per stage.
            ids: ``[B]``, the pictures' numbers.
            bad: Pictures that should have been among them but could not be decoded; they are recorded by name.

        Raises:
            CacheError: The disk is full, or another process took over.
        """
        rows = [np.ascontiguousarray(stage, dtype=DTYPE) for stage in features]
        contents = [stage.tobytes() for stage in (*rows, ids.astype("<u8"))]
        new = [(picture.name, picture.reason) for picture in bad if picture.name not in self.journal.bad]
        if not len(ids) and not new:
            return
        chunk = Chunk(self.journal.rows + len(ids), tuple(map(zlib.crc32, contents)), tuple(new))
        self.lock.renew()
        with self._disk_errors():
            for file, content in zip(self._open, (*contents, chunk.to_line().encode()), strict=True):
                file.write(content)
                file.flush()
        self.journal = Journal((*self.journal.chunks, chunk))

    def _go_on(self) -> None:
        """Cut off what was not written to its end, and open the files behind what was."""
        journal = self.folder / "journal.jsonl"
        self.journal = self._written(journal)
        write_text(self.folder / "kind.json", self.kind.to_json(), overwrite=True)
        sizes = [self.journal.rows * size for size in self.files.row_bytes]
        for path, size in zip((*self.files.rows, journal), (*sizes, len(self.journal.text().encode())), strict=True):
            file = path.open("ab")
            self._open.append(file)
            file.truncate(size)

    def _written(self, journal: Path) -> Journal:
        """Return what is on disk as it was written."""
        if not all(path.exists() for path in (*self.files.rows, journal)):
            return Journal()
        known = Journal.parse(journal.read_text(encoding="utf-8", errors="replace"))
        sizes = zip(self.files.rows, self.files.row_bytes, strict=True)
        cut = any(path.stat().st_size < known.rows * size for path, size in sizes)
        first = 0 if self.repair or cut else known.num_safe
        return known.undamaged(self.files.rows, self.files.row_bytes, first=first)

    def _make_safe(self) -> None:
        """Have the disk promise to keep everything, and note that it did."""
        if not self.journal.chunks or self.journal.chunks[-1].safe:
            return
        for file in self._open:
            os.fsync(file.fileno())
        chunk = Chunk(self.journal.rows, tuple(zlib.crc32(b"") for _ in self.files.rows), safe=True)
        self._open[-1].write(chunk.to_line().encode())
        self._open[-1].flush()
        self.journal = Journal((*self.journal.chunks, chunk))

    def _close(self) -> None:
        for file in self._open:
            with suppress(OSError):  # flushes again what a full disk did not take
                file.close()
        self._open = []
        self.lock.release()

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Say in a sentence what the disk does not do."""
        try:
            yield
        except (BusyError, CacheError):
            raise
        except OSError as error:
            if isinstance(error, DiskFullError) or error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):
                raise CacheError(
                    f"the disk of {self.folder} is full; the features of {self.journal.rows:,} pictures are kept: "
                    "make room and run the same command again"
                ) from error
            raise CacheError(
                f"cannot write features to {self.folder}: {error.strerror or error}; "
                "set MANYLABEL_CACHE to a folder that can be written to"
            ) from error


def check_room(folder: Path, *, num_bytes: int) -> None:
    """Make sure that a disk has room for features.

    Args:
        folder: Where they go; it need not be there yet.
        num_bytes: What they take.

    Raises:
        CacheError: There is not enough room.

    Examples:
        >>> check_room(Path("."), num_bytes=10**18)
        Traceback (most recent call last):
        manylabel.errors.CacheError: the features take 1,000,000,000.0 GB, but the disk of . has ... GB free; ...
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if num_bytes and num_bytes + SPARE_BYTES > free:
        raise CacheError(
            f"the features take {num_bytes / 1e9:,.1f} GB, but the disk of {folder} has {free / 1e9:,.1f} GB free; set "
            "MANYLABEL_CACHE to a folder on another disk, make room with 'manylabel cache rm', or keep pooled features "
            "or fewer views"
        )
