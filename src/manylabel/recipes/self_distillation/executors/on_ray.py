"""Ray: teachers on this machine or on a cluster, placed by the CPUs and GPUs that each asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from manylabel.errors import RunInterruptedError, TrainingError
from manylabel.extras import require
from manylabel.recipes.self_distillation.classroom import Classroom, attempt
from manylabel.recipes.self_distillation.lessons import Lesson
from manylabel.training.signals import StopSignals

__all__ = ["OnRay"]

POLL_SECONDS = 0.5  # how long a signal may go unnoticed


class OnRay:
    """Trains teachers as tasks of Ray.

    Args:
        address: That of a cluster; None starts Ray on this machine and stops it in the end. Ray that runs already in
            this process is used as it is.
        cpus: CPUs for each teacher.
        gpus: GPUs for each teacher.

    Raises:
        MissingExtraError: Ray is not installed.
    """

    def __init__(self, *, address: str | None = None, cpus: float = 1, gpus: float = 0) -> None:
        self.address = address
        self.cpus = cpus
        self.gpus = gpus
        self._ray = require("ray", extra="ray")

    def run(self, classroom: Classroom, lessons: Sequence[Lesson]) -> dict[str, str]:
        """Train a teacher for each lesson; see `Executor`."""
        ray, failures, signals = self._ray, dict[str, str](), StopSignals()
        with _connected(ray, self.address):
            # Who tries again is decided by the caller, alike for all executors.
            remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)(attempt)
            shared = ray.put(classroom.portable())
            running = {remote.options(name=lesson.name).remote(shared, lesson): lesson for lesson in lessons}
            signals.catch()
            try:
                while running:
                    for reference in ray.wait(list(running), timeout=POLL_SECONDS)[0]:
                        reason = _result(ray, reference)
                        failures |= {} if reason is None else {running[reference].name: reason}
                        del running[reference]
                    if signals.received is not None:
                        _interrupt(ray, list(running), signals)
            finally:
                signals.release()
        return failures


@contextmanager
def _connected(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Connect to Ray, or start it, and leave it as it was found."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unasked
    try:
        _start(ray, address)
        yield
    finally:
        ray.shutdown()


def _start(ray: ModuleType, address: str | None) -> None:
    local = {"include_dashboard": False} if address is None else {}
    with _own_path():
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **local)
        except Exception as error:  # a plain one, where a busy machine takes too long
            where = "be started on this machine" if address is None else f"be reached at {address}"
            raise TrainingError(
                f"Ray cannot {where} ({error}); try again with --resume when the machine is less busy, or take "
                "--executor processes"
            ) from error


@contextmanager
def _own_path() -> Iterator[None]:
    """Let processes that are started here import what this one can: Ray hands on the environment, not ``sys.path``."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ.update({} if before is None else {"PYTHONPATH": before})


def _result(ray: ModuleType, reference: object) -> str | None:
    try:
        reason: str | None = ray.get(reference)
    except ray.exceptions.RayError as error:
        return str(error).strip().splitlines()[-1]
    return reason


def _interrupt(ray: ModuleType, running: Sequence[object], signals: StopSignals) -> None:
    """Have every teacher saved, and end."""
    for reference in running:
        ray.cancel(reference)  # reaches a teacher as Ctrl-C would
    if running:
        ray.wait(list(running), num_returns=len(running), timeout=60)
    name, value = ("a signal", 2) if signals.received is None else (signals.received.name, signals.received.value)
    raise RunInterruptedError(
        f"stopped by {name} while Ray trained teachers; give the same command with --resume to go on",
        exit_code=128 + value,
    )
