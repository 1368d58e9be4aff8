"""Looking at every picture of a data set once, on all cores: its size, a hash of its file, a thumbnail, or why not.

Letters in shape comments: N pictures, S pixels of a thumbnail's side.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from pickle import PicklingError

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.data.check.duplicates import THUMBNAIL_SIDE
from manylabel.data.sources import ImageSource
from manylabel.errors import ConfigError, ImageError
from manylabel.images import decode, image_size
from manylabel.system import available_cores
from manylabel.types import BadImage

__all__ = ["Inspection", "Progress", "inspect_pictures"]

Progress = Callable[[int, int], None]
"""Told how many pictures are done, and of how many."""

_CHUNK = 32
_FEW = 256  # starting processes takes longer than this many pictures
_DECODE_SIDE = 4 * THUMBNAIL_SIDE  # a JPEG decoded at reduced scale is still read to its end, so damage is found

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was seen of each picture.

    Args:
        sizes: ``[N, 2]``, height and width, upright; 0 where the picture cannot be read.
        digests: ``[N]``, a hash of the encoded picture.
        thumbnails: ``[N, S, S]``, grey.
        bad: The pictures that cannot be read.
    """

    sizes: NDArray[np.int32]
    digests: NDArray[np.uint64]
    thumbnails: NDArray[np.uint8]
    bad: tuple[BadImage, ...]

    @classmethod
    def empty(cls, count: int) -> Inspection:
        """Return the inspection of pictures of which nothing is known yet."""
        return cls(
            sizes=np.zeros((count, 2), dtype=np.int32),
            digests=np.zeros(count, dtype=np.uint64),
            thumbnails=np.zeros((count, THUMBNAIL_SIDE, THUMBNAIL_SIDE), dtype=np.uint8),
            bad=(),
        )

    @property
    def readable(self) -> NDArray[np.int64]:
        """Positions of the pictures that can be read."""
        return np.flatnonzero(self.sizes[:, 0])


def inspect_pictures(
    pictures: ImageSource, *, num_workers: int | None = None, progress: Progress | None = None
) -> Inspection:
    """Decode every picture once and note what a check wants to know.

    Args:
        pictures: The encoded pictures.
        num_workers: Processes to decode in; 0 for this one; when left out one per core, or this one for few pictures.
            A picture whose process dies is recorded as bad.
        progress: Called with the number of pictures done and of all.

    Raises:
        ConfigError: `num_workers` is negative.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> inspect_pictures(Files("photos", ["gone.jpg"])).bad
        (BadImage(index=0, name='gone.jpg', reason='there is no such file'),)
    """
    total = len(pictures)
    if num_workers is None:
        num_workers = available_cores() if total >= _FEW else 0
    if num_workers < 0:
        raise ConfigError(f"num_workers must be 0 or more, got {num_workers}")
    spans = [range(start, min(start + _CHUNK, total)) for start in range(0, total, _CHUNK)]
    whole, bad, done = Inspection.empty(total), list[BadImage](), 0
    # Closed at once when Ctrl-C comes: a pool that is only forgotten works on to its end.
    with closing(_in_processes(pictures, spans, num_workers) if num_workers else _here(pictures, spans)) as parts:
        for span, seen in parts:
            where = slice(span.start, span.stop)
            whole.sizes[where], whole.digests[where], whole.thumbnails[where] = (
                seen.sizes,
                seen.digests,
                seen.thumbnails,
            )
            bad.extend(seen.bad)
            done += len(span)
            if progress is not None:
                progress(done, total)
    return replace(whole, bad=tuple(sorted(bad, key=lambda picture: picture.index)))


def _inspect_span(pictures: ImageSource, span: range) -> Inspection:
    """Inspect some pictures, one after the other."""
    seen, bad = Inspection.empty(len(span)), list[BadImage]()
    for row, index in enumerate(span):
        name = pictures.name(index)
        try:
            source = _fetch(pictures, index)
            image = decode(source, name=name, at_least=(_DECODE_SIDE, _DECODE_SIDE))
            content = source if isinstance(source, bytes) else source.read_bytes()
            seen.sizes[row] = image_size(content, name=name)
        except (ImageError, OSError) as error:
            bad.append(BadImage(index, name, error.reason if isinstance(error, ImageError) else str(error)))
            continue
        seen.digests[row] = int.from_bytes(blake2b(content, digest_size=8).digest())
        seen.thumbnails[row] = np.asarray(image.convert("L").resize((THUMBNAIL_SIDE,) * 2, Image.Resampling.BOX))
    return replace(seen, bad=tuple(bad))


def _fetch(pictures: ImageSource, index: int) -> Path | bytes:
    try:
        return pictures[index]
    except Exception as error:
        raise ImageError(pictures.name(index), f"it could not be fetched: {error!r}") from error


def _here(pictures: ImageSource, spans: Iterable[range]) -> Generator[tuple[range, Inspection], None, None]:
    for span in spans:
        yield span, _inspect_span(pictures, span)


def _in_processes(
    pictures: ImageSource, spans: Iterable[range], num_workers: int
) -> Generator[tuple[range, Inspection], None, None]:
    """Yield the inspection of each span as it is done; the death of a process costs one picture at most."""
    left = dict.fromkeys(spans)
    while left:
        with _pool(pictures, num_workers) as pool:
            if pool is None:
                yield from _here(pictures, left)
                return
            futures = {pool.submit(_work, span): span for span in left}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
                    del left[futures[future]]
            except BrokenProcessPool:
                logger.warning("a process that decodes pictures died; looking for the picture that it died of")
        # Spans start in order, so the one that killed its process is among the first: at work, or next in line.
        suspects = list(left)[: 2 * num_workers + 1]
        yield from _one_by_one(pictures, [index for span in suspects for index in span])
        for span in suspects:
            del left[span]


def _one_by_one(pictures: ImageSource, indices: Iterable[int]) -> Generator[tuple[range, Inspection], None, None]:
    """Yield the inspection of each picture; one whose process dies is bad."""
    waiting = deque(range(index, index + 1) for index in indices)
    while waiting:
        with _pool(pictures, 1) as pool:
            try:
                while waiting:
                    seen = (
                        _inspect_span(pictures, waiting[0]) if pool is None else pool.submit(_work, waiting[0]).result()
                    )
                    yield waiting.popleft(), seen
            except BrokenProcessPool:
                span = waiting.popleft()
                bad = BadImage(span.start, pictures.name(span.start), "the process that decoded it died")
                yield span, replace(Inspection.empty(1), bad=(bad,))


@contextmanager
def _pool(pictures: ImageSource, num_workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Give a pool whose processes know the pictures, or None where processes cannot be had."""
    # Forking a process that has threads is not safe, and starting each one anew imports torch as often.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(num_workers, mp_context=context, initializer=_start_worker, initargs=(pictures,))
    try:
        pool.submit(_work, range(0)).result()
    except (BrokenProcessPool, PicklingError, AttributeError, TypeError) as error:
        logger.warning("decoding in one process, as others cannot be started: %s", error)
        yield None
    else:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


_pictures_of_worker: ImageSource


def _start_worker(pictures: ImageSource) -> None:
    """Keep the pictures in the process, so that each task is only a range of positions."""
    global _pictures_of_worker
    _pictures_of_worker = pictures
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others


def _work(span: range) -> Inspection:
    return _inspect_span(_pictures_of_worker, span)
