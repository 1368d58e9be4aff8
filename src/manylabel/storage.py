"""Files written whole or not at all, with a sentence where the disk fails; checked JSON; and the folder of caches.

Every file of the package is written here: whole ones under a temporary name that is moved into place (`replacing`),
growing ones by `append`.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from manylabel.errors import DiskFullError, ManyLabelError, ModelFormatError, OutputExistsError, StorageError

__all__ = [
    "append",
    "cache_folder",
    "decode_json",
    "refuse_existing",
    "replacing",
    "replacing_folder",
    "write_errors",
    "write_text",
]

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))  # EFBIG: a limit of the process or disk
# Of libraries that write themselves, safetensors and polars give the reason in their own words, torch and numpy none.
_FULL_WORDS = (*map(os.strerror, _FULL), "inline_container.cc", "iostream error", " requested and ")


@contextmanager
def replacing(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, and move it to `path` when the block ends well.

    A reader never sees half a file, and an error inside the block leaves what was there before.

    Args:
        path: Where the file goes in the end; parent folders are made.
        overwrite: Replace a file that exists.

    Yields:
        A path in the same folder, with the same ending.

    Raises:
        OutputExistsError: The file exists and `overwrite` is false.
        StorageError: The disk is full, or cannot be written to.

    Examples:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replacing(folder / "a.txt") as temporary:
        ...     _ = temporary.write_text("done")
        >>> [file.name for file in folder.iterdir()]
        ['a.txt']
    """
    refuse_existing(path, overwrite=overwrite)
    path = Path(path)
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem[:100]}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        with write_errors(path, inside=temporary):
            yield temporary
            _let_others_read(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary folder to fill, and move it to `path` when the block ends well.

    A folder takes two moves to be replaced. A kill between them leaves the old one inside ``.NAME.*``, from where the
    next call puts it back.

    Args:
        path: Where the folder goes in the end; parent folders are made.
        overwrite: Replace a folder that exists, with all that is in it.

    Yields:
        An empty folder next to `path`.

    Raises:
        OutputExistsError: Something is there and `overwrite` is false. An empty folder is nothing.
        StorageError: The disk is full, or cannot be written to.

    Examples:
        >>> target = Path(tempfile.mkdtemp()) / "model"
        >>> with replacing_folder(target) as temporary:
        ...     _ = write_text(temporary / "a.txt", "done")
        >>> [file.name for file in target.iterdir()]
        ['a.txt']
    """
    path = Path(path)
    for old in [] if path.exists() else path.parent.glob(f".{path.name[:100]}.*/old"):
        old.replace(path)
    refuse_existing(path, overwrite=overwrite or (path.is_dir() and not any(path.iterdir())))
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{path.name[:100]}.", dir=path.parent))
    temporary, old = workshop / "new", workshop / "old"
    try:
        with write_errors(path, inside=workshop):
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _let_others_read(file)
            if path.exists():
                path.replace(old)
            temporary.replace(path)
    finally:
        if old.exists() and not path.exists():
            old.replace(path)  # the second move failed: what was there comes back
        shutil.rmtree(workshop, ignore_errors=True)


def write_text(path: str | Path, text: str, *, overwrite: bool = False) -> Path:
    """Write a text file in one move; see `replacing`.

    Args:
        path: Where the file goes.
        text: Its content.
        overwrite: Replace a file that exists.

    Returns:
        The path.

    Examples:
        >>> write_text(Path(tempfile.mkdtemp()) / "a.txt", "done").read_text(encoding="utf-8")
        'done'
    """
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def append(path: str | Path, content: bytes) -> None:
    r"""Add to the end of a file: all of it, or nothing and an error.

    Args:
        path: The file; it is made where there is none.
        content: What to add; a kill between may leave some of it, never anything else.

    Raises:
        StorageError: The disk is full, or cannot be written to; the file is as long as it was before.

    Examples:
        >>> file = Path(tempfile.mkdtemp()) / "rows.txt"
        >>> append(file, b"one\n")
        >>> append(file, b"two\n")
        >>> file.read_bytes()
        b'one\ntwo\n'
    """
    with write_errors(path), Path(path).open("ab", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]  # a disk that is nearly full takes less than it is given
        except BaseException:
            file.truncate(length)
            raise


@contextmanager
def write_errors(path: str | Path, *, inside: Path | None = None) -> Iterator[None]:
    """Turn the failures of a disk into sentences, whichever library met them.

    Args:
        path: What is written, for the message.
        inside: The temporary file or folder that the block writes to: an error about any other file, such as one
            that is read in the block, is left as it is (default: every `OSError` is about `path`).

    Raises:
        DiskFullError: The disk is full.
        StorageError: It cannot be written to.

    Examples:
        >>> with write_errors("tags.csv"):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
        manylabel.errors.DiskFullError: cannot write tags.csv: the disk is full; make room and run the same command ...
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        is_ours = isinstance(error, OSError) and (inside is None or _is_about(error, inside))
        if getattr(error, "errno", None) in _FULL or any(words in str(error) for words in _FULL_WORDS):
            raise DiskFullError(
                f"cannot write {path}: the disk is full; make room and run the same command again, with --resume where "
                "it has that: what was written before is whole"
            ) from error
        if is_ours and not isinstance(error, OutputExistsError):
            reason = error.strerror or error  # type: ignore[attr-defined] # an OSError, as `is_ours` says
            raise StorageError(f"cannot write {path}: {reason}; choose a place that can be written to") from error
        raise


def _is_about(error: OSError, inside: Path) -> bool:
    return error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(inside)


def refuse_existing(path: str | Path, *, overwrite: bool = False) -> None:
    """Refuse to overwrite a file or folder, before the work whose result goes there.

    Args:
        path: Where something is to be written.
        overwrite: Allow to replace what is there; then nothing is refused.

    Raises:
        OutputExistsError: The file exists and `overwrite` is false.

    Examples:
        >>> refuse_existing(Path(tempfile.mkdtemp()))
        Traceback (most recent call last):
        manylabel.errors.OutputExistsError: ... exists already; choose another name ...
    """
    if Path(path).exists() and not overwrite:
        raise OutputExistsError(f"{path} exists already; choose another name or ask to overwrite it (--overwrite)")


T = TypeVar("T")


def decode_json(
    content: bytes | str,
    kind: type[T],
    *,
    source: str | Path,
    error: type[ManyLabelError] = ModelFormatError,
    advice: str = "copy or download it again",
) -> T:
    """Read JSON as a type, refusing whatever does not fit it.

    Args:
        content: The JSON.
        kind: A type that msgspec understands: a struct, a dataclass, ``dict[str, float]`` and the like.
        source: File that the content is from, for the error.
        error: Error to raise.
        advice: End of its message.

    Returns:
        The value, of the type.

    Examples:
        >>> decode_json('{"cat": 0.5}', dict[str, float], source="thresholds.json")
        {'cat': 0.5}
        >>> decode_json('{"cat": "high"}', dict[str, float], source="thresholds.json")
        Traceback (most recent call last):
        manylabel.errors.ModelFormatError: thresholds.json is damaged: Expected `float`, got `str` - at `$[...]`; ...
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise error(f"{source} is damaged: {reason}; {advice}") from problem


def cache_folder() -> Path:
    """Return the folder of what can be made again: MANYLABEL_CACHE if that is set, else in the platform's own.

    Examples:
        >>> isinstance(cache_folder(), Path)
        True
    """
    given = os.environ.get("MANYLABEL_CACHE")
    return Path(given).expanduser() if given else _platform_caches() / "manylabel"


def _platform_caches() -> Path:
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if os.uname().sysname == "Darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _let_others_read(file: Path) -> None:
    """Give a file the rights that a new file has; mkstemp and safetensors make some that only their owner can read."""
    mask = os.umask(0)  # which can only be read by setting it
    os.umask(mask)
    file.chmod(0o666 & ~mask)
