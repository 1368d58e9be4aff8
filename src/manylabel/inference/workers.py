"""Processes that decode: started without torch and without the program that uses them, ended with it.

`multiprocessing` would import the main program again in each of them, which takes seconds where that imports torch, and
fails in a notebook or where its last lines are not guarded.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from typing import Any

__all__ = ["WorkerDiedError", "WorkerProcess", "serve"]

TARGET = "manylabel.inference.decoding:decode_batch"


class WorkerDiedError(Exception):
    """A worker ended before it answered."""


class WorkerProcess:
    """A process that calls one function again and again; what goes in and out is pickled, between us and our child.

    Examples:
        >>> from manylabel.types import InputSpec
        >>> worker = WorkerProcess()
        >>> worker.call(("no_such.jpg",), InputSpec(size=(8, 8))).reasons
        ('there is no such file',)
        >>> worker.close()
    """

    def __init__(self) -> None:
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from manylabel.inference.workers import serve; serve({TARGET!r})"
        )
        self._process = subprocess.Popen(  # noqa: S603 - our own code in our own interpreter
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be called."""
        return self._process.poll() is None

    def call(self, *arguments: Any) -> Any:  # noqa: ANN401 - those of the function
        """Return what the function returns.

        Raises:
            WorkerDiedError: The process ended before it answered.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise WorkerDiedError
        try:
            pickle.dump(arguments, self._process.stdin, protocol=5)
            self._process.stdin.flush()
            return pickle.load(self._process.stdout)  # noqa: S301 - written by our own child
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            raise WorkerDiedError from error

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent is lost with the process
                if stream is not None:
                    stream.close()
        self._process.wait()


def serve(target: str) -> None:
    """Answer calls until the other side is gone; what a worker runs.

    Args:
        target: The function, as ``module:name``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends us
    module, _, name = target.partition(":")
    function = getattr(__import__(module, fromlist=[name]), name)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints must not spoil an answer
    while True:
        try:
            arguments = pickle.load(source)  # noqa: S301 - written by the program that started us
        except EOFError:
            return
        pickle.dump(function(*arguments), answers, protocol=5)
        answers.flush()
