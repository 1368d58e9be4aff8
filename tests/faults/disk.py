"""Disks that fail: files that cannot grow beyond a limit, and processes that die while a file is put in its place."""

import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_after(num_bytes):
    """Let no file of this process grow beyond so many bytes, whichever library writes it.

    The write that crosses the limit is short, as on a full disk, and every further one fails.
    """
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def die_at_move(monkeypatch, number, *, before=True):
    """Kill this process at its `number`-th move of a file into place, right before or right after it."""
    move, count = Path.replace, 0

    def replace(self, target):
        nonlocal count
        count += 1
        if count == number and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = move(self, target)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    monkeypatch.setattr(Path, "replace", replace)
