"""Files of tags that grow batch by batch and can be read at any moment, also after the process was killed.

JSON lines and CSV are appended to in whole rows, each batch in one write. Parquet cannot grow: ``tags.parquet`` is a
folder of parts, each moved into place when it is whole; polars, pandas, DuckDB and Spark read it as one table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.inference.predictor import TaggedImage
from manylabel.storage import refuse_existing, replacing

__all__ = ["OUTPUT_ENDINGS", "DoneImages", "TagWriter", "open_output"]

OUTPUT_ENDINGS = (".csv", ".jsonl", ".parquet")
COLUMNS = ("picture", "tags", "scores", "error")
SEPARATOR = "|"  # the first that `csv:FILE` looks for when it reads such a table
ROWS_PER_PART = 2048


class TagWriter(Protocol):
    """Takes tagged pictures, batch by batch."""

    def write(self, pictures: Sequence[TaggedImage]) -> None:
        """Add pictures to the file."""
        ...

    def close(self) -> None:
        """Write what is still in memory."""
        ...


def open_output(path: str | Path, *, resume: bool = False, overwrite: bool = False) -> tuple[TagWriter, DoneImages]:
    """Open a file of tags.

    Args:
        path: Where; ``.jsonl``, ``.csv`` or ``.parquet`` (a folder of parts).
        resume: Whether to go on with what is there; half a row at its end is cut off.
        overwrite: Whether to throw away what is there.

    Returns:
        What takes the tags, and which pictures are in the file already.

    Raises:
        ConfigError: The ending is another, or both settings are given.
        OutputExistsError: Something is there and neither setting is given.
        DataError: What is there cannot be gone on with.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "tags.jsonl"
        >>> writer, done = open_output(file)
        >>> writer.write([TaggedImage("a.jpg")])
        >>> writer.close()
        >>> writer, done = open_output(file, resume=True)
        >>> "a.jpg" in done, "b.jpg" in done
        (True, False)
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in OUTPUT_ENDINGS:
        raise ConfigError(f"cannot write tags to {path.name}; {list_choices(ending, OUTPUT_ENDINGS)}")
    if resume and overwrite:
        raise ConfigError("give --resume or --overwrite, not both: go on with what is there, or throw it away")
    refuse_existing(path, overwrite=resume or overwrite)
    if overwrite and path.is_dir():
        shutil.rmtree(path)
    elif overwrite:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, Callable[[Path], _Csv | _JsonLines | _Parquet]]
    kinds = {".csv": _Csv, ".jsonl": _JsonLines, ".parquet": _Parquet}
    writer = kinds[ending](path)
    return writer, DoneImages(writer.pictures())


class DoneImages:
    """The pictures that a file has; eight bytes for each, so that millions fit.

    Args:
        names: The pictures.

    Examples:
        >>> done = DoneImages(["a.jpg"])
        >>> "a.jpg" in done, "b.jpg" in done, len(done)
        (True, False, 1)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._hashes: NDArray[np.uint64] = np.sort(np.fromiter(map(_hash, names), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, name: str) -> bool:
        wanted = np.uint64(_hash(name))
        place = int(np.searchsorted(self._hashes, wanted))
        return place < len(self._hashes) and bool(self._hashes[place] == wanted)


class _Rows:
    """A file to which whole rows are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            self._refuse_strangers()
            _cut_off(path, self.ends_a_row())
        if not path.exists() or not path.stat().st_size:
            self.append(self.head)

    head = b""
    start = b""

    def _refuse_strangers(self) -> None:
        """Refuse a file that is not one of tags, before anything is cut off it."""
        with self.path.open("rb") as file:
            first = file.read(len(self.start))
        if not self.start.startswith(first):
            raise DataError(f"{self.path} is not a file of tags: it starts with {first!r}; choose another name")

    def ends_a_row(self) -> Callable[[bytes], bool]:
        """Return what tells of one line after the other whether a row ends with it."""
        raise NotImplementedError

    def append(self, content: bytes) -> None:
        """Add to the file in one write: a kill leaves all of it or nothing."""
        with self.path.open("ab", buffering=0) as file:
            file.write(content)

    def close(self) -> None:
        """Do nothing: all is written."""


