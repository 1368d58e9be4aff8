"""Decoding while the model computes: worker processes decode and resize the next batches, a bounded number ahead.

Letters in shape comments: B pictures, H and W pixels.
"""

from __future__ import annotations

import http.client
import itertools
import queue
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from manylabel.errors import ConfigError, ImageError
from manylabel.images import Pixels, prepare
from manylabel.inference.listing import is_address
from manylabel.inference.workers import WorkerDiedError, WorkerProcess
from manylabel.system import available_cores
from manylabel.types import InputSpec

__all__ = ["DecodedBatch", "DecodingPool", "decode_batch", "decode_batches", "default_workers"]

SECONDS_TO_FETCH = 30
MOST_BYTES = 100_000_000  # of a picture that is fetched
_ENDED = "the process that decoded it was ended; it may need more memory than there is"
FEW_BATCHES = 2  # so few are decoded by a thread: processes would take longer to start


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """Pictures ready for a model.

    Args:
        names: What each picture is called.
        pixels: ``[B, H, W, 3]``, of those that could be read.
        reasons: Why a picture could not be read, for each name; nothing where it could.
    """

    names: tuple[str, ...]
    pixels: Pixels
    reasons: tuple[str | None, ...]


def default_workers() -> int:
    """Return how many processes decode: half of the cores, the model needs the others."""
    return max(1, min(8, available_cores() // 2))


def decode_batches(
    names: Iterable[str], spec: InputSpec, *, batch_size: int = 32, num_workers: int = 0
) -> Iterator[DecodedBatch]:
    """Decode pictures ahead of whoever takes them, in their order.

    A picture on which a worker dies is given as one that cannot be read, and the others go on.

    Args:
        names: Paths and addresses; taken as they are needed.
        spec: How the model wants its pictures.
        batch_size: Pictures per batch.
        num_workers: Processes that decode; 0 decodes in a thread, as do a few pictures whatever this says.

    Yields:
        The batches.

    Raises:
        ConfigError: A setting is wrong.
    """
    if batch_size < 1 or num_workers < 0:
        raise ConfigError(f"batch_size must be at least 1 and num_workers 0, got {batch_size} and {num_workers}")
    batches = _batched(iter(names), batch_size)
    first = list(itertools.islice(batches, FEW_BATCHES + 1))
    processes = num_workers if len(first) > FEW_BATCHES else 0
    with DecodingPool(processes) as pool:
        pending: deque[Future[DecodedBatch]] = deque()
        for batch in itertools.chain(first, batches):
            pending.append(pool.submit(batch, spec))
            if len(pending) > 2 * max(processes, 1):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class DecodingPool:
    """Threads, each with a process that decodes for it; or one thread that decodes by itself.

    Args:
        num_processes: How many processes; 0 decodes in a thread.

    Examples:
        >>> with DecodingPool(1) as pool:
        ...     pool.submit(("no_such.jpg",), InputSpec(size=(8, 8))).result().reasons
        ('there is no such file',)
    """

    def __init__(self, num_processes: int) -> None:
        self.num_processes = num_processes
        self.threads = ThreadPoolExecutor(max(1, num_processes))
        self.idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()

    def __enter__(self) -> DecodingPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.shutdown(cancel_futures=True)
        while not self.idle.empty():
            self.idle.get().close()

    def submit(self, names: tuple[str, ...], spec: InputSpec) -> Future[DecodedBatch]:
        """Let a batch be decoded."""
        return self.threads.submit(self._decode if self.num_processes else decode_batch, names, spec)

    def _decode(self, names: tuple[str, ...], spec: InputSpec) -> DecodedBatch:
        """Decode in a process; if it dies, each picture by itself, so that one of them is found to be the reason."""
        worker = WorkerProcess() if self.idle.empty() else self.idle.get()
        batches = []
        try:
            batches.append(worker.call(names, spec))
        except WorkerDiedError:
            for name in names:
                try:
                    worker = worker if worker.is_alive else WorkerProcess()
                    batches.append(worker.call((name,), spec))
                except WorkerDiedError:
                    batches.append(DecodedBatch((name,), _nothing(spec), (_ENDED,)))
        self.idle.put(worker if worker.is_alive else WorkerProcess())
        return DecodedBatch(
            names,
            np.concatenate([batch.pixels for batch in batches]),
            tuple(reason for batch in batches for reason in batch.reasons),
        )


def decode_batch(names: tuple[str, ...], spec: InputSpec) -> DecodedBatch:
    """Decode a batch; this is what workers do.

    Examples:
        >>> decode_batch(("no_such.jpg",), InputSpec(size=(8, 8))).reasons
        ('there is no such file',)
    """
    pixels: list[Pixels] = []
    reasons: list[str | None] = []
    for name in names:
        try:
            pixels.append(prepare(_fetch(name) if is_address(name) else name, spec, name=name))
            reasons.append(None)
        except ImageError as error:
            reasons.append(error.reason)
    return DecodedBatch(names, np.stack(pixels) if pixels else _nothing(spec), tuple(reasons))


def _nothing(spec: InputSpec) -> Pixels:
    return np.empty((0, *spec.size, 3), dtype=np.uint8)


def _fetch(address: str) -> bytes:
    """Return what is at an address of the web."""
    request = urllib.request.Request(address, headers={"User-Agent": "manylabel"})  # noqa: S310 - `is_address` saw it
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_TO_FETCH) as answer:  # noqa: S310 - likewise
            content: bytes = answer.read(MOST_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else str(error)
        raise ImageError(address, f"it could not be fetched: {reason}") from error
    if len(content) > MOST_BYTES:
        raise ImageError(address, f"it has more than {MOST_BYTES:,} bytes")
    return content


def _batched(names: Iterator[str], size: int) -> Iterator[tuple[str, ...]]:
    while batch := tuple(itertools.islice(names, size)):
        yield batch
