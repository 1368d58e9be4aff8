"""Writer lock: a lock file that identifies its holder and becomes stale when the holder is gone."""

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

from manylabel.errors import BusyError

STALE_AFTER = 3600.0  # seconds without renewal; longer than any batch of images takes


@dataclass(frozen=True)
class Holder:
    """Holder of a lock: machine, process, start time of the process, and a unique token."""

    process: int
    machine: str
    started: str
    token: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine}"


class WriterLock:
    """Exclusive lock for one writer.

    A lock is stale, and taken over, when its process is gone or has not renewed it for an hour. A holder that was
    suspended that long finds out at its next `renew`.

    Args:
        path: The lock file.
        guarded: Path it guards, for messages (default: the folder of the lock file).

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "lock"
        >>> with WriterLock(path):
        ...     WriterLock(path).holder() is None
        False
        >>> path.exists()
        False
    """

    def __init__(self, path: Path, *, guarded: Path | None = None) -> None:
        self.path = path
        self.guarded = path.parent if guarded is None else guarded
        self._me = Holder(os.getpid(), socket.gethostname(), _start_of(os.getpid()) or "", uuid4().hex)

    def acquire(self) -> Holder | None:
        """Try to take the lock.

        Returns:
            None if the lock was acquired, else its holder.
        """
        if self._create():
            return None
        holder = self.holder()
        if holder is not None:
            return holder
        self._remove_stale()
        return None if self._create() else self.holder() or self._me

    def holder(self) -> Holder | None:
        """Return the holder of the lock, None if it is free or stale."""
        try:
            age = time.time() - self.path.stat().st_mtime
            holder = Holder(**json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # created but not written yet; or damaged, then it becomes stale
            return Holder(0, "unknown", "", "") if age < 60 else None
        gone = holder.machine == self._me.machine and _start_of(holder.process) != holder.started
        return None if gone or age > STALE_AFTER else holder

    def renew(self) -> None:
        """Renew the lock.

        Raises:
            BusyError: Another process has taken the lock.
        """
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            content = {}
        if content.get("token") != self._me.token:
            raise BusyError(f"another process took over {self.guarded} while this one was suspended; run it again")
        os.utime(self.path)

    def release(self) -> None:
        """Release the lock."""
        with suppress(BusyError):
            self.renew()
            self.path.unlink()

    def __enter__(self) -> Self:
        holder = self.acquire()
        if holder is not None:
            raise BusyError(
                f"{self.guarded} is being written by {holder}; wait for it to finish, "
                f"or remove {self.path} if that process no longer exists"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _remove_stale(self) -> None:
        """Move a stale lock away; restore it if another process took it over meanwhile."""
        aside = self.path.with_name(f"{self.path.name}.{self._me.token}")
        with suppress(FileNotFoundError):
            self.path.replace(aside)
            if WriterLock(aside).holder() is not None:
                with suppress(FileExistsError):
                    os.link(aside, self.path)
            aside.unlink()

    def _create(self) -> bool:
        """Create the lock file unless it exists."""
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(vars(self._me), file)
        except OSError:  # a full disk: an empty lock file holds nothing
            self.path.unlink(missing_ok=True)
            raise
        return True


def _start_of(process: int) -> str | None:
    """Return the start time of a process on this machine, None if it is gone, "" where unknown.

    The process id alone is ambiguous: a restarted container has the same name and the same small ids.
    """
    if os.name != "posix":
        return ""
    try:
        os.kill(process, 0)
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except ProcessLookupError:
        return None
    except OSError:  # another user's process, or not Linux
        return ""
    return None if fields[0] == "Z" else fields[19]  # a zombie is gone, too; start in ticks, the 22nd of all fields