class _JsonLines(_Rows):
    """One JSON object per line."""

    start = b'{"picture": '

    def ends_a_row(self) -> Callable[[bytes], bool]:
        return lambda line: line.endswith(b"}\n")

    def write(self, pictures: Sequence[TaggedImage]) -> None:
        self.append(b"".join(map(_json_line, pictures)))

    def pictures(self) -> Iterator[str]:
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)["picture"]
                except (ValueError, KeyError, TypeError) as error:
                    message = f"line {number} of {self.path} is not a tagged picture ({error!r})"
                    raise DataError(f"{message}; choose another file or --overwrite") from error


class _Csv(_Rows):
    """One row per picture: its tags and their scores, each joined by a bar, or why it could not be read."""

    head = start = (",".join(COLUMNS) + "\n").encode()

    def ends_a_row(self) -> Callable[[bytes], bool]:
        quotes = 0

        def ends(line: bytes) -> bool:
            nonlocal quotes  # inside quotes a line break belongs to a name
            quotes += line.count(b'"')
            return line.endswith(b"\n") and quotes % 2 == 0

        return ends

    def write(self, pictures: Sequence[TaggedImage]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for picture in pictures:
            tags = SEPARATOR.join(tag.label for tag in picture.tags)
            scores = SEPARATOR.join(f"{tag.score:g}" for tag in picture.tags)
            writer.writerow((picture.name, tags, scores, picture.error or ""))
        self.append(text.getvalue().encode("utf-8", "backslashreplace"))

    def pictures(self) -> Iterator[str]:
        with self.path.open(newline="", encoding="utf-8") as lines:
            yield from (row[0] for row in itertools.islice(csv.reader(lines), 1, None))


class _Parquet:
    """A folder of parts."""

    def __init__(self, path: Path) -> None:
        if path.is_file():
            raise DataError(f"{path} is a file; tags are written to a folder of parts, choose another name")
        self.path = path
        path.mkdir(exist_ok=True)
        self.rows: list[TaggedImage] = []

    def write(self, pictures: Sequence[TaggedImage]) -> None:
        self.rows += pictures
        if len(self.rows) >= ROWS_PER_PART:
            self._write_part()

    def close(self) -> None:
        if self.rows or not self._parts():
            self._write_part()

    def pictures(self) -> Iterator[str]:
        for part in self._parts():
            yield from pl.read_parquet(part, columns=["picture"])["picture"]

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("part-*.parquet"))

    def _write_part(self) -> None:
        tag = pl.Struct({"label": pl.String, "score": pl.Float32})
        schema: dict[str, pl.DataType | type[pl.DataType]] = {
            "picture": pl.String,
            "tags": pl.List(tag),
            "error": pl.String,
        }
        columns = {
            "picture": [picture.name.encode("utf-8", "backslashreplace").decode() for picture in self.rows],
            "tags": [[tag._asdict() for tag in picture.tags] for picture in self.rows],
            "error": [picture.error for picture in self.rows],
        }
        parts = self._parts()
        number = int(parts[-1].stem.removeprefix("part-")) + 1 if parts else 0
        with replacing(self.path / f"part-{number:06}.parquet") as temporary:
            pl.DataFrame(columns, schema=schema).write_parquet(temporary)
        self.rows = []


def _json_line(picture: TaggedImage) -> bytes:
    """Return a line; a name that is not valid Unicode is escaped, and read back as it was."""
    try:
        return json.dumps(picture.to_dict(), ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(picture.to_dict()).encode() + b"\n"


def _cut_off(path: Path, ends_a_row: Callable[[bytes], bool]) -> None:
    """Cut off what follows the last whole row."""
    end = whole = 0
    with path.open("rb") as lines:
        for line in lines:
            end += len(line)
            if ends_a_row(line):
                whole = end
    if whole < end:
        with path.open("r+b") as file:
            file.truncate(whole)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=8).digest(), "big")
