"""What was written so far: one line per batch of pictures, appended after its features."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import CacheError
from manylabel.types import BadPicture

__all__ = ["Chunk", "Journal"]


@dataclass(frozen=True)
class Chunk:
    """One batch in a store.

    Args:
        end: Pictures done with it, counted from the first of the data set.
        rows: Rows in each file with it: one per good picture.
        checksums: CRC-32 of its bytes, per file.
        bad: The pictures in it that could not be decoded.
    """

    end: int
    rows: int
    checksums: tuple[int, ...]
    bad: tuple[BadPicture, ...] = ()

    def to_line(self) -> str:
        """Return one line of JSON."""
        bad = [[picture.index, picture.name, picture.reason] for picture in self.bad]
        return json.dumps({"end": self.end, "rows": self.rows, "crc": self.checksums, "bad": bad}) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Chunk:
        """Make the chunk again that `to_line` wrote."""
        values: dict[str, Any] = json.loads(line)
        bad = tuple(BadPicture(*picture) for picture in values["bad"])
        return cls(values["end"], values["rows"], tuple(values["crc"]), bad)


START = Chunk(end=0, rows=0, checksums=())


@dataclass(frozen=True)
class Journal:
    """The chunks of a store, in order.

    Example:
        >>> journal = Journal((Chunk(end=4, rows=4, checksums=(7,)), Chunk(end=8, rows=7, checksums=(9,))))
        >>> journal.spans
        [(0, 4), (4, 7)]
        >>> Journal.parse(journal.text() + '{"end": 12, "ro') == journal  # killed while writing a line
        True
    """

    chunks: tuple[Chunk, ...] = ()

    @property
    def last(self) -> Chunk:
        """Where writing goes on."""
        return self.chunks[-1] if self.chunks else START

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last row (exclusive) of each chunk."""
        return [(before.rows, chunk.rows) for before, chunk in pairwise((START, *self.chunks))]

    @property
    def bad(self) -> list[BadPicture]:
        """All pictures that could not be decoded."""
        return [picture for chunk in self.chunks for picture in chunk.bad]

    def text(self) -> str:
        """Return what the file says."""
        return "".join(chunk.to_line() for chunk in self.chunks)

    @classmethod
    def parse(cls, text: str) -> Journal:
        """Read lines up to the first that is not whole."""
        chunks: list[Chunk] = []
        for line in text.splitlines(keepends=True):
            try:
                chunks.append(Chunk.from_line(line))
            except (ValueError, TypeError, KeyError):
                break
        return cls(tuple(chunks))

    def undamaged(self, folder: Path, names: Sequence[str], row_bytes: Sequence[int]) -> Journal:
        """Return the chunks in front of the first that is not on disk as it was written.

        Args:
            folder: Where the files are.
            names: The files, one per stage.
            row_bytes: Bytes of a row in each.
        """
        files = [(folder / name).open("rb") for name in names]
        try:
            for number, (span, chunk) in enumerate(zip(self.spans, self.chunks, strict=True)):
                for file, size, expected in zip(files, row_bytes, chunk.checksums, strict=True):
                    if zlib.crc32(file.read((span[1] - span[0]) * size)) != expected:
                        return Journal(self.chunks[:number])
        finally:
            for file in files:
                file.close()
        return self

    def check(self, number: int, arrays: Sequence[NDArray[np.float16]]) -> None:
        """Compare one chunk with what is on disk.

        Raises:
            CacheError: It differs.
        """
        start, end = self.spans[number]
        found = tuple(zlib.crc32(array[start:end].tobytes()) for array in arrays)
        if found != self.chunks[number].checksums:
            raise CacheError(f"rows {start} to {end} are not what was written")
