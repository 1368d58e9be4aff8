"""Keys of cached features: the spec that determines a store, and the ids of the images in it.

Letters in shape comments: N images.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from manylabel.data.sources import ImageSource, JoinedSource, LazyBytes
from manylabel.errors import CacheError
from manylabel.heads.head import PooledInput

FORMAT = 2  # of the files; part of the key
DTYPE = np.dtype("<f2")  # half the size of float32; fixed byte order
BLOCK = 4096  # bytes hashed at the start, middle and end of a file


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """Everything that determines features, except the images.

    Args:
        dataset: Name of the dataset; each has its own features, so they can be removed separately.
        backbone: Name of the backbone.
        weights: Fingerprint of its weights.
        transform: The `repr` of the transform.
        stages: The backbone's stages, counted from the input.
        shapes: Channels, height and width per stage, as stored.
        pooling: Pooling of the maps.
        view: 0 is the image as in evaluation, others are augmented.
        seed: Seed of the augmentation; 0 for view 0, which has none.
        format: Version of the file format.

    Examples:
        >>> spec = FeatureSpec(
        ...     dataset="pets", backbone="resnet10t", weights="b2", transform="Resize", stages=(3,),
        ...     shapes=((512, 7, 7),), pooling="none", view=0, seed=0,
        ... )
        >>> len(spec.key), spec.bytes_per_image
        (16, 50176)
    """

    dataset: str
    backbone: str
    weights: str
    transform: str
    stages: tuple[int, ...]
    shapes: tuple[tuple[int, int, int], ...]
    pooling: PooledInput
    view: int
    seed: int
    format: int = FORMAT

    @cached_property
    def key(self) -> str:
        """Key of the store: 16 hexadecimal digits, a hash of all fields."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    @property
    def bytes_per_image(self) -> int:
        """Bytes per image on disk."""
        return sum(map(prod, self.shapes)) * DTYPE.itemsize

    def to_json(self) -> str:
        """Serialise to JSON."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> "FeatureSpec":
        """Restore a spec from `to_json`.

        Raises:
            CacheError: It is damaged, or of another version.
        """
        try:
            spec = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise CacheError(f"this is not a spec of cached features: {error}") from error
        if spec.format != FORMAT:
            raise CacheError(f"these features have format {spec.format}, this version of manylabel reads {FORMAT}")
        return spec


def image_ids(source: ImageSource) -> NDArray[np.uint64]:
    """Return an id for each image, which changes when the image does.

    A file is identified by its name, size, modification times and three blocks of its content, which takes a hundredth
    of the decoding time; the folder may be moved. Bytes are identified by their content, unless their source has an
    `identity`. Two of a million images collide in one of 30 million datasets.

    Args:
        source: The images; a missing one gets an id, too.

    Returns:
        ``[N]``.

    Examples:
        >>> drawn = LazyBytes(["a", "b"], load=lambda position: bytes([position]))
        >>> bool((image_ids(drawn)[[1, 0]] == image_ids(drawn.take([1, 0]))).all())
        True
    """
    digests = b"".join(hashlib.blake2b(line, digest_size=8).digest() for line in _identities(source))
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _identities(source: ImageSource) -> Iterator[bytes]:
    """Yield the bytes that identify each image, for each part of a joined source in turn."""
    if isinstance(source, JoinedSource):
        for part in source.parts:
            yield from _identities(part)
        return
    for index in range(len(source)):
        yield source.name(index).encode(errors="surrogateescape") + b"\n" + _content(source, index)


def _content(source: ImageSource, index: int) -> bytes:
    if isinstance(source, LazyBytes) and source.identity is not None:
        return f"{source.identity} {index if source.positions is None else source.positions[index]}".encode()
    try:
        image = source[index]
        return _file_content(image) if isinstance(image, Path) else hashlib.sha256(image).digest()
    except Exception:  # noqa: BLE001 - whatever fails here fails again when the image is decoded, and is reported there
        return b"missing"


def _file_content(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        blocks = []
        for start in sorted({0, max(status.st_size // 2 - BLOCK // 2, 0), max(status.st_size - BLOCK, 0)}):
            file.seek(start)
            blocks.append(file.read(BLOCK))
    # Unlike mtime, ctime cannot be set back.
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n".encode() + b"".join(blocks)
