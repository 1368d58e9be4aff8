"""One writer at a time: a lock file that says who holds it, and that does not outlive its holder."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

from manylabel.errors import CacheBusyError, CacheError

__all__ = ["Holder", "WriterLock"]

STALE_AFTER = 3600.0  # seconds without a sign of life; the longest that any batch of pictures may take


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: a process on a machine, and a token that no other holder ever has."""

    process: int
    machine: str
    token: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine}"


class WriterLock:
    """Keeps a second writer out while it is held.

    A lock is stale, and taken over, when its process is gone, or gave no sign of life for an hour. A holder that
    slept through that finds out at its next `renew`.

    Args:
        path: The lock file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "lock"
        >>> with WriterLock(path):
        ...     WriterLock(path).holder() is None
        False
        >>> path.exists()
        False
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._me = Holder(os.getpid(), socket.gethostname(), uuid4().hex)

    def acquire(self) -> Holder | None:
        """Try to take the lock.

        Returns:
            None if it is taken now, else who holds it.
        """
        if self._create():
            return None
        holder = self.holder()
        if holder is not None:
            return holder
        self.path.unlink(missing_ok=True)  # stale
        return None if self._create() else self.holder() or self._me

    def holder(self) -> Holder | None:
        """Return who holds the lock, None if nobody does or only a stale one is there."""
        try:
            age = time.time() - self.path.stat().st_mtime
            holder = Holder(**json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # made but not written yet; or damaged, and then it grows old
            return Holder(0, "unknown", "") if age < 60 else None
        gone = holder.machine == self._me.machine and not _is_running(holder.process)
        return None if gone or age > STALE_AFTER else holder

    def renew(self) -> None:
        """Give a sign of life.

        Raises:
            CacheError: The lock is somebody else's by now.
        """
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            content = {}
        if content.get("token") != self._me.token:
            raise CacheError(f"another process took over {self.path.parent} while this one slept; start it again")
        os.utime(self.path)

    def release(self) -> None:
        """Give the lock back."""
        with suppress(CacheError):
            self.renew()
            self.path.unlink()

    def __enter__(self) -> Self:
        holder = self.acquire()
        if holder is not None:
            raise CacheBusyError(
                f"{self.path.parent} is being written by {holder}; wait for it, "
                f"or remove {self.path} if you know that it is gone"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _create(self) -> bool:
        """Make the lock file unless there is one."""
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(vars(self._me), file)
        return True


def _is_running(process: int) -> bool:
    """Tell whether a process of this machine is there; where that cannot be asked, assume so."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
