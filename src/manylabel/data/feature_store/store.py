"""Features on disk, whole and checked, read without a loop over pictures.

A store is a folder: one file of float16 rows per stage, ``journal.jsonl`` (what was written when, with checksums),
``request.json`` (what the features are of) and, once all is there, ``manifest.json``. Without the last it is not taken
for whole.

Letters in shape comments: B rows asked for, C channels, H and W cells.
"""

from __future__ import annotations

import json
import mmap
import os
from functools import cached_property
from math import prod
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel.data.feature_store.journal import Journal
from manylabel.data.feature_store.request import DTYPE, FeatureRequest, checksum
from manylabel.errors import CacheError
from manylabel.types import BadPicture

__all__ = ["JOURNAL", "LOCK", "MANIFEST", "REQUEST", "FeatureStore", "stage_files"]

JOURNAL: Final = "journal.jsonl"
LOCK: Final = "lock"
MANIFEST: Final = "manifest.json"
REQUEST: Final = "request.json"
SAMPLE = 4  # chunks compared with their checksums on each opening; others each time
PREFETCH_SHARE = 0.5  # of the machine's memory: a store that takes no more is read ahead as a whole


class FeatureStore:
    """Features of one view of each picture.

    Args:
        folder: Where it is.

    Attributes:
        request: What the features are of.
        bad: The pictures that could not be decoded and have no row.

    Raises:
        CacheError: It is not whole, or damaged.

    Example:
        >>> import tempfile
        >>> from manylabel.data.feature_store import StoreWriter
        >>> request = FeatureRequest(
        ...     "a1", 2, weights="b2", transform="Resize", stages=(3,), shapes=((8, 1, 1),), pooling="average",
        ...     view=0, seed=0, dataset="pets", backbone="resnet10t",
        ... )
        >>> with StoreWriter(Path(tempfile.mkdtemp()) / request.key, request) as writer:
        ...     writer.append([np.ones((2, 8, 1, 1), np.float16)], end=2)
        ...     folder = writer.finish()
        >>> FeatureStore(folder).read(np.array([1]))[0].shape
        torch.Size([1, 8, 1, 1])
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            manifest = _read_manifest(folder / MANIFEST)
            self.request = FeatureRequest.from_dict(manifest["request"])
            self.num_rows: int = manifest["rows"]
            self.bad = [BadPicture(*picture) for picture in manifest["bad"]]
            self._check_sizes()
            self._check_sample()
        except CacheError as error:
            raise CacheError(f"the cached features in {folder} cannot be used: {error}") from error

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.folder)!r}: {self.num_rows} rows, {self.request.num_pictures} pictures)"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the mapped files out: another process maps them again."""
        return {name: value for name, value in vars(self).items() if name != "arrays"}

    @cached_property
    def arrays(self) -> list[NDArray[np.float16]]:
        """The files, mapped into memory: ``[rows, C, H, W]`` per stage."""
        names = stage_files(self.request)
        return [
            _map(self.folder / name, (self.num_rows, *shape))
            for name, shape in zip(names, self.request.shapes, strict=True)
        ]

    def read(self, rows: NDArray[np.int64]) -> list[Tensor]:
        """Return some rows as float32.

        Args:
            rows: ``[B]``, in any order.

        Returns:
            A map ``[B, C, H, W]`` per stage.
        """
        return [torch.from_numpy(array[rows]).float() for array in self.arrays]

    def rows_of_pictures(self) -> NDArray[np.int64]:
        """Return the row of each picture of the data set; -1 for those that have none."""
        good = np.ones(self.request.num_pictures, dtype=bool)
        good[[picture.index for picture in self.bad]] = False
        return np.where(good, np.cumsum(good) - 1, -1)

    def _check_sizes(self) -> None:
        for name, shape in zip(stage_files(self.request), self.request.shapes, strict=True):
            path, expected = self.folder / name, self.num_rows * prod(shape) * DTYPE.itemsize
            found = path.stat().st_size if path.exists() else 0
            if found != expected:
                raise CacheError(f"{name} has {found:,} bytes instead of {expected:,}")

    def _check_sample(self) -> None:
        """Compare some chunks with their checksums."""
        journal = Journal.parse(_read_text(self.folder / JOURNAL))
        if journal.last.rows != self.num_rows or journal.bad != self.bad:
            raise CacheError(f"{JOURNAL} does not belong to {MANIFEST}")
        count = len(journal.chunks)
        for number in SystemRandom().sample(range(count), min(count, SAMPLE)):  # leaves the seeded generators alone
            journal.check(number, self.arrays)


def stage_files(request: FeatureRequest) -> list[str]:
    """Return the names of the files of rows, one per stage."""
    return [f"stage-{stage}.f16" for stage in request.stages]


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise CacheError("it was not written to the end")
    try:
        manifest: dict[str, Any] = json.loads(_read_text(path))
        expected = manifest.pop("checksum")
    except (ValueError, KeyError, AttributeError) as error:
        raise CacheError(f"{MANIFEST} is damaged") from error
    if checksum(manifest) != expected:
        raise CacheError(f"{MANIFEST} was changed")
    return manifest


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CacheError(f"{path.name} cannot be read: {error}") from error


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.float16]:
    """Map a file into memory, and start to read it ahead if it fits."""
    if not prod(shape):
        return np.empty(shape, dtype=DTYPE)  # an empty file cannot be mapped
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mapped, "madvise") and len(mapped) <= PREFETCH_SHARE * _memory():
        mapped.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapped, dtype=DTYPE).reshape(shape)


def _memory() -> int:
    """Return the bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
