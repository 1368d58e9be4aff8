"""Files of tags, written batch by batch and valid at any moment, even after a kill, or all at once.

`manylabel predict --out` and `Predictions.save` write the same rows. JSON lines and CSV grow by whole rows. Parquet
files cannot be appended to: ``tags.parquet`` of a command is a folder of parts, each moved there when complete; polars,
pandas, DuckDB and Spark read it as one table. Rows of the next part are journaled next to the folder, so a kill loses
at most one batch.
"""

import csv
import glob
import hashlib
import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manylabel.annotation_files import WRITERS, Writer, annotation_writer
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.label_text import SEPARATOR, TAG_COLUMNS, join_labels, protect_cell, unprotect_cell, valid_unicode
from manylabel.lock import WriterLock
from manylabel.storage import append, refuse_existing, replacing, write_errors, write_text
from manylabel.system import require

if TYPE_CHECKING:  # prediction must not wait for it
    import polars as pl

ROWS_PER_PART = 2048


class TaggedImage(Protocol):
    """Image with tags, or with the reason why it could not be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"image": ..., "tags": [{"label": ..., "score": ...}]}`` or ``{"image": ..., "error": ...}``."""
        ...


def open_output(path: str | Path, *, resume: bool = False, overwrite: bool = False) -> "tuple[TagWriter, DoneImages]":
    """Open an output file for tags.

    Args:
        path: Output path ending in ``.jsonl``, ``.csv`` or ``.parquet`` (a folder of parts); or in ``.fiftyone.json``,
            ``.label_studio.json`` or ``.cvat.xml``, which are written at the end.
        resume: Append to an existing file; an incomplete last row is removed.
        overwrite: Replace an existing file.

    Returns:
        The writer, and the images already in the file.

    Raises:
        ConfigError: The extension is not supported, or both options are given.
        MissingExtraError: The file is Parquet, and polars is not installed.
        OutputExistsError: The file exists and neither option is given.
        DataError: The existing file cannot be resumed.
        BusyError: Another process is writing to it.
        StorageError: The path is not writable.

    Examples:
        >>> import tempfile
        >>> from manylabel.predictions import ImagePrediction
        >>> file = Path(tempfile.mkdtemp()) / "tags.jsonl"
        >>> writer, done = open_output(file)
        >>> writer.write([ImagePrediction("a.jpg")])
        >>> writer.close()
        >>> writer, done = open_output(file, resume=True)
        >>> "a.jpg" in done, "b.jpg" in done
        (True, False)
        >>> writer.close()
    """
    path = Path(path)
    annotations = annotation_writer(path)
    ending = _ending(path, _KINDS) if annotations is None else ""
    if annotations and resume:
        raise ConfigError(f"{path.name} is written as a whole and cannot be resumed; write .jsonl or run it again")
    if ending == ".parquet":
        require("polars", extra="train")
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite cannot be combined; pass only one")
    refuse_existing(path, overwrite=resume or overwrite)
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(path.with_name(f".{path.name}.lock"), guarded=path).__enter__()
    try:
        with write_errors(path):
            if overwrite:
                _remove(path)
            writer = _AnnotationFile(path, lock, annotations) if annotations else _KINDS[ending](path, lock)
        return writer, DoneImages(writer.names())
    except BaseException:
        lock.release()
        raise


def write_tags(path: str | Path, images: Sequence[TaggedImage], *, overwrite: bool = False) -> Path:
    """Write all tags to one file at once.

    Args:
        path: Output file ending in ``.csv``, ``.jsonl``, ``.json`` (one list) or ``.parquet`` (one file); or in
            ``.fiftyone.json``, ``.label_studio.json`` or ``.cvat.xml``, for these annotation tools.
        images: The images.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.

    Raises:
        ConfigError: The extension is not supported.
        OutputExistsError: The file exists and `overwrite` is false.
        StorageError: The path is not writable.
    """
    path = Path(path)
    if (annotations := annotation_writer(path)) is not None:
        rows = [image.to_dict() for image in images]
        return write_text(path, "".join(annotations(rows, path.absolute().parent)), overwrite=overwrite)
    ending = _ending(path, (*_KINDS, ".json"))
    if ending == ".json":
        lines = (_json_line(image).decode().strip() for image in images)
        return write_text(path, "[\n" + ",\n".join(lines) + "\n]\n", overwrite=overwrite)
    with replacing(path, overwrite=overwrite) as temporary:
        if ending == ".parquet":
            tag_table([image.to_dict() for image in images]).write_parquet(temporary)
        else:
            _TEXTS[ending](temporary).write(images)
    return path


