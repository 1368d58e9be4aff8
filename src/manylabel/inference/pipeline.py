"""Prediction for any number of images: worker processes prepare batches ahead of the model, here or on a Ray cluster.

Workers import neither torch nor the main program: `multiprocessing` would re-import the main program in each worker,
which takes seconds if it imports torch, and fails in notebooks and in scripts without a main guard.
"""

import contextlib
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from manylabel.builtin import DEFAULT_MODEL
from manylabel.engine import Engine, NamedImage, PreparedBatch, prepare_batch, score_batch
from manylabel.errors import ConfigError, ImageError
from manylabel.image_files import fetch, is_address
from manylabel.inference.engine import EngineName, engine_device, open_engine
from manylabel.on_ray import map_on_ray
from manylabel.predictions import ImagePrediction, Predictions, TagChoice
from manylabel.system import default_workers, require
from manylabel.types import InputSpec

BATCHES_PER_TASK = 4  # per Ray replica: the next batch is decoded while one is scored
FEW_BATCHES = 2  # prepared by a thread: processes would take longer to start
TARGET = "manylabel.inference.pipeline:fetch_and_prepare"

_ENDED = "the worker process that decoded it died, possibly out of memory"


def predict_stream(
    engine: Engine, names: Iterable[str], *, batch_size: int = 32, num_workers: int | None = 0
) -> Iterator[Predictions]:
    """Predict the tags of many images, batch by batch, in constant memory; decoding and scoring overlap.

    Args:
        engine: Engine of `open_engine`.
        names: Paths and URLs; consumed lazily.
        batch_size: Images per batch.
        num_workers: Worker processes that decode images; 0 decodes in a thread, None takes `default_workers`.

    Yields:
        Predictions of each batch; unreadable images are recorded with an error.

    Examples:
        >>> from manylabel.builtin import sample_photos
        >>> engine = open_engine("builtin:everyday", engine="torch")
        >>> for batch in predict_stream(engine, [*map(str, sample_photos()), "no_such.jpg"], batch_size=3):
        ...     print([image.error for image in batch])
        [None, None, None]
        ['there is no such file']
    """
    images = ((name, name) for name in names)
    num_workers = default_workers(on_gpu=engine.on_gpu) if num_workers is None else num_workers
    for batch in prepare_batches(images, engine.spec.input_spec, batch_size=batch_size, num_workers=num_workers):
        yield score_batch(engine, batch)


def tag_with_ray(
    names: Iterable[str],
    *,
    model: str | Path = DEFAULT_MODEL,
    choice: TagChoice | None = None,
    engine: EngineName = "auto",
    labels: Sequence[str] | None = None,
    device: str = "auto",
    batch_size: int = 32,
    replicas: int | None = None,
    address: str | None = None,
) -> Iterator[list[ImagePrediction]]:
    """Tag images on a Ray cluster or in several local processes; same results as `predict_stream`.

    Only names and tags are transferred: every machine must see images and model under the same paths.

    Args:
        names: Paths and URLs; consumed lazily.
        model: Model, as in `open_engine`.
        choice: Rule that selects tags by their scores (default: the model's own thresholds).
        engine: Inference backend.
        labels: Labels to score instead of its own, for models with text queries.
        device: Torch device; ``"cuda"`` takes one GPU per replica, ``"auto"`` does if this machine has a GPU.
        batch_size: Images per batch.
        replicas: Number of model replicas (default: one per GPU if they run there, else one per CPU).
        address: Address of a Ray cluster, such as ``"auto"`` (default: start Ray on this machine).

    Returns:
        Results in chunks, in the order of the names.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: A setting is invalid.
        ModelFormatError: There is no such model.
        ClusterError: Ray is unavailable or its actors fail; raised during iteration.

    Examples:
        >>> tag_with_ray(["a.jpg"], replicas=0)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: batch_size and replicas must be at least 1, got 32 and 0
    """
    if batch_size < 1 or (replicas is not None and replicas < 1):
        raise ConfigError(f"batch_size and replicas must be at least 1, got {batch_size} and {replicas}")
    require("ray", extra="ray")
    model = str(Path(model).resolve()) if Path(model).exists() else model  # actors run in another folder
    device = engine_device(model, device, engine=engine)
    on_gpu = device.startswith("cuda")
    load = partial(open_engine, model, labels=labels)
    # Opened here first: errors surface before Ray starts, and the model is exported only once on this machine.
    spec = load(engine="torch" if on_gpu else engine, device="cpu").spec
    choice = choice or TagChoice()
    choice.limits(spec)
    here = str(Path.cwd())
    images = ((name, name if is_address(name) else os.path.join(here, name)) for name in names)  # noqa: PTH118 - millions
    return map_on_ray(
        partial(_Replica, partial(load, engine=engine, device=device, num_threads=1), choice, batch_size),
        batched(images, BATCHES_PER_TASK * batch_size),
        replicas=replicas,
        gpus=int(on_gpu),
        address=address,
        advice="try again with --resume, or leave out --executor ray",
    )


class _Replica:
    """A model and its decoding process; an image that kills the process is recorded as unreadable.

    Args:
        load: Opens the model.
        choice: Rule that selects tags by their scores.
        batch_size: Images per batch.
    """

    def __init__(self, load: Callable[[], Engine], choice: TagChoice, batch_size: int) -> None:
        self.engine = load()
        self.choice = choice
        self.batch_size = batch_size
        self.pool = PreparationPool(1)

    def __call__(self, images: Sequence[NamedImage]) -> list[ImagePrediction]:
        """Tag images batch by batch, decoding the next batch meanwhile."""
        spec = self.engine.spec.input_spec
        prepared = [self.pool.submit(batch, spec) for batch in batched(images, self.batch_size)]
        scored = (score_batch(self.engine, batch.result()) for batch in prepared)
        tagged = (image for batch in scored for image in batch.tagged(self.choice))
        return [ImagePrediction(image.name, image.tags, image.error) for image in tagged]  # small: no scores, no labels


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
        raise ConfigError(f"batch_size must be at least 1, num_workers at least 0, got {batch_size} and {num_workers}")
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

    def __enter__(self) -> "PreparationPool":
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
