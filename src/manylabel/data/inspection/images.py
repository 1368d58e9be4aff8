"""Inspection of every image of a dataset, on all cores: size, hash, thumbnail or error; and duplicate detection.

Each image is reduced to a grey thumbnail. Its 64-bit perceptual hash (the signs of its low frequencies) proposes
candidate pairs; the correlation of the two thumbnails decides. Of 300 photos that were recompressed, halved,
doubled, squashed or brightened, at least 99 % were found each time; with 1 % cropped from each side, 97 %.

Letters in shape comments: N images, P pairs, S pixels of a thumbnail's side.
"""

import logging
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from pickle import PicklingError
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from manylabel.data.sources import ImageSource, fetch
from manylabel.errors import ConfigError, ImageError
from manylabel.images import decode, image_size
from manylabel.system import available_cores
from manylabel.types import BadImage

Progress = Callable[[int, int], None]  # called with the number of images done and the total
Measured: TypeAlias = tuple[tuple[int, int], int, NDArray[np.uint8]] | BadImage  # size, digest and thumbnail
Scalar = TypeVar("Scalar", bound=np.generic)

THUMBNAIL_SIDE = 16
_MOST_BITS_APART = 6  # of 64; `near_hashes` relies on it
_LEAST_CORRELATION = 0.95
_LEAST_CONTRAST = 3.0  # grey levels; flatter thumbnails cannot be compared
_BLOCK = 1 << 16  # images or pairs at a time, to bound memory
_CHUNK = 32
_FEW = 256  # fewer images take less time than starting processes
_DECODE_SIDE = 4 * THUMBNAIL_SIDE  # reduced-scale JPEG decoding still reads the whole file, so damage is found

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Inspection:
    """Measurements of each image.

    Args:
        sizes: ``[N, 2]``, upright height and width; 0 where the image cannot be read.
        digests: ``[N]``, a hash of the encoded image.
        thumbnails: ``[N, S, S]``, grey.
        bad: The images that cannot be read.
    """

    sizes: NDArray[np.int32]
    digests: NDArray[np.uint64]
    thumbnails: NDArray[np.uint8]
    bad: tuple[BadImage, ...]

    @property
    def readable(self) -> NDArray[np.int64]:
        """Positions of the images that can be read."""
        return np.flatnonzero(self.sizes[:, 0])


def inspect_images(
    images: ImageSource, *, num_workers: int | None = None, progress: Progress | None = None
) -> Inspection:
    """Decode every image once and measure it.

    Args:
        images: The encoded images.
        num_workers: Number of decoding processes; 0 decodes in this one (default: one per core, 0 for few images). An
            image whose process dies is recorded as bad.
        progress: Called with the number of images done and the total.

    Raises:
        ConfigError: `num_workers` is negative.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> inspect_images(Files("photos", ["gone.jpg"])).bad
        (BadImage(index=0, name='gone.jpg', reason='there is no such file'),)
    """
    total = len(images)
    if num_workers is None:
        num_workers = available_cores() if total >= _FEW else 0
    if num_workers < 0:
        raise ConfigError(f"num_workers must be 0 or more, got {num_workers}")
    spans = [range(start, min(start + _CHUNK, total)) for start in range(0, total, _CHUNK)]
    sizes, digests = np.zeros((total, 2), dtype=np.int32), np.zeros(total, dtype=np.uint64)
    thumbnails = np.zeros((total, THUMBNAIL_SIDE, THUMBNAIL_SIDE), dtype=np.uint8)
    bad, done = list[BadImage](), 0
    # Closed explicitly on Ctrl-C: an abandoned pool would run to completion.
    with closing(_measure_spans(images, spans, num_workers)) as parts:
        for span, found in parts:
            for index, measured in zip(span, found, strict=True):
                if isinstance(measured, BadImage):
                    bad.append(measured)
                else:
                    sizes[index], digests[index], thumbnails[index] = measured
            done += len(span)
            if progress is not None:
                progress(done, total)
    return Inspection(sizes, digests, thumbnails, tuple(sorted(bad, key=lambda image: image.index)))


