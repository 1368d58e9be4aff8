"""Executors that train the teachers: this process, several processes on this machine, or Ray.

Starting Python and importing torch takes seconds, so each process trains many teachers. If a process dies, only its
current teacher fails, and a new process replaces it.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import torch

from manylabel.errors import ConfigError, RunInterruptedError, TrainingError
from manylabel.on_ray import connected_to_ray, run_on_ray
from manylabel.recipes.loaders import num_workers
from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining, attempt
from manylabel.settings import SelfDistillation
from manylabel.system import available_cores, require
from manylabel.training.checkpoints import StopSignals

logger = logging.getLogger(__name__)

RETRIES = 1  # of a failed teacher, from its last checkpoint
POLL_SECONDS = 0.5  # maximum delay in handling a signal


class Executor(Protocol):
    """Trains independent teachers in any order."""

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task, even if others fail.

        Args:
            training: Common settings and data.
            tasks: Tasks of the teachers.

        Returns:
            The errors of failed teachers, by name.

        Raises:
            RunInterruptedError: A signal stopped it; checkpoints are saved.
        """
        ...


def train_teachers(training: TeacherTraining, tasks: Sequence[TeacherTask]) -> None:
    """Train all unfinished teachers; failed ones are retried.

    Args:
        training: Common settings and data.
        tasks: Tasks of the teachers.

    Raises:
        TrainingError: Teachers failed repeatedly; the message lists them. The others are saved.
        RunInterruptedError: A signal stopped it; checkpoints are saved.
    """
    failures: dict[str, str] = {}
    for _ in range(1 + RETRIES):
        missing = [task for task in tasks if not training.is_finished(task)]
        if not missing:
            return
        executor = make_executor(training.settings, num_teachers=len(missing))
        failures = executor.run(_sharing_workers(training, len(missing)), missing)
        if not failures:
            return
        logger.warning("%d of %d teachers failed: %s", len(failures), len(missing), ", ".join(failures))
    listed = "\n  ".join(f"{name}: {reason}" for name, reason in failures.items())
    raise TrainingError(
        f"{len(failures)} of {len(tasks)} teachers could not be trained; the others are saved in "
        f"{training.folder}. Fix the cause and repeat the command with --resume:\n  {listed}"
    )


def make_executor(settings: SelfDistillation, *, num_teachers: int) -> Executor:
    """Build the executor that the settings name.

    Args:
        settings: Settings of the recipe.
        num_teachers: Number of teachers to train.

    Raises:
        MissingExtraError: Ray is requested but not installed.

    Examples:
        >>> settings = SelfDistillation(data="scenes:50", processes=64, device="cpu")
        >>> make_executor(settings, num_teachers=10).num_processes
        10
    """
    num_processes = min(_processes(settings), max(num_teachers, 1))
    threads = max(1, available_cores() // num_processes)
    if settings.executor == "sequential":
        return Sequential()
    if settings.executor == "ray":
        require("ray", extra="ray")
        return OnRay(address=settings.ray_address, cpus=threads, gpus=1 if settings.device == "cuda" else 0)
    return Processes(num_processes=num_processes, threads=threads, num_gpus=_gpus(settings))


class Sequential:
    """Train teachers sequentially in this process."""

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        reasons = {task.name: attempt(training, task) for task in tasks}
        return {name: reason for name, reason in reasons.items() if reason is not None}


@dataclass(frozen=True)
class OnRay:
    """Train teachers as Ray tasks.

    Args:
        address: Address of a Ray cluster (default: start one on this machine).
        cpus: CPUs per teacher.
        gpus: GPUs per teacher.
    """

    address: str | None = None
    cpus: float = 1
    gpus: float = 0

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        failures: dict[str, str] = {}
        advice = "try again with --resume when the machine is less busy, or use --executor processes"
        work = partial(_attempt_in, Path.cwd(), training.portable())
        with connected_to_ray(self.address, advice=advice), _stop_signals() as signals:
            for task, reason in run_on_ray(
                work, tasks, cpus=self.cpus, gpus=self.gpus, is_stopped=lambda: signals.received is not None
            ):
                failures |= {} if reason is None else {task.name: str(reason)}
            if signals.received is not None:
                raise _interrupted(signals.received)
        return failures


@dataclass(frozen=True)
class Processes:
    """Train teachers in several processes.

    Args:
        num_processes: Number of processes.
        threads: Threads per process.
        num_gpus: Number of GPUs to distribute the processes over.
    """

    num_processes: int
    threads: int
    num_gpus: int = 0

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        with TemporaryDirectory() as folder:
            shared = Path(folder) / "training.pickle"
            try:
                shared.write_bytes(pickle.dumps(training.portable()))
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                raise ConfigError(
                    f"the run cannot be sent to other processes ({error}); define your own head, loss and transform in "
                    "a module, not inside a function, or set executor to sequential"
                ) from error
            return self._run(shared, tasks)

    def _run(self, shared: Path, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        waiting, failures = deque(tasks), dict[str, str]()
        workers = [self._start(shared, number) for number in range(min(self.num_processes, len(tasks)))]
        try:
            with _stop_signals() as signals:
                while waiting or any(worker.task for worker in workers):
                    for number, worker in enumerate(workers):
                        if waiting and worker.task is None:
                            if worker.is_dead:
                                worker.end()
                                workers[number] = self._start(shared, number)
                            workers[number].give(waiting.popleft())
                    for worker in _reporting(workers):
                        name, reason = worker.take()
                        failures |= {} if reason is None else {name: reason}
                    if signals.received is not None:
                        _save_and_end(workers)
                        raise _interrupted(signals.received)
        finally:
            for worker in workers:
                worker.end()
        return failures

    def _start(self, shared: Path, number: int) -> "_Worker":
        gpu = number % self.num_gpus if self.num_gpus else None
        return _Worker(shared, threads=self.threads, gpu=gpu)


class _Worker:
    """Handle of a process that trains teachers."""

    def __init__(self, shared: Path, *, threads: int, gpu: int | None) -> None:
        context = multiprocessing.get_context("spawn")  # forking a process with torch threads may hang
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, shared, threads, gpu))
        self.process.start()
        theirs.close()  # then the connection closes when the process dies
        self.task: TeacherTask | None = None
        self.is_dead = False

    def give(self, task: TeacherTask) -> None:
        """Start the training of a teacher."""
        self.task = task
        try:
            self.connection.send(task)
        except OSError:
            self.is_dead = True  # `take` reports it

    def take(self) -> tuple[str, str | None]:
        """Return the name of the finished teacher, and its error, if any."""
        name, self.task = "" if self.task is None else self.task.name, None
        try:
            return name, self.connection.recv()
        except (EOFError, OSError):
            self.is_dead = True
            self.process.join()
            return name, f"its process died with exit code {self.process.exitcode}"

    def end(self) -> None:
        """Stop the process."""
        if self.task is not None:
            self.process.kill()
        with suppress(OSError):  # the process may be dead
            self.connection.send(None)
        self.connection.close()
        self.process.join()


