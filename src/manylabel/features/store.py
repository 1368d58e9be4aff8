"""Feature store: append-only float16 rows on disk, memory-mapped and verified before use.

A store is a folder: ``spec.json`` describes the features, ``journal.jsonl`` has a line per batch with its rows and
their checksums, the rows are in one float16 file per stage, and the ids of their images in ``images.u64``. Only what
the journal lists exists; a batch whose data do not match its checksums is dropped and recomputed.

Letters in shape comments: B rows asked for, N images asked for, C channels, H and W positions of a map.
"""

import logging
import mmap
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from rich.filesize import decimal
from torch import Tensor

from manylabel.errors import BusyError, CacheError, DiskFullError, StorageError
from manylabel.features.key import DTYPE, FeatureSpec
from manylabel.lock import WriterLock
from manylabel.storage import append, write_text
from manylabel.system import available_cores

logger = logging.getLogger(__name__)

READ_AHEAD = 0.5  # fraction of the machine's memory; smaller files are read ahead whole
SPARE_BYTES = 32 * 2**20  # left free on the disk, for the journal and other programs


class Chunk(msgspec.Struct, frozen=True):
    """A batch in a store: one line of its journal.

    Args:
        start: First row.
        end: Row after the last.
        checksums: CRC-32 of its bytes, per file.
    """

    start: int
    end: int
    checksums: tuple[int, ...]

    def to_line(self) -> bytes:
        """Return a line of the journal: a checksum, then JSON."""
        body = msgspec.json.encode(self)
        return b"%08x %s\n" % (zlib.crc32(body), body)


def parse_journal(content: bytes) -> list[Chunk]:
    r"""Return the chunks of a journal, skipping damaged lines and a partial last line.

    Examples:
        >>> chunk = Chunk(0, 4, (7,))
        >>> parse_journal(chunk.to_line() + b'0a1b2c3d {"start": 4, "e') == [chunk]
        True
    """
    chunks = []
    for line in content.split(b"\n"):
        checksum, _, body = line.partition(b" ")
        with suppress(ValueError, msgspec.MsgspecError):
            if int(checksum, 16) == zlib.crc32(body):
                chunks.append(msgspec.json.decode(body, type=Chunk))
    return chunks


class _Files:
    """Files of a store, and the bytes per row of each."""

    def __init__(self, folder: Path, spec: FeatureSpec) -> None:
        self.journal = folder / "journal.jsonl"
        self.spec = folder / "spec.json"
        self.stages = [folder / f"stage-{stage}.f16" for stage in spec.stages]
        self.ids = folder / "images.u64"
        self.rows = [*self.stages, self.ids]
        self.row_bytes = [*(prod(shape) * DTYPE.itemsize for shape in spec.shapes), 8]

    def lengths(self) -> list[int]:
        """Return the size of each file of rows in bytes; 0 if it does not exist."""
        return [path.stat().st_size if path.exists() else 0 for path in self.rows]