def _measure(images: ImageSource, index: int) -> Measured:
    name = images.name(index)
    try:
        source = fetch(images, index)
        image = decode(source, name=name, at_least=(_DECODE_SIDE, _DECODE_SIDE))
        content = source if isinstance(source, bytes) else source.read_bytes()
        size = image_size(content, name=name)
    except (ImageError, OSError) as error:
        return BadImage(index, name, error.reason if isinstance(error, ImageError) else str(error))
    thumbnail = image.convert("L").resize((THUMBNAIL_SIDE,) * 2, Image.Resampling.BOX)
    return size, int.from_bytes(blake2b(content, digest_size=8).digest()), np.asarray(thumbnail)


def _measure_spans(
    images: ImageSource, spans: Iterable[range], num_workers: int
) -> Generator[tuple[range, list[Measured]], None, None]:
    """Yield the measurements of each span; a worker's death costs at most one image."""
    left = dict.fromkeys(spans)
    while left:
        with _pool(images, num_workers) as pool:
            if pool is None:
                yield from ((span, [_measure(images, index) for index in span]) for span in left)
                return
            futures: dict[range, Future[list[Measured]]] = {}
            with suppress(BrokenProcessPool):
                for span in left:
                    futures[span] = pool.submit(_work, span)
            for span, future in futures.items():
                with suppress(BrokenProcessPool):
                    yield span, future.result()
                    del left[span]
        if not left:
            return
        suspects = list(left)[: 2 * num_workers + 1]  # spans start in order, so the deadly one is among the first
        first = suspects[0]
        if num_workers == 1 and len(first) == 1:  # nothing else was running
            suspects = [first]
            yield first, [BadImage(first.start, images.name(first.start), "the process that decoded it died")]
        else:
            logger.warning("an image-decoding worker died; searching for the image that caused it")
            yield from _measure_spans(images, (range(index, index + 1) for span in suspects for index in span), 1)
        for span in suspects:
            del left[span]