def check_tag_file(path: Path) -> None:
    """Raise if `write_tags` has no format for a file of this name; for a check before long work.

    Examples:
        >>> check_tag_file(Path("tags.xml"))
        Traceback (most recent call last):
        manylabel.errors.ConfigError: cannot write tags to tags.xml; did you mean '.cvat.xml'? ...
    """
    if annotation_writer(path) is None:
        _ending(path, (*_KINDS, ".json"))


def tag_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of a table with one row per image.

    Args:
        rows: Images, as in `TaggedImage.to_dict`.

    Examples:
        >>> tag_columns([{"image": "a.jpg", "tags": [{"label": "cat", "score": 0.9}]}])
        {'image': ['a.jpg'], 'tags': [['cat']], 'scores': [[0.9]], 'error': [None]}
    """
    return {
        "image": [valid_unicode(row["image"]) for row in rows],
        "tags": [[tag["label"] for tag in row.get("tags", ())] for row in rows],
        "scores": [[tag["score"] for tag in row.get("tags", ())] for row in rows],
        "error": [row.get("error") for row in rows],
    }


def tag_table(rows: Sequence[Mapping[str, Any]]) -> "pl.DataFrame":
    """Return the table of `tag_columns` in polars."""
    import polars as pl

    kinds = (pl.String, pl.List(pl.String), pl.List(pl.Float32), pl.String)
    return pl.DataFrame(tag_columns(rows), schema=dict(zip(TAG_COLUMNS, kinds, strict=True)))


def _ending(path: Path, known: Iterable[str]) -> str:
    ending = path.suffix.lower()
    if ending not in known:
        raise ConfigError(f"cannot write tags to {path.name}; {list_choices(ending, [*known, *WRITERS], at_most=9)}")
    return ending


def _remove(path: Path) -> None:
    """Remove an output file, or the folder of parts and its journal; refuse a folder that holds anything else."""
    foreign = sorted(each.name for each in path.iterdir() if not each.match("part-*.parquet")) if path.is_dir() else ()
    if foreign:
        raise ConfigError(
            f"{path} is a folder with other files ({', '.join(foreign[:5])}) and is not overwritten; choose another "
            "name"
        )
    for file in (path, *_journals(path)):
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)


def _journal(folder: Path, number: int) -> Path:
    """Return the journal of a part; the part number in its name prevents duplicate rows."""
    return folder.with_name(f".{folder.name}.part-{number:06}.jsonl")


def _journals(folder: Path) -> list[Path]:
    return list(folder.parent.glob(f".{glob.escape(folder.name)}.part-*.jsonl"))


class DoneImages:
    """Set of the images in a file, as 8-byte hashes, to fit millions.

    Args:
        names: Image names.

    Examples:
        >>> done = DoneImages(["a.jpg"])
        >>> "a.jpg" in done, "b.jpg" in done, len(done)
        (True, False, 1)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._hashes: NDArray[np.uint64] = np.sort(np.fromiter(map(_hash, names), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, name: object) -> bool:
        wanted = np.uint64(_hash(str(name)))
        place = int(np.searchsorted(self._hashes, wanted))
        return place < len(self._hashes) and bool(self._hashes[place] == wanted)


class _Rows:
    """A file to which whole rows are appended."""

    head = b""
    start = b""

    def __init__(self, path: Path, lock: WriterLock | None = None) -> None:
        self.path = path
        self.lock = lock
        if path.exists():
            self._refuse_strangers()
            _cut_off(path, self.ends_a_row())
        if not path.exists() or not path.stat().st_size:
            append(path, self.head)

    def _refuse_strangers(self) -> None:
        """Reject a file with other content before truncating it."""
        with self.path.open("rb") as file:
            first = file.read(len(self.start))
        if not self.start.startswith(first):
            raise DataError(f"{self.path} is not an output file of tags: it starts with {first!r}; choose another name")

    def ends_a_row(self) -> Callable[[bytes], bool]:
        """Return a predicate, called line by line: true if a row ends with the line."""
        raise NotImplementedError

    def to_bytes(self, images: Sequence[TaggedImage]) -> bytes:
        """Return the rows of some images."""
        raise NotImplementedError

    def write(self, images: Sequence[TaggedImage]) -> None:
        if self.lock is not None:
            self.lock.renew()
        append(self.path, self.to_bytes(images))

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()


class _JsonLines(_Rows):
    """One JSON object per line."""

    start = b'{"image": '

    def ends_a_row(self) -> Callable[[bytes], bool]:
        return lambda line: line.endswith(b"}\n")

    def to_bytes(self, images: Sequence[TaggedImage]) -> bytes:
        return b"".join(map(_json_line, images))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    _ = row["image"]
                except (ValueError, KeyError, TypeError) as error:
                    message = f"line {number} of {self.path} is not a tagged image ({error!r})"
                    raise DataError(f"{message}; choose another file or --overwrite") from error
                yield row

    def names(self) -> Iterator[str]:
        return (row["image"] for row in self)


class _Csv(_Rows):
    """One row per image: tags and scores, each joined by ``|``, or the error.

    `csv:FILE` reads every label back unchanged; see `manylabel.label_text`.
    """

    head = start = (",".join(TAG_COLUMNS) + "\n").encode()

    def ends_a_row(self) -> Callable[[bytes], bool]:
        quotes = 0

        def ends(line: bytes) -> bool:
            nonlocal quotes  # line breaks inside quotes are part of a name
            quotes += line.count(b'"')
            return line.endswith(b"\n") and quotes % 2 == 0

        return ends

    def to_bytes(self, images: Sequence[TaggedImage]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = tag_columns([image.to_dict() for image in images])
        for name, tags, scores, error in zip(*columns.values(), strict=True):
            joined = SEPARATOR.join(f"{score:g}" for score in scores)
            writer.writerow((protect_cell(name), join_labels(tags), joined, protect_cell(error or "")))
        return text.getvalue().encode("utf-8", "backslashreplace")

    def names(self) -> Iterator[str]:
        with self.path.open(newline="", encoding="utf-8") as lines:
            yield from (unprotect_cell(row[0]) for row in itertools.islice(csv.reader(lines), 1, None))


class _Parquet:
    """A folder of parts, and the journal of the next one."""

    def __init__(self, path: Path, lock: WriterLock) -> None:
        if path.is_file():
            raise DataError(f"{path} is a file, but Parquet output is a folder of parts; choose another name")
        self.path = path
        self.lock = lock
        path.mkdir(exist_ok=True)
        self._begin_part()
        if self._rows:  # left by a killed process
            self._write_part()

    def _begin_part(self) -> None:
        parts = self._parts()
        self._number = int(parts[-1].stem.removeprefix("part-")) + 1 if parts else 0
        current = _journal(self.path, self._number)
        for file in _journals(self.path):
            if file != current:  # its part was written
                file.unlink()
        self._journal = _JsonLines(current)
        self._rows = list(self._journal)

    def write(self, images: Sequence[TaggedImage]) -> None:
        self.lock.renew()
        self._journal.write(images)
        self._rows += [image.to_dict() for image in images]
        if len(self._rows) >= ROWS_PER_PART:
            self._write_part()

    def close(self) -> None:
        try:
            if self._rows or not self._parts():
                self._write_part()
            self._journal.path.unlink()
        finally:
            self.lock.release()

    def names(self) -> Iterator[str]:
        import polars as pl

        for part in self._parts():
            yield from pl.read_parquet(part, columns=["image"])["image"]

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("part-*.parquet"))

    def _write_part(self) -> None:
        with replacing(self.path / f"part-{self._number:06}.parquet") as temporary:
            tag_table(self._rows).write_parquet(temporary)
        self._begin_part()


class _AnnotationFile:
    """A file of an annotation tool, written when complete; until then, rows are in a journal next to it."""

    def __init__(self, path: Path, lock: WriterLock, annotations: Writer) -> None:
        self.path = path
        self.lock = lock
        self.annotations = annotations
        journal = _journal(path, 0)
        journal.unlink(missing_ok=True)  # of a killed process
        self._journal = _JsonLines(journal)

    def write(self, images: Sequence[TaggedImage]) -> None:
        self.lock.renew()
        self._journal.write(images)

    def close(self) -> None:
        try:
            with replacing(self.path, overwrite=True) as temporary, temporary.open("w", encoding="utf-8") as file:
                file.writelines(self.annotations(self._journal, self.path.absolute().parent))
            self._journal.path.unlink()
        finally:
            self.lock.release()

    def names(self) -> Iterator[str]:
        return iter(())


TagWriter: TypeAlias = _Csv | _JsonLines | _Parquet | _AnnotationFile
"""Writer of tagged images, batch by batch; holds an exclusive lock until closed."""

_TEXTS: dict[str, type[_Csv | _JsonLines]] = {".csv": _Csv, ".jsonl": _JsonLines}
_KINDS: dict[str, Callable[[Path, WriterLock], TagWriter]] = {**_TEXTS, ".parquet": _Parquet}


def _json_line(image: TaggedImage) -> bytes:
    """Return a JSON line; names that are not valid Unicode are escaped reversibly."""
    try:
        return json.dumps(image.to_dict(), ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(image.to_dict()).encode() + b"\n"


def _cut_off(path: Path, ends_a_row: Callable[[bytes], bool]) -> None:
    """Truncate after the last complete row."""
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
    return int.from_bytes(hashlib.blake2b(valid_unicode(name).encode(), digest_size=8).digest(), "big")
