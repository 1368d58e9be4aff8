"""Input pipeline: worker processes fetch, decode and resize batches ahead of the model.

Workers import neither torch nor the main program: `multiprocessing` would re-import the main program in each worker,
which takes seconds if it imports torch, and fails in notebooks and in scripts without a main guard.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from manylabel.engine import NamedImage, PreparedBatch, prepare_batch
from manylabel.errors import ConfigError, ImageError
from manylabel.image_files import fetch, is_address
from manylabel.types import InputSpec

__all__ = ["PreparationPool", "WorkerDiedError", "WorkerProcess", "batched", "fetch_and_prepare", "prepare_batches"]

FEW_BATCHES = 2  # prepared by a thread: processes would take longer to start
TARGET = "manylabel.inference.pipeline:fetch_and_prepare"

_ENDED = "the worker process that decoded it died, possibly out of memory"


def prepare_batches(
    images: Iterable[NamedImage], spec: InputSpec, *, batch_size: int = 32, num_workers: int = 0
) -> Iterator[PreparedBatch]:
    """Prepare images ahead of the model, in their order.

    An image on which a worker dies is recorded as unreadable; the rest continue.

    Args:
        images: Names with images, paths or URLs; consumed lazily.
        spec: Input size and resizing of the model.
        batch_size: Images per batch.
        num_workers: Worker processes; 0 prepares in a thread, as always for a few images.

    Raises:
        ConfigError: A setting is invalid.
    """
    if batch_size < 1 or num_workers < 0:
        raise ConfigError(
            f"batch_size must be at least 1 and num_workers at least 0, got {batch_size} and {num_workers}"
        )
    batches = batched(images, batch_size)
    first = list(itertools.islice(batches, FEW_BATCHES + 1))
    processes = num_workers if len(first) > FEW_BATCHES else 0
    with PreparationPool(processes) as pool:
        pending: deque[Future[PreparedBatch]] = deque()
        for batch in itertools.chain(first, batches):
            pending.append(pool.submit(batch, spec))
            if len(pending) > 2 * max(processes, 1):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class PreparationPool:
    """Pool of threads, each with a worker process; or one thread without a process.

    Args:
        num_processes: Number of processes; 0 prepares in a thread.

    Examples:
        >>> with PreparationPool(1) as pool:
        ...     pool.submit((("a", "no_such.jpg"),), InputSpec(size=(8, 8))).result().errors
        ('there is no such file',)
    """

    def __init__(self, num_processes: int) -> None:
        self.num_processes = num_processes
        self.threads = ThreadPoolExecutor(max(1, num_processes))
        self.idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()

    def __enter__(self) -> PreparationPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.shutdown(cancel_futures=True)
        while not self.idle.empty():
            self.idle.get().close()

    def submit(self, images: tuple[NamedImage, ...], spec: InputSpec) -> Future[PreparedBatch]:
        """Queue a batch."""
        return self.threads.submit(self._prepare if self.num_processes else fetch_and_prepare, images, spec)

    def _prepare(self, images: tuple[NamedImage, ...], spec: InputSpec) -> PreparedBatch:
        """Prepare in a process; if it dies, retry image by image to find the culprit."""
        worker = WorkerProcess() if self.idle.empty() else self.idle.get()
        batches: list[PreparedBatch] = []
        try:
            batches.append(worker.call(images, spec))
        except WorkerDiedError:
            for name, image in images:
                try:
                    worker = worker if worker.is_alive else WorkerProcess()
                    batches.append(worker.call(((name, image),), spec))
                except WorkerDiedError:
                    batches.append(prepare_batch([(name, ImageError(name, _ENDED))], spec))
        self.idle.put(worker if worker.is_alive else WorkerProcess())
        return PreparedBatch(
            tuple(name for name, _ in images),
            np.concatenate([batch.pixels for batch in batches]),
            tuple(error for batch in batches for error in batch.errors),
        )


def fetch_and_prepare(images: tuple[NamedImage, ...], spec: InputSpec) -> PreparedBatch:
    """Fetch images given as URLs, then prepare all; runs in workers."""
    return prepare_batch([(name, _fetched(image)) for name, image in images], spec)


def _fetched(image: Any) -> Any:  # noqa: ANN401 - any kind of image
    if not isinstance(image, str) or not is_address(image):
        return image
    try:
        return fetch(image)
    except ImageError as error:
        return error


def batched(images: Iterable[NamedImage], size: int) -> Iterator[tuple[NamedImage, ...]]:
    """Split images into batches, as `itertools.batched` of Python 3.12 does."""
    images = iter(images)
    while batch := tuple(itertools.islice(images, size)):
        yield batch


class WorkerDiedError(Exception):
    """A worker died before answering."""


class WorkerProcess:
    """Process that serves calls of one function; arguments and results are pickled.

    Examples:
        >>> worker = WorkerProcess()
        >>> worker.call((("a", "no_such.jpg"),), InputSpec(size=(8, 8))).errors
        ('there is no such file',)
        >>> worker.close()
    """

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import answer_calls; answer_calls({TARGET!r})"
        self._process = subprocess.Popen(  # noqa: S603 - our own code in our own interpreter
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def call(self, *arguments: Any) -> Any:  # noqa: ANN401 - those of the function
        """Call the function in the process.

        Raises:
            WorkerDiedError: The process died before answering.
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
            with contextlib.suppress(OSError):  # unsent data is lost with the process
                if stream is not None:
                    stream.close()
        self._process.wait()


def answer_calls(target: str) -> None:
    """Serve calls until the parent closes the pipe; main function of a worker.

    Args:
        target: The function, as ``module:name``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which stops its workers
    module, _, name = target.partition(":")
    function = getattr(__import__(module, fromlist=[name]), name)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printing libraries must not corrupt results
    while True:
        try:
            arguments = pickle.load(source)  # noqa: S301 - written by the program that started us
        except EOFError:
            return
        pickle.dump(function(*arguments), answers, protocol=5)
        answers.flush()
