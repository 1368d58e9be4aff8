"""Writes a store so that nothing is lost: appended, journalled, continued after a kill, whole only at the end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from manylabel.data.feature_store.journal import Chunk, Journal
from manylabel.data.feature_store.lock import WriterLock
from manylabel.data.feature_store.request import DTYPE, FeatureRequest, checksum
from manylabel.data.feature_store.store import JOURNAL, LOCK, MANIFEST, REQUEST, stage_files
from manylabel.errors import CacheError
from manylabel.storage import write_text
from manylabel.types import BadPicture

__all__ = ["StoreWriter", "check_room", "missing_bytes"]

SPARE_BYTES = 32 * 2**20  # left free on the disk, for the journal and for everybody else


class StoreWriter:
    """Writes features batch by batch; use it as a context.

    It goes on behind the last batch that is on disk as it was written. Only one process writes to a folder at a time.

    Args:
        folder: Where the store is or will be.
        request: What the features are of.

    Raises:
        CacheBusyError: Another process writes.
        CacheError: The disk has no room, or the folder cannot be written to.

    Example:
        >>> import tempfile
        >>> request = FeatureRequest(
        ...     "a1", 4, weights="b2", transform="Resize", stages=(3,), shapes=((8, 1, 1),), pooling="average",
        ...     view=0, seed=0, dataset="pets", backbone="resnet10t",
        ... )
        >>> folder = Path(tempfile.mkdtemp()) / request.key
        >>> with StoreWriter(folder, request) as writer:
        ...     writer.append([np.ones((2, 8, 1, 1), np.float16)], end=2)
        >>> with StoreWriter(folder, request) as writer:  # after a kill, say
        ...     writer.position
        2
    """

    def __init__(self, folder: Path, request: FeatureRequest) -> None:
        self.folder = folder
        self.request = request
        self.journal = Journal()
        self.lock = WriterLock(folder / LOCK)
        self._files: list[BinaryIO] = []  # one per stage, then the journal

    @property
    def position(self) -> int:
        """Pictures that are done, counted from the first."""
        return self.journal.last.end

    def __enter__(self) -> Self:
        with self._disk_errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock.__enter__()
        try:
            with self._disk_errors():
                self._continue()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            with suppress(OSError):  # a full disk was told when it was met
                file.close()
        self._files = []
        self.lock.release()

    def append(self, features: Sequence[NDArray[np.float16]], *, end: int, bad: Sequence[BadPicture] = ()) -> None:
        """Write the rows of the next pictures.

        Args:
            features: ``[B, C, H, W]`` per stage, without the bad pictures.
            end: Pictures that are done with these, counted from the first.
            bad: Those among them that could not be decoded.

        Raises:
            CacheError: The disk is full, or another process took over.
        """
        rows = [np.ascontiguousarray(stage, dtype=DTYPE).reshape(len(stage), -1) for stage in features]
        self.lock.renew()
        with self._disk_errors():
            for file, stage in zip(self._files[:-1], rows, strict=True):
                file.write(stage.data)
                file.flush()
            chunk = Chunk(
                end=end,
                rows=self.journal.last.rows + len(rows[0]),
                checksums=tuple(zlib.crc32(stage.data) for stage in rows),
                bad=tuple(bad),
            )
            self._files[-1].write(chunk.to_line().encode())
            self._files[-1].flush()
        self.journal = Journal((*self.journal.chunks, chunk))

    def finish(self) -> Path:
        """Make sure that everything is on disk, and say that the store is whole.

        Returns:
            The folder.

        Raises:
            CacheError: The disk is full, or pictures are missing.
        """
        if self.position != self.request.num_pictures:
            raise CacheError(f"{self.position} of {self.request.num_pictures} pictures are done, so this is not whole")
        with self._disk_errors():
            for file in self._files:
                os.fsync(file.fileno())
            manifest = {
                "request": self.request.to_dict(),
                "rows": self.journal.last.rows,
                "bad": [[picture.index, picture.name, picture.reason] for picture in self.journal.bad],
            }
            # once through JSON, which makes lists of tuples, as reading will find them
            manifest = json.loads(json.dumps(manifest))
            manifest["checksum"] = checksum(manifest)
            write_text(self.folder / MANIFEST, json.dumps(manifest, indent=2), overwrite=True)
        return self.folder

    def _continue(self) -> None:
        """Cut off what was not written to its end, and open the files behind what was."""
        names = stage_files(self.request)
        self.journal = self._written(names)
        (self.folder / MANIFEST).unlink(missing_ok=True)
        check_room(self.folder, num_bytes=(self.request.num_pictures - self.position) * self.request.bytes_per_picture)
        write_text(self.folder / REQUEST, json.dumps(self.request.to_dict(), indent=2), overwrite=True)
        for name, shape in zip(names, self.request.shapes, strict=True):
            self._open(name, size=self.journal.last.rows * prod(shape) * DTYPE.itemsize)
        self._open(JOURNAL, size=len(self.journal.text().encode()))

    def _open(self, name: str, *, size: int) -> None:
        file = (self.folder / name).open("ab")
        self._files.append(file)
        file.truncate(size)

    def _written(self, names: Sequence[str]) -> Journal:
        """Return what is on disk as it was written."""
        if not all((self.folder / name).exists() for name in (*names, JOURNAL)):
            return Journal()
        journal = Journal.parse((self.folder / JOURNAL).read_text(encoding="utf-8", errors="replace"))
        return journal.undamaged(self.folder, names, [prod(shape) * DTYPE.itemsize for shape in self.request.shapes])

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Say in a sentence what the disk does not do."""
        try:
            yield
        except CacheError:
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):
                raise CacheError(
                    f"the disk of {self.folder} is full after {self.position:,} of {self.request.num_pictures:,} "
                    "pictures; what is written is kept: make room and run the same command again"
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

    Example:
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


def missing_bytes(root: Path, request: FeatureRequest) -> int:
    """Return the bytes of a request that are not on disk yet.

    Args:
        root: The folder of all stores.
        request: What the features are of.

    Example:
        >>> request = FeatureRequest(
        ...     "a1", 4, weights="b2", transform="Resize", stages=(3,), shapes=((8, 1, 1),), pooling="average",
        ...     view=0, seed=0, dataset="pets", backbone="resnet10t",
        ... )
        >>> missing_bytes(Path("no such folder"), request)
        64
    """
    folder = root / request.key
    if (folder / MANIFEST).exists():
        return 0
    files = [folder / name for name in stage_files(request)]
    return max(0, request.num_bytes - sum(file.stat().st_size for file in files if file.exists()))