def _reporting(workers: Sequence[_Worker]) -> list[_Worker]:
    """Return the processes with a result, waiting briefly for one."""
    busy = [worker for worker in workers if worker.task is not None]
    ready = wait([worker.connection for worker in busy], timeout=POLL_SECONDS)
    return [worker for worker in busy if worker.connection in ready]


def _save_and_end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join()
        worker.task = None


def _work(connection: Connection, shared: Path, threads: int, gpu: int | None) -> None:
    """Train teachers until None is received; main function of a `_Worker` process."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; only the parent handles it
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    torch.set_num_threads(threads)
    # Through a file: large arguments would delay the start of the next process.
    training: TeacherTraining = pickle.loads(shared.read_bytes())  # noqa: S301 (written by the parent process)
    while True:
        try:
            task = connection.recv()
            if task is None:
                return
            connection.send(attempt(training, task))
        except (EOFError, OSError, RunInterruptedError):
            return


def _die_with_parent() -> None:
    """Exit when the parent is killed: a resumed run must not compete for its teachers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _attempt_in(folder: Path, training: TeacherTraining, task: TeacherTask) -> str | None:
    """Train one teacher in the working directory of the command, for relative paths; Ray changes it."""
    with chdir(folder) if folder.is_dir() else nullcontext():
        return attempt(training, task)


@contextmanager
def _stop_signals() -> Iterator[StopSignals]:
    signals = StopSignals()
    signals.catch()
    try:
        yield signals
    finally:
        signals.release()


def _interrupted(received: signal.Signals) -> RunInterruptedError:
    return RunInterruptedError(
        f"stopped by {received.name} while training teachers; their checkpoints are saved: repeat the command "
        "with --resume to continue",
        exit_code=128 + received.value,
    )


def _sharing_workers(training: TeacherTraining, num_teachers: int) -> TeacherTraining:
    """Divide the image-decoding processes among teachers, unless `workers` is set."""
    settings = training.settings
    if settings.workers is not None or settings.executor == "sequential":
        return training
    at_once = min(_processes(settings), num_teachers)
    return replace(training, settings=replace(settings, workers=num_workers(settings) // at_once))


def _processes(settings: SelfDistillation) -> int:
    """Return the number of teachers trained in parallel."""
    return settings.processes or _gpus(settings) or min(available_cores(), 8)


def _gpus(settings: SelfDistillation) -> int:
    return 0 if settings.device == "cpu" else torch.cuda.device_count()
