"""Where files go: written so that nothing is lost, a temporary name first, then one move; and the folder of caches."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manylabel.errors import OutputExistsError

__all__ = ["cache_folder", "refuse_existing", "replacing", "replacing_folder", "write_text"]


@contextmanager
def replacing(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, and move it to `path` when the block ends well.

    A reader never sees half a file, and an error inside the block leaves what was there before.

    Args:
        path: Where the file goes in the end; parent folders are made.
        overwrite: Whether a file that is there may be replaced.

    Yields:
        A path in the same folder, with the same ending.

    Raises:
        OutputExistsError: The file is there and `overwrite` is false.

    Examples:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replacing(folder / "a.txt") as temporary:
        ...     _ = temporary.write_text("done")
        >>> [file.name for file in folder.iterdir()]
        ['a.txt']
    """
    path = _ready(path, overwrite=overwrite)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _let_others_read(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary folder to fill, and move it to `path` when the block ends well.

    Args:
        path: Where the folder goes in the end; parent folders are made.
        overwrite: Whether a folder that is there may be replaced, with all that is in it.

    Yields:
        An empty folder beside `path`.

    Raises:
        OutputExistsError: Something is there and `overwrite` is false. An empty folder is nothing.

    Examples:
        >>> target = Path(tempfile.mkdtemp()) / "model"
        >>> with replacing_folder(target) as temporary:
        ...     _ = write_text(temporary / "a.txt", "done")
        >>> [file.name for file in target.iterdir()]
        ['a.txt']
    """
    path = Path(path)
    path = _ready(path, overwrite=overwrite or (path.is_dir() and not any(path.iterdir())))
    workshop = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary, old = workshop / "new", workshop / "old"
    try:
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
        text: What it says.
        overwrite: Whether a file that is there may be replaced.

    Returns:
        The path, for the caller to name.

    Examples:
        >>> write_text(Path(tempfile.mkdtemp()) / "a.txt", "done").read_text(encoding="utf-8")
        'done'
    """
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def refuse_existing(path: str | Path, *, overwrite: bool = False) -> None:
    """Refuse to overwrite a file or folder, before the work whose result goes there.

    Args:
        path: Where something is to be written.
        overwrite: Whether what is there may be replaced; then nothing is refused.

    Raises:
        OutputExistsError: The file is there and `overwrite` is false.

    Examples:
        >>> refuse_existing(Path(tempfile.mkdtemp()))
        Traceback (most recent call last):
        manylabel.errors.OutputExistsError: ... exists already; choose another name ...
    """
    if Path(path).exists() and not overwrite:
        raise OutputExistsError(f"{path} exists already; choose another name or ask to overwrite it (--overwrite)")


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


def _ready(path: str | Path, *, overwrite: bool) -> Path:
    """Refuse what would be overwritten and make the parent folders."""
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _let_others_read(file: Path) -> None:
    """Give a file the rights that a new file has; mkstemp and safetensors make some that only their owner can read."""
    file.chmod(0o666 & ~_umask())


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
