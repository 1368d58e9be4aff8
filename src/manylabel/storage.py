"""Atomic file writes with readable disk errors, validated JSON, and the cache folder.

All files of the package are written here: complete ones under a temporary name that is moved into place
(`replacing`), growing ones by `append`.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from manylabel.errors import DiskFullError, ManyLabelError, ModelFormatError, OutputExistsError, StorageError

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))  # EFBIG: limit of the process or disk
# Libraries that write files themselves: safetensors and polars word the reason differently, torch and numpy omit it
_FULL_WORDS = (*map(os.strerror, _FULL), "inline_container.cc", "iostream error", " requested and ")


@contextmanager
def replacing(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `path` when the block succeeds.

    Readers never see a partial file, and an error inside the block leaves an existing file unchanged.

    Args:
        path: Final path of the file; parent folders are created.
        overwrite: Whether to replace an existing file.

    Yields:
        A path in the same folder, with the same extension.

    Raises:
        OutputExistsError: The file exists and `overwrite` is false.
        StorageError: The disk is full or not writable.

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
    """Yield a temporary folder to fill, and move it to `path` when the block succeeds.

    Replacing a folder takes two moves. A kill between them leaves the old one inside ``.NAME.*``, from where the next
    call restores it.

    Args:
        path: Final path of the folder; parent folders are created.
        overwrite: Whether to replace an existing folder and its content.

    Yields:
        An empty folder next to `path`.

    Raises:
        OutputExistsError: `path` exists and is not an empty folder, and `overwrite` is false.
        StorageError: The disk is full or not writable.

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
            old.replace(path)  # the second move failed: restore the old folder
        shutil.rmtree(workshop, ignore_errors=True)


def free_path(path: Path, *, is_ours: Callable[[Path], bool] = lambda _: False) -> Path:
    """Return a path that does not exist yet, with a number after the name if necessary.

    Args:
        path: Preferred path.
        is_ours: Accepts an existing file.

    Examples:
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.jpg").touch()
        >>> free_path(folder / "a.jpg").name
        'a (2).jpg'
    """
    free, number = path, 1
    while free.exists() and not is_ours(free):
        number += 1
        free = path.with_name(f"{path.stem} ({number}){path.suffix}")
    return free


def write_text(path: str | Path, text: str, *, overwrite: bool = False) -> Path:
    """Write a text file atomically; see `replacing`.

    Args:
        path: The file.
        text: Its content.
        overwrite: Whether to replace an existing file.

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
    r"""Append to a file, completely or not at all.

    Args:
        path: The file; created if missing.
        content: Bytes to append; a kill may leave a prefix of them.

    Raises:
        StorageError: The disk is full or not writable; the file has its previous length.

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
                rest = rest[file.write(rest) :]  # a nearly full disk writes less than requested
        except BaseException:
            file.truncate(length)
            raise


@contextmanager
def write_errors(path: str | Path, *, inside: Path | None = None) -> Iterator[None]:
    """Turn disk errors of any library into readable errors.

    Args:
        path: Path to name in the message.
        inside: Temporary file or folder that the block writes to; errors about other files, such as those it reads,
            pass unchanged (default: every `OSError` is about `path`).

    Raises:
        DiskFullError: The disk is full.
        StorageError: The path is not writable.

    Examples:
        >>> with write_errors("tags.csv"):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
        manylabel.errors.DiskFullError: cannot write tags.csv: the disk is full; free some space and run the same ...
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        is_ours = isinstance(error, OSError) and (inside is None or _is_about(error, inside))
        if getattr(error, "errno", None) in _FULL or any(words in str(error) for words in _FULL_WORDS):
            raise DiskFullError(
                f"cannot write {path}: the disk is full; free some space and run the same command again, with --resume "
                "if it has that option: existing files are intact"
            ) from error
        if is_ours and not isinstance(error, OutputExistsError):
            reason = error.strerror or error  # type: ignore[attr-defined] # an OSError, as `is_ours` says
            raise StorageError(f"cannot write {path}: {reason}; choose a writable location") from error
        raise


def _is_about(error: OSError, inside: Path) -> bool:
    return error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(inside)


def refuse_existing(path: str | Path, *, overwrite: bool = False) -> None:
    """Refuse to overwrite a file or folder, before the work that produces it.

    Args:
        path: Output path.
        overwrite: Whether to allow replacing it.

    Raises:
        OutputExistsError: The file exists and `overwrite` is false.

    Examples:
        >>> refuse_existing(Path(tempfile.mkdtemp()))
        Traceback (most recent call last):
        manylabel.errors.OutputExistsError: ... already exists; choose another name, ...
    """
    if Path(path).exists() and not overwrite:
        allow = "overwrite it (--overwrite; in Python, overwrite=True)"
        raise OutputExistsError(f"{path} already exists; choose another name, or {allow}")


T = TypeVar("T")


def decode_json(
    content: bytes | str,
    kind: type[T],
    *,
    source: str | Path,
    error: type[ManyLabelError] = ModelFormatError,
    advice: str = "copy or download it again",
) -> T:
    """Parse JSON and validate it against a type.

    Args:
        content: The JSON.
        kind: A type that msgspec supports: a struct, a dataclass, ``dict[str, float]`` and so on.
        source: File name for the error message.
        error: Exception class to raise.
        advice: End of the message.

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
    """Return the cache folder: MANYLABEL_CACHE if set, else in the platform's cache folder.

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
    """Give a file the default permissions; mkstemp and safetensors create files that only their owner can read."""
    mask = os.umask(0)  # the mask can only be read by setting it
    os.umask(mask)
    file.chmod(0o666 & ~mask)
