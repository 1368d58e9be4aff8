"""Image sources: files on disk, or bytes generated or fetched on access.

A source is a sequence of encoded images. Nothing is opened or decoded before access, and a million file names take
tens of megabytes, not hundreds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from manylabel.errors import ImageError


@runtime_checkable
class ImageSource(Protocol):
    """A sequence of encoded images, each a path or bytes, with a name unique within the dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Path | bytes:
        """Return an encoded image as a path or as bytes."""
        ...

    def name(self, index: int) -> str:
        """Return the image's name in reports and result files."""
        ...

    def take(self, indices: ArrayLike) -> "ImageSource":
        """Return a source of some of the images, in the order given."""
        ...


def fetch(images: ImageSource, index: int) -> Path | bytes:
    """Return an encoded image.

    Raises:
        ImageError: The source failed, whatever the reason.
    """
    try:
        return images[index]
    except Exception as error:
        reason = f"it could not be fetched: {type(error).__name__}: {error}"
        raise ImageError(images.name(index), reason) from error


class Files:
    """Images on disk.

    Args:
        root: Base folder of the names.
        names: File names, relative to `root` or absolute.

    Examples:
        >>> files = Files(Path("photos"), ["a.jpg", "b.jpg"])
        >>> files[1].as_posix(), files.name(1), len(files.take([1]))
        ('photos/b.jpg', 'b.jpg', 1)
    """

    def __init__(self, root: str | Path, names: Sequence[str] | pl.Series) -> None:
        self.root = Path(root)
        # One Arrow buffer: a Python list of a million names takes ten times the memory.
        self.names = pl.Series("name", names, dtype=pl.String)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Path:
        return self.root / self.name(index)

    def name(self, index: int) -> str:
        """Return the file name, relative to the root."""
        return str(self.names[int(index)])

    def take(self, indices: ArrayLike) -> "Files":
        """Return some of the files, in the order given."""
        return Files(self.root, self.names[np.asarray(indices, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class LazyBytes:
    r"""Encoded images returned by a function: generated, read from a table, or fetched.

    Args:
        names: Name of each image.
        load: Returns the encoded image at a position; must be picklable.
        positions: Position that `load` is called with, for each image (default: in order).
        identity: Description that, with the positions, determines the images (default: they are identified by content).

    Examples:
        >>> images = LazyBytes(["a", "b"], load=lambda position: bytes([position]))
        >>> images.take([1])[0]
        b'\x01'
    """

    names: Sequence[str]
    load: Callable[[int], bytes]
    positions: Sequence[int] | None = None
    identity: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> bytes:
        return self.load(int(index) if self.positions is None else int(self.positions[index]))

    def name(self, index: int) -> str:
        """Return the image's name."""
        return self.names[index]

    def take(self, indices: ArrayLike) -> "LazyBytes":
        """Return some of the images, in the order given."""
        chosen = np.asarray(indices, dtype=np.int64)
        old = np.arange(len(self)) if self.positions is None else np.asarray(self.positions)
        names = [self.names[index] for index in chosen]
        return LazyBytes(names, self.load, old[chosen].tolist(), self.identity)


@dataclass(frozen=True, eq=False)
class JoinedSource:
    """Concatenation of sources.

    Args:
        parts: The sources.

    Examples:
        >>> joined = JoinedSource([Files("train", ["a.jpg"]), Files("val", ["b.jpg"])])
        >>> [joined[index].as_posix() for index in range(len(joined))]
        ['train/a.jpg', 'val/b.jpg']
    """

    parts: Sequence[ImageSource]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def _find(self, index: int) -> tuple[ImageSource, int]:
        ends = np.cumsum([len(part) for part in self.parts])
        part = int(np.searchsorted(ends, index, side="right"))
        return self.parts[part], int(index - (ends[part - 1] if part else 0))

    def __getitem__(self, index: int) -> Path | bytes:
        part, position = self._find(index)
        return part[position]

    def name(self, index: int) -> str:
        """Return the image's name in its own source."""
        part, position = self._find(index)
        return part.name(position)

    def take(self, indices: ArrayLike) -> "JoinedSource":
        """Return some of the images, in the order given; consecutive images of one source stay in one part."""
        chosen = np.asarray(indices, dtype=np.int64)
        ends = np.cumsum([len(part) for part in self.parts])
        owners = np.searchsorted(ends, chosen, side="right")
        cuts = np.flatnonzero(np.diff(owners)) + 1
        runs = np.split(chosen, cuts) if len(chosen) else []
        parts = zip(runs, owners[np.r_[0, cuts][: len(runs)]], strict=True)
        return JoinedSource(
            [self.parts[owner].take(run - (ends[owner] - len(self.parts[owner]))) for run, owner in parts]
        )
