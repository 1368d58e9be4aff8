"""Several processes on this machine, each of which trains one teacher after the other.

Starting Python and importing torch takes seconds, so a process stays for many teachers; one that dies takes only the
teacher with it that it had, and another takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from manylabel.errors import RunInterruptedError
from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining, attempt
from manylabel.training.signals import StopSignals

__all__ = ["Processes"]

POLL_SECONDS = 0.5  # how long a signal may go unnoticed


class Processes:
    """Trains teachers in several processes.

    Args:
        num_processes: How many.
        threads: How many threads each computes with.
        num_gpus: How many GPUs the processes are dealt out to.
    """

    def __init__(self, *, num_processes: int, threads: int, num_gpus: int = 0) -> None:
        self.num_processes = num_processes
        self.threads = threads
        self.num_gpus = num_gpus

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        with TemporaryDirectory() as folder:
            shared = Path(folder) / "training.pickle"
            shared.write_bytes(pickle.dumps(training.portable()))
            return self._run(shared, tasks)

    def _run(self, shared: Path, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        waiting, failures, signals = deque(tasks), dict[str, str](), StopSignals()
        workers = [self._hire(shared, number) for number in range(min(self.num_processes, len(tasks)))]
        signals.catch()
        try:
            while waiting or any(worker.task for worker in workers):
                for number, worker in enumerate(workers):
                    if waiting and worker.task is None:
                        if worker.is_dead:
                            worker.dismiss()
                            workers[number] = self._hire(shared, number)
                        workers[number].give(waiting.popleft())
                for worker in _reporting(workers):
                    name, reason = worker.take()
                    failures |= {} if reason is None else {name: reason}
                if signals.received is not None:
                    _interrupt(workers, signals.received)
        finally:
            signals.release()
            for worker in workers:
                worker.dismiss()
        return failures

    def _hire(self, shared: Path, number: int) -> _Worker:
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

    def dismiss(self) -> None:
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


def _interrupt(workers: Sequence[_Worker], received: signal.Signals) -> None:
    """Have every process save its teacher, and end."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join()
        worker.task = None
    raise RunInterruptedError(
        f"stopped by {received.name} while teachers were trained; each is saved in its folder: give the same command "
        "with --resume to go on",
        exit_code=128 + received.value,
    )


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
