"""Which executor the settings ask for, how it shares out the machine, and what happens when teachers fail."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch

from manylabel.errors import TrainingError
from manylabel.recipes.loaders import num_workers
from manylabel.recipes.self_distillation.executors.executor import Executor
from manylabel.recipes.self_distillation.executors.on_ray import OnRay
from manylabel.recipes.self_distillation.executors.processes import Processes
from manylabel.recipes.self_distillation.executors.sequential import Sequential
from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining
from manylabel.settings import SelfDistillation
from manylabel.system import available_cores

__all__ = ["make_executor", "train_teachers"]

logger = logging.getLogger(__name__)

RETRIES = 1  # of a teacher that fails, from where it was saved last


def make_executor(settings: SelfDistillation, *, num_teachers: int) -> Executor:
    """Make the executor that the settings ask for.

    Args:
        settings: Those of the recipe.
        num_teachers: How many teachers there are to train.

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
        return OnRay(address=settings.ray_address, cpus=threads, gpus=1 if settings.device == "cuda" else 0)
    return Processes(num_processes=num_processes, threads=threads, num_gpus=_gpus(settings))


def train_teachers(training: TeacherTraining, tasks: Sequence[TeacherTask]) -> None:
    """Train the teachers that are not finished yet; one that fails is tried again.

    Args:
        training: What all share.
        tasks: The teachers.

    Raises:
        TrainingError: Some failed each time; they are named, and the others are kept.
        RunInterruptedError: A signal ended it; what was done is saved.
    """
    settings = training.settings
    failures: dict[str, str] = {}
    for _ in range(1 + RETRIES):
        missing = [task for task in tasks if not training.is_finished(task)]
        if not missing:
            return
        executor = make_executor(settings, num_teachers=len(missing))
        failures = executor.run(_sharing_workers(training, len(missing)), missing)
        if not failures:
            return
        logger.warning("%d of %d teachers failed: %s", len(failures), len(missing), ", ".join(failures))
    told = "\n  ".join(f"{name}: {reason}" for name, reason in failures.items())
    raise TrainingError(
        f"{len(failures)} of {len(tasks)} teachers could not be trained; the others are kept in "
        f"{training.folder}. Fix the cause and give the same command with --resume:\n  {told}"
    )


def _sharing_workers(training: TeacherTraining, num_teachers: int) -> TeacherTraining:
    """Share out the processes that decode pictures, where the user did not say how many."""
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
