"""Ray: teachers on this machine or on a cluster, placed by the CPUs and GPUs that each asks for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir, nullcontext
from pathlib import Path
from types import ModuleType

from manylabel.errors import RunInterruptedError
from manylabel.on_ray import connected_to_ray
from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining, attempt
from manylabel.system import require
from manylabel.training.signals import StopSignals

__all__ = ["OnRay"]

ADVICE = "try again with --resume when the machine is less busy, or take --executor processes"
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

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        ray, failures, signals = self._ray, dict[str, str](), StopSignals()
        with connected_to_ray(self.address, advice=ADVICE):
            # Who tries again is decided by the caller, alike for all executors.
            remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)(_attempt_in)
            here, shared = Path.cwd(), ray.put(training.portable())
            running = {remote.options(name=task.name).remote(here, shared, task): task for task in tasks}
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


def _attempt_in(folder: Path, training: TeacherTraining, task: TeacherTask) -> str | None:
    """Train one teacher in the folder of the command, where paths start that are not absolute; Ray has its own."""
    with chdir(folder) if folder.is_dir() else nullcontext():
        return attempt(training, task)


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