@contextmanager
def _pool(images: ImageSource, num_workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Yield a pool whose workers hold the images, or None where processes are not wanted or cannot be started."""
    if not num_workers:
        yield None
        return
    # Forking a process with threads is unsafe, and spawning would import torch in every worker.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(num_workers, mp_context=context, initializer=_start_worker, initargs=(images,))
    try:
        pool.submit(_work, range(0)).result()
    except (BrokenProcessPool, PicklingError, AttributeError, TypeError) as error:
        logger.warning("cannot start worker processes, decoding in the main process: %s", error)
        yield None
    else:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


_images_of_worker: ImageSource


def _start_worker(images: ImageSource) -> None:
    """Store the images in the worker; tasks then carry only a range of positions."""
    global _images_of_worker
    _images_of_worker = images
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main one stops the workers


def _work(span: range) -> list[Measured]:
    return [_measure(_images_of_worker, index) for index in span]


def duplicate_groups(digests: NDArray[np.uint64], thumbnails: NDArray[np.uint8]) -> list[NDArray[np.int64]]:
    """Return groups of exact and near duplicates, as sorted positions.

    Args:
        digests: ``[N]``, a hash of each file.
        thumbnails: ``[N, S, S]``, grey.

    Examples:
        >>> noise = np.random.default_rng(0).integers(0, 256, (3, 16, 16), dtype=np.uint8)
        >>> duplicate_groups(np.array([7, 8, 7], dtype=np.uint64), noise)
        [array([0, 2])]
    """
    _, first, copy_of = np.unique(digests, return_index=True, return_inverse=True)
    same = np.stack([np.arange(len(digests)), first[copy_of]], axis=1)  # [N, 2], each image and its first copy
    near = first[near_pairs(thumbnails[first])]  # [P, 2]
    joined = np.concatenate([same, near])
    graph = coo_array((np.ones(len(joined), dtype=bool), joined.T), shape=(len(digests), len(digests)))
    _, group_of = connected_components(graph, directed=False)
    order = np.argsort(group_of, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=lambda group: int(group[0]))


def near_pairs(thumbnails: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the pairs ``[P, 2]`` of near-duplicate images.

    Flat images are skipped: all white pages look alike.

    Args:
        thumbnails: ``[N, S, S]``, grey.

    Examples:
        >>> image = np.random.default_rng(0).integers(0, 200, (16, 16), dtype=np.uint8)
        >>> near_pairs(np.stack([image, image.T, image + 9])).tolist()
        [[0, 2]]
    """
    contrast = np.concatenate([np.empty(0), *(block.std(axis=(1, 2)) for block in _blocks(thumbnails))])
    telling = np.flatnonzero(contrast >= _LEAST_CONTRAST)
    pairs = telling[near_hashes(perceptual_hashes(thumbnails[telling]))]
    likeness = [_correlation(thumbnails[left], thumbnails[right]) for left, right in map(np.transpose, _blocks(pairs))]
    return pairs[np.concatenate([np.empty(0), *likeness]) >= _LEAST_CORRELATION]


def perceptual_hashes(thumbnails: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a 64-bit perceptual hash per thumbnail, ``[N]``: its 8 x 8 lowest frequencies compared with their median.

    Args:
        thumbnails: ``[N, S, S]``, grey.

    Examples:
        >>> ramp = np.tile(np.arange(0, 160, 10, dtype=np.uint8), (16, 1))
        >>> dark, light = perceptual_hashes(np.stack([ramp, ramp + 90]))
        >>> bool(dark == light)
        True
    """
    hashes = [np.empty(0, dtype=np.uint64)]
    for block in _blocks(thumbnails):
        waves = dctn(block.astype(np.float32), axes=(1, 2))[:, :8, :8].reshape(len(block), 64)
        median = np.median(waves[:, 1:], axis=1, keepdims=True)  # without the mean brightness
        hashes.append(np.packbits(waves > median, axis=1).view(np.uint64)[:, 0])
    return np.concatenate(hashes)


def near_hashes(hashes: NDArray[np.uint64], *, at_most: int = 64) -> NDArray[np.int64]:
    """Return pairs ``[P, 2]`` that link all hashes within 6 bits of each other, without comparing all pairs.

    Two hashes that differ in at most 6 bits agree in at least two of their 8 bytes, so sorting by each pair of bytes
    makes them neighbours. Of equal hashes, each is linked to the one before it; only the first is linked to others.

    Args:
        hashes: ``[N]``, 64 bits each.
        at_most: Number of neighbours to compare a hash with in each order. A pair may be missed where more hashes
            agree in the same two bytes, as among millions of images or very many similar ones.

    Examples:
        >>> near_hashes(np.array([0b0000, 0b1111_1111_1111, 0b0011], dtype=np.uint64)).tolist()
        [[0, 2]]
    """
    order = np.argsort(hashes, kind="stable")
    is_equal = hashes[order[1:]] == hashes[order[:-1]]
    equal = np.stack([order[:-1], order[1:]], axis=1)[is_equal]
    order = order[~np.concatenate([[False], is_equal])[: len(order)]]
    in_bytes = hashes[order].view(np.uint8).reshape(-1, 8)
    found = [equal]
    for one, other in combinations(range(8), 2):
        keys = in_bytes[:, one].astype(np.uint16) << 8 | in_bytes[:, other]
        by_key = np.argsort(keys, kind="stable")  # a radix sort; hashes with equal keys stay in order
        found.append(_near_neighbours(hashes, order[by_key], keys[by_key], at_most=at_most))
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)


def _near_neighbours(
    hashes: NDArray[np.uint64], order: NDArray[np.int64], keys: NDArray[np.uint16], *, at_most: int
) -> NDArray[np.int64]:
    """Return the near pairs among hashes that share a key, given hashes sorted by key."""
    found = [np.empty((0, 2), dtype=np.int64)]
    in_order = hashes[order]
    starts = np.arange(len(order))
    for step in range(1, at_most + 1):
        starts = starts[: np.searchsorted(starts, len(order) - step)]
        starts = starts[keys[starts] == keys[starts + step]]
        if not len(starts):
            break
        near = starts[np.bitwise_count(in_order[starts] ^ in_order[starts + step]) <= _MOST_BITS_APART]
        found.append(np.stack([order[near], order[near + step]], axis=1))
    return np.concatenate(found)


def _correlation(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the correlation of thumbnails, ``[P]``, independent of brightness and contrast."""
    return np.asarray((_standardised(left) * _standardised(right)).mean(axis=(1, 2)))


def _standardised(thumbnails: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Scale each thumbnail to mean 0 and standard deviation 1."""
    centred = thumbnails - thumbnails.mean(axis=(1, 2), keepdims=True)
    return np.asarray(centred / thumbnails.std(axis=(1, 2), keepdims=True))


def _blocks(rows: NDArray[Scalar]) -> list[NDArray[Scalar]]:
    """Split an array into blocks of bounded size."""
    return [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
