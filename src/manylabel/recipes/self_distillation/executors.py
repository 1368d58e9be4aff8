"""Executors that train the teachers: this process, several processes on this machine, or Ray.

Starting Python and importing torch takes seconds, so a process stays for many teachers; one that dies takes only the
teacher with it that it had, and another takes its place.
"""

from __future__ import annotations

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

from manylabel.errors import RunInterruptedError, TrainingError
from manylabel.on_ray import connected_to_ray, run_on_ray
from manylabel.recipes.loaders import num_workers
from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining, attempt
from manylabel.settings import SelfDistillation
from manylabel.system import available_cores, require
from manylabel.training.signals import StopSignals

__all__ = ["Executor", "OnRay", "Processes", "Sequential", "make_executor", "train_teachers"]

logger = logging.getLogger(__name__)

RETRIES = 1  # of a teacher that fails, from where it was saved last
POLL_SECONDS = 0.5  # how long a signal may go unnoticed


class Executor(Protocol):
    """Trains teachers, which know nothing of each other, in any order."""

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task, whatever becomes of the others.

        Args:
            training: What all share.
            tasks: The teachers.

        Returns:
            The names of the teachers that failed, with what went wrong.

        Raises:
            RunInterruptedError: A signal ended it; what was done is saved.
        """
        ...


def train_teachers(training: TeacherTraining, tasks: Sequence[TeacherTask]) -> None:
    """Train the teachers that are not finished yet; one that fails is tried again.

    Args:
        training: What all share.
        tasks: The teachers.

    Raises:
        TrainingError: Some failed each time; they are named, and the others are kept.
        RunInterruptedError: A signal ended it; what was done is saved.
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
        f"{len(failures)} of {len(tasks)} teachers could not be trained; the others are kept in "
        f"{training.folder}. Fix the cause and give the same command with --resume:\n  {listed}"
    )


def make_executor(settings: SelfDistillation, *, num_teachers: int) -> Executor:
    """Make the executor that the settings ask for.

    Args:
        settings: Those of the recipe.
        num_teachers: Number of teachers to train.

    Raises:
        MissingExtraError: Ray is asked for and not installed.

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
    """Trains one teacher after the other, in this process."""

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        reasons = {task.name: attempt(training, task) for task in tasks}
        return {name: reason for name, reason in reasons.items() if reason is not None}


@dataclass(frozen=True)
class OnRay:
    """Trains teachers as tasks of Ray.

    Args:
        address: Address of a cluster (default: start Ray on this machine).
        cpus: CPUs of each teacher.
        gpus: GPUs of each teacher.
    """

    address: str | None = None
    cpus: float = 1
    gpus: float = 0

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        failures: dict[str, str] = {}
        advice = "try again with --resume when the machine is less busy, or take --executor processes"
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
    """Trains teachers in several processes.

    Args:
        num_processes: Number of processes.
        threads: Threads of each process.
        num_gpus: GPUs that the processes are dealt out to.
    """

    num_processes: int
    threads: int
    num_gpus: int = 0

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        with TemporaryDirectory() as folder:
            shared = Path(folder) / "training.pickle"
            shared.write_bytes(pickle.dumps(training.portable()))
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

    def _start(self, shared: Path, number: int) -> _Worker:
        gpu = number % self.num_gpus if self.num_gpus else None
        return _Worker(shared, threads=self.threads, gpu=gpu)


class _Worker:
    """A process that trains teachers, seen from outside."""

    def __init__(self, shared: Path, *, threads: int, gpu: int | None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process in which torch has threads may hang
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, shared, threads, gpu))
        self.process.start()
        theirs.close()  # so that its death ends the connection
        self.task: TeacherTask | None = None
        self.is_dead = False

    def give(self, task: TeacherTask) -> None:
        """Have a teacher trained."""
        self.task = task
        try:
            self.connection.send(task)
        except OSError:
            self.is_dead = True  # `take` will tell of it

    def take(self) -> tuple[str, str | None]:
        """Return the name of the teacher that was trained, and what went wrong, if anything did."""
        name, self.task = "" if self.task is None else self.task.name, None
        try:
            return name, self.connection.recv()
        except (EOFError, OSError):
            self.is_dead = True
            self.process.join()
            return name, f"its process died with exit code {self.process.exitcode}"

    def end(self) -> None:
        """End the process, which has nothing to do or is not wanted any more."""
        if self.task is not None:
            self.process.kill()
        with suppress(OSError):  # it may be dead
            self.connection.send(None)
        self.connection.close()
        self.process.join()


def _reporting(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait a moment for processes that have something to say."""
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
    """Train teachers until there are no more; the other side of `_Worker`."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what to do
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    torch.set_num_threads(threads)
    # Through a file, as a process that is handed much holds up the start of the next one until it has read it.
    training: TeacherTraining = pickle.loads(shared.read_bytes())  # noqa: S301 (our own parent wrote it just now)
    while True:
        try:
            task = connection.recv()
            if task is None:
                return
            connection.send(attempt(training, task))
        except (EOFError, OSError, RunInterruptedError):
            return


def _die_with_parent() -> None:
    """End this process when its parent was killed: a run that resumes must find no one else at its teachers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _attempt_in(folder: Path, training: TeacherTraining, task: TeacherTask) -> str | None:
    """Train one teacher in the folder of the command, where paths start that are not absolute; Ray has its own."""
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
        f"stopped by {received.name} while teachers were trained; each is saved in its folder: give the same command "
        "with --resume to continue",
        exit_code=128 + received.value,
    )


def _sharing_workers(training: TeacherTraining, num_teachers: int) -> TeacherTraining:
    """Divide the processes that decode images among teachers, where the user did not set their number."""
    settings = training.settings
    if settings.workers is not None or settings.executor == "sequential":
        return training
    at_once = min(_processes(settings), num_teachers)
    return replace(training, settings=replace(settings, workers=num_workers(settings) // at_once))


def _processes(settings: SelfDistillation) -> int:
    """Return how many teachers train at once."""
    return settings.processes or _gpus(settings) or min(available_cores(), 8)


def _gpus(settings: SelfDistillation) -> int:
    return 0 if settings.device == "cpu" else torch.cuda.device_count()
