"""What is in a store: one line per batch of pictures, appended after its features."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["Chunk", "Journal", "crc_of_rows"]


@dataclass(frozen=True)
class Chunk:
    """One batch in a store.

    Args:
        rows: Rows in each file, with this batch.
        checksums: CRC-32 of its bytes, per file.
        bad: Pictures that were to be in it but could not be decoded: their names, and why.
        safe: Whether the disk had promised to keep everything up to here.
    """

    rows: int
    checksums: tuple[int, ...] = ()
    bad: tuple[tuple[str, str], ...] = ()
    safe: bool = False

    def to_line(self) -> str:
        """Return a line: a checksum, then JSON."""
        body = json.dumps({"rows": self.rows, "crc": self.checksums, "bad": self.bad, "safe": self.safe})
        return f"{zlib.crc32(body.encode()):08x} {body}\n"

    @classmethod
    def from_line(cls, line: str) -> Chunk:
        """Make the chunk again that `to_line` wrote.

        Raises:
            ValueError: The line is damaged or not whole.
        """
        checksum, _, body = line.removesuffix("\n").partition(" ")
        if not line.endswith("\n") or int(checksum, 16) != zlib.crc32(body.encode()):
            raise ValueError("not the line that was written")
        values: dict[str, Any] = json.loads(body)
        bad = tuple((name, reason) for name, reason in values["bad"])
        return cls(values["rows"], tuple(values["crc"]), bad, values["safe"])


START = Chunk(rows=0, safe=True)


@dataclass(frozen=True)
class Journal:
    """The chunks of a store, in order.

    Examples:
        >>> journal = Journal((Chunk(rows=4, checksums=(7,)), Chunk(rows=7, checksums=(9,))))
        >>> journal.spans
        [(0, 4), (4, 7)]
        >>> Journal.parse(journal.text() + '0a1b2c3d {"rows": 12, "cr') == journal  # killed while writing a line
        True
    """

    chunks: tuple[Chunk, ...] = ()

    @property
    def rows(self) -> int:
        """Rows that were written."""
        return self.chunks[-1].rows if self.chunks else 0

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last row (exclusive) of each chunk."""
        return [(before.rows, chunk.rows) for before, chunk in pairwise((START, *self.chunks))]

    @property
    def bad(self) -> dict[str, str]:
        """Names of all pictures that could not be decoded, and why."""
        return dict(picture for chunk in self.chunks for picture in chunk.bad)

    @property
    def num_safe(self) -> int:
        """Chunks that the disk has promised to keep."""
        return max((number for number, chunk in enumerate(self.chunks, start=1) if chunk.safe), default=0)

    def text(self) -> str:
        """Return what the file says."""
        return "".join(chunk.to_line() for chunk in self.chunks)

    @classmethod
    def parse(cls, text: str) -> Journal:
        """Read lines up to the first that is not as it was written."""
        chunks: list[Chunk] = []
        for line in text.splitlines(keepends=True):
            try:
                chunks.append(Chunk.from_line(line))
            except (ValueError, TypeError, KeyError):
                break
        return cls(tuple(chunks))

    def undamaged(self, files: Sequence[Path], row_bytes: Sequence[int], *, first: int) -> Journal:
        """Return the chunks in front of the first whose rows are not on disk as they were written.

        Args:
            files: The files of rows.
            row_bytes: Bytes of a row in each.
            first: The first chunk to look at.
        """
        pairs = list(zip(self.spans, self.chunks, strict=True))
        for number, (span, chunk) in enumerate(pairs[first:], start=first):
            if crc_of_rows(files, row_bytes, span) != chunk.checksums:
                return Journal(self.chunks[:number])
        return self


def crc_of_rows(files: Sequence[Path], row_bytes: Sequence[int], span: tuple[int, int]) -> tuple[int, ...]:
    """Return the CRC-32 of some rows of each file.

    Args:
        files: The files of rows.
        row_bytes: Bytes of a row in each.
        span: First and last row (exclusive).
    """
    start, end = span
    sums = []
    for path, size in zip(files, row_bytes, strict=True):
        with path.open("rb") as file:
            file.seek(start * size)
            sums.append(zlib.crc32(file.read((end - start) * size)))
    return tuple(sums)
