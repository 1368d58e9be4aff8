"""Features on disk, checked when opened, and read without a loop over pictures.

A store is a folder: ``kind.json`` says what the features are, ``journal.jsonl`` which rows were written, with their
checksums; the rows themselves are in one file of float16 per stage, and the pictures they are of in ``pictures.u64``.
Rows are only ever appended, and what the journal does not know is not there.

Letters in shape comments: B rows asked for, N pictures asked for, C channels, H and W cells.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from functools import cached_property
from math import prod
from pathlib import Path
from random import SystemRandom
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel.data.feature_store.journal import Journal, crc_of_rows
from manylabel.data.feature_store.kind import DTYPE, FeatureKind
from manylabel.errors import CacheError

__all__ = ["FeatureStore", "StoreFiles"]

SAMPLE = 4  # chunks compared with their checksums on each opening, other ones each time
READ_AHEAD_SHARE = 0.5  # of the machine's memory: files that take no more are read ahead as a whole


class StoreFiles:
    """The files of a store.

    Args:
        folder: Where they are.
        kind: What the features are.
    """

    def __init__(self, folder: Path, kind: FeatureKind) -> None:
        self.stages = [folder / f"stage-{stage}.f16" for stage in kind.stages]
        self.pictures = folder / "pictures.u64"
        self.rows = [*self.stages, self.pictures]
        self.row_bytes = [*(prod(shape) * DTYPE.itemsize for shape in kind.shapes), 8]


class FeatureStore:
    """Features of pictures, of one kind.

    Args:
        folder: Where they are.

    Attributes:
        kind: What the features are.

    Raises:
        CacheError: The store is damaged, or there is none.

    Examples:
        >>> import tempfile
        >>> from manylabel.data.feature_store import StoreWriter
        >>> kind = FeatureKind(
        ...     dataset="pets", backbone="resnet10t", weights="b2", transform="Resize", stages=(3,),
        ...     shapes=((8, 1, 1),), pooling="average", view=0, seed=0,
        ... )
        >>> folder = Path(tempfile.mkdtemp()) / kind.key
        >>> with StoreWriter(folder, kind) as writer:
        ...     writer.append([np.ones((2, 8, 1, 1), np.float16)], ids=np.array([11, 22], np.uint64))
        >>> store = FeatureStore(folder)
        >>> store.find(np.array([22, 33], np.uint64)), store.read(np.array([1]))[0].shape
        (array([ 1, -1]), torch.Size([1, 8, 1, 1]))
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.kind = FeatureKind.from_json(_read_text(folder / "kind.json"))
            self.files = StoreFiles(folder, self.kind)
            journal = Journal.parse(_read_text(folder / "journal.jsonl"))
            self.num_rows = journal.rows
            self._check(journal)
        except CacheError as error:
            raise CacheError(f"the features in {folder} cannot be used: {error}") from error
        with suppress(OSError):  # a folder that can only be read serves as well
            os.utime(folder / "kind.json")  # when it was last used

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.folder)!r}: {self.num_rows} pictures)"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the mapped files out: another process maps them again."""
        return {name: value for name, value in vars(self).items() if name not in ("_arrays", "_sorted_ids")}

    def find(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the rows of pictures.

        Args:
            ids: ``[N]``, see `picture_ids`.

        Returns:
            ``[N]``, -1 for pictures that are not there.
        """
        known, order = self._sorted_ids
        if not len(known):
            return np.full(len(ids), -1, dtype=np.int64)
        places = np.searchsorted(known, ids).clip(max=len(known) - 1)
        return np.where(known[places] == ids, order[places], -1)

    def read(self, rows: NDArray[np.int64]) -> list[Tensor]:
        """Return some rows as float32.

        Args:
            rows: ``[B]``, in any order.

        Returns:
            A map ``[B, C, H, W]`` per stage.
        """
        return [torch.from_numpy(array[rows]).float() for array in self._arrays]

    @cached_property
    def _arrays(self) -> list[NDArray[np.float16]]:
        """The files, mapped into memory: ``[rows, C, H, W]`` per stage."""
        pairs = zip(self.files.stages, self.kind.shapes, strict=True)
        return [_map(path, (self.num_rows, *shape)) for path, shape in pairs]

    @cached_property
    def _sorted_ids(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The pictures' numbers in rising order, and their rows."""
        ids = np.fromfile(self.files.pictures, dtype="<u8", count=self.num_rows).astype(np.uint64)
        order = np.argsort(ids, kind="stable")
        return ids[order], order

    def _check(self, journal: Journal) -> None:
        """Compare sizes, and some chunks with their checksums."""
        for path, size in zip(self.files.rows, self.files.row_bytes, strict=True):
            found = path.stat().st_size if path.exists() else 0
            if found < self.num_rows * size:
                raise CacheError(f"{path.name} has {found:,} bytes, but {self.num_rows * size:,} were written")
        count = len(journal.chunks)
        for number in SystemRandom().sample(range(count), min(count, SAMPLE)):  # leaves the seeded generators alone
            span = journal.spans[number]
            if crc_of_rows(self.files.rows, self.files.row_bytes, span) != journal.chunks[number].checksums:
                raise CacheError(f"rows {span[0]} to {span[1]} are not what was written")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CacheError(f"{path.name} cannot be read: {error.strerror}") from error


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.float16]:
    """Map the rows of a file into memory, and start to read them ahead if they fit."""
    num_bytes = prod(shape) * DTYPE.itemsize
    if not num_bytes:
        return np.empty(shape, dtype=DTYPE)  # nothing cannot be mapped
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), num_bytes, access=mmap.ACCESS_READ)
    if hasattr(mapped, "madvise") and num_bytes <= READ_AHEAD_SHARE * _memory():
        mapped.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapped, dtype=DTYPE).reshape(shape)


def _memory() -> int:
    """Return the bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