class FeatureStore:
    """Read access to the features of one spec, as on disk now; rows appended later need a new instance.

    Args:
        folder: Folder of the store; a missing one is an empty store.
        spec: Spec of the features.

    Attributes:
        chunks: The readable batches.
        damaged: Batches whose files were truncated or changed.

    Raises:
        CacheError: The files cannot be read.

    Examples:
        >>> import tempfile
        >>> spec = FeatureSpec(
        ...     dataset="pets", backbone="resnet10t", weights="b2", transform="Resize", stages=(3,),
        ...     shapes=((8, 1, 1),), pooling="average", view=0, seed=0,
        ... )
        >>> folder = Path(tempfile.mkdtemp()) / spec.key
        >>> with StoreWriter(folder, spec) as writer:
        ...     writer.append([np.ones((2, 8, 1, 1), np.float16)], ids=np.array([11, 22], np.uint64))
        >>> store = FeatureStore(folder, spec)
        >>> store.find(np.array([22, 33], np.uint64)), store.read(np.array([1]))[0].shape
        (array([ 1, -1]), torch.Size([1, 8, 1, 1]))
    """

    def __init__(self, folder: Path, spec: FeatureSpec) -> None:
        self.folder = folder
        self.spec = spec
        self.files = _Files(folder, spec)
        self.chunks: list[Chunk] = []
        self.damaged: list[Chunk] = []
        self._checked: set[Chunk] = set()
        try:
            self._load()
        except FileNotFoundError:
            return
        except OSError as error:
            raise CacheError(f"the features in {folder} cannot be read: {error.strerror or error}") from error
        with suppress(OSError):  # a read-only folder is fine
            os.utime(self.files.journal)  # records the time of last use
            if not self.files.spec.exists():
                write_text(self.files.spec, spec.to_json())

    def __len__(self) -> int:
        return sum(chunk.end - chunk.start for chunk in self.chunks)

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.folder)!r}: {len(self)} images)"

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the memory maps; another process maps the files itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_arrays", "_ids", "_index")}

    def find(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Look up the rows of images.

        Args:
            ids: ``[N]``, see `image_ids`.

        Returns:
            ``[N]``, -1 for images that are not stored.
        """
        known, rows = self._index
        if not len(known):
            return np.full(len(ids), -1, dtype=np.int64)
        positions = np.searchsorted(known, ids).clip(max=len(known) - 1)
        return np.where(known[positions] == ids, rows[positions], -1)

    def check(self, rows: NDArray[np.int64]) -> int:
        """Verify the checksums of all batches that contain some rows, once each, and drop damaged ones.

        Args:
            rows: Rows to be read; negative ones are ignored.

        Returns:
            Number of images whose features were dropped.
        """
        starts = np.array([chunk.start for chunk in self.chunks], dtype=np.int64)
        holders = np.unique(np.searchsorted(starts, rows[rows >= 0], side="right") - 1)
        unchecked = [chunk for chunk in map(self.chunks.__getitem__, holders) if chunk not in self._checked]
        num_bytes = sum(chunk.end - chunk.start for chunk in unchecked) * self.spec.bytes_per_image
        logger.info("verifying %.2f GB of features in %s", num_bytes / 1e9, self.folder)
        with ThreadPoolExecutor(min(available_cores(), 8)) as pool:  # checksums and reads release the GIL
            intact = list(pool.map(self._is_intact, unchecked))
        self._checked.update(unchecked)
        lost = {chunk for chunk, good in zip(unchecked, intact, strict=True) if not good}
        self.drop(lost)
        return sum(chunk.end - chunk.start for chunk in lost)

    def drop(self, lost: Collection[Chunk]) -> None:
        """Mark batches as damaged: their images are no longer found."""
        self.damaged += [chunk for chunk in self.chunks if chunk in lost]
        self.chunks = [chunk for chunk in self.chunks if chunk not in lost]
        vars(self).pop("_index", None)

    def read(self, rows: NDArray[np.int64]) -> list[Tensor]:
        """Read some rows as float32.

        Args:
            rows: ``[B]``, in any order.

        Returns:
            A map ``[B, C, H, W]`` per stage.
        """
        return [torch.from_numpy(array[rows]).float() for array in self._arrays]

    def _load(self) -> None:
        """Read journal and ids; a batch is readable if it lies within all files and its ids match their checksum."""
        listed = parse_journal(self.files.journal.read_bytes())
        num_rows = min(length // size for length, size in zip(self.files.lengths(), self.files.row_bytes, strict=True))
        end = 0
        for chunk in listed:
            inside = end <= chunk.start <= chunk.end <= num_rows and len(chunk.checksums) == len(self.files.rows)
            good = inside and zlib.crc32(self._ids[chunk.start : chunk.end].data) == chunk.checksums[-1]
            (self.chunks if good else self.damaged).append(chunk)
            end = chunk.end if good else end

    def _is_intact(self, chunk: Chunk) -> bool:
        """Verify the rows of all stages by file reads: in a memory map, a bad sector would crash the process."""
        try:
            for path, size, checksum in zip(self.files.stages, self.files.row_bytes, chunk.checksums, strict=False):
                with path.open("rb", buffering=0) as file:
                    file.seek(chunk.start * size)
                    if zlib.crc32(file.read((chunk.end - chunk.start) * size)) != checksum:
                        return False
        except OSError:
            return False
        return True

    @cached_property
    def _ids(self) -> NDArray[np.uint64]:
        return np.fromfile(self.files.ids, dtype="<u8") if self.files.ids.exists() else np.empty(0, dtype="<u8")

    @cached_property
    def _index(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Sorted ids and their rows."""
        spans = [np.arange(chunk.start, chunk.end, dtype=np.int64) for chunk in self.chunks]
        rows = np.concatenate([np.empty(0, np.int64), *spans])
        ids = self._ids[rows].astype(np.uint64)
        order = np.argsort(ids, kind="stable")
        return ids[order], rows[order]

    @cached_property
    def _arrays(self) -> list[NDArray[np.float16]]:
        """Memory-mapped files, ``[rows, C, H, W]`` per stage."""
        num_rows = max((chunk.end for chunk in self.chunks), default=0)
        pairs = zip(self.files.stages, self.spec.shapes, strict=True)
        return [_map(path, (num_rows, *shape)) for path, shape in pairs]


class StoreWriter:
    """Append features to a store, batch by batch; a context manager, for one process at a time.

    Args:
        folder: Folder of the store.
        spec: Spec of the features.
        damaged: Damaged batches, found by a `FeatureStore`, to drop from the journal.

    Attributes:
        store: The store as it was on entering the context.

    Raises:
        BusyError: Another process is writing.
        CacheError: The disk is full, or the folder is not writable.
    """

    def __init__(self, folder: Path, spec: FeatureSpec, *, damaged: Iterable[Chunk] = ()) -> None:
        self.folder = folder
        self.spec = spec
        self.files = _Files(folder, spec)
        self.lock = WriterLock(folder / "lock")
        self.store: FeatureStore
        self.num_images = 0
        self._given_up = set(damaged)

    def __enter__(self) -> Self:
        with self._disk_errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock.__enter__()
            try:
                self._open()
            except BaseException:
                self.lock.release()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def append(self, features: Sequence[NDArray[np.float16]], *, ids: NDArray[np.uint64]) -> None:
        """Append the features of some images.

        Args:
            features: ``[B, C, H, W]`` per stage.
            ids: ``[B]``, see `image_ids`.

        Raises:
            CacheError: The disk is full.
            BusyError: Another process took over.
        """
        rows = [np.ascontiguousarray(stage, dtype=DTYPE).tobytes() for stage in features]
        contents = [*rows, ids.astype("<u8").tobytes()]
        self.lock.renew()
        with self._disk_errors():
            start = self._align()
            chunk = Chunk(start, start + len(ids), tuple(map(zlib.crc32, contents)))
            for path, content in zip(self.files.rows, contents, strict=True):
                append(path, content)
            append(self.files.journal, chunk.to_line())
        self.num_images += len(ids)

    def _open(self) -> None:
        """Remove leftovers of a killed writer, and rewrite the journal without damaged batches."""
        for temporary in self.folder.glob(".*"):
            temporary.unlink()
        write_text(self.files.spec, self.spec.to_json(), overwrite=True)
        self.store = FeatureStore(self.folder, self.spec)
        self.store.drop(self._given_up)
        text = b"".join(chunk.to_line() for chunk in self.store.chunks).decode()
        if not self.files.journal.exists() or self.files.journal.read_bytes() != text.encode():
            write_text(self.files.journal, text, overwrite=True)
        self.num_images = len(self.store)

    def _align(self) -> int:
        """Pad all files of rows to the longest, and return their number of rows.

        A killed writer leaves some files longer than others. Existing bytes are never overwritten: a training process
        may have mapped them.
        """
        lengths = list(zip(self.files.rows, self.files.lengths(), self.files.row_bytes, strict=True))
        start = max(-(-length // size) for _, length, size in lengths)
        for path, length, size in lengths:
            if length != start * size:
                path.touch()
                os.truncate(path, start * size)
        return start

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn disk errors into messages that state what was saved and what to do."""
        try:
            yield
        except (BusyError, CacheError):
            raise
        except DiskFullError as error:
            raise CacheError(
                f"the disk of {self.folder} is full; the features of {self.num_images:,} images are saved: "
                "free some space and run the same command again"
            ) from error
        except OSError as error:
            reason = error if isinstance(error, StorageError) else error.strerror or error
            raise CacheError(
                f"cannot write features to {self.folder}: {reason}; set MANYLABEL_CACHE to a writable folder"
            ) from error


def check_room(folder: Path, *, num_bytes: int) -> None:
    """Check that a disk has room for features.

    Args:
        folder: Folder of the features; it need not exist yet.
        num_bytes: Size of the features in bytes.

    Raises:
        CacheError: There is not enough space.

    Examples:
        >>> check_room(Path("."), num_bytes=10**18)
        Traceback (most recent call last):
        manylabel.errors.CacheError: the features take 1.0 EB, but the disk of . has ... free; ...
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if num_bytes and num_bytes + SPARE_BYTES > free:
        raise CacheError(
            f"the features take {decimal(num_bytes)}, but the disk of {folder} has {decimal(free)} free; set "
            "MANYLABEL_CACHE to a folder on another disk, free space with 'manylabel cache remove', or cache pooled "
            "features or fewer views"
        )


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.float16]:
    """Memory-map the rows of a file, and start reading ahead if they fit into memory."""
    num_bytes = prod(shape) * DTYPE.itemsize
    if not num_bytes:
        return np.empty(shape, dtype=DTYPE)  # an empty file cannot be mapped
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), num_bytes, access=mmap.ACCESS_READ)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of the machine, in bytes
    if hasattr(mapped, "madvise") and num_bytes <= READ_AHEAD * memory:
        mapped.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapped, dtype=DTYPE).reshape(shape)
