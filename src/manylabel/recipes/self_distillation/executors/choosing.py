"""Which executor the settings ask for, how it shares out the machine, and what happens when teachers fail."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch

from manylabel.errors import TrainingError
from manylabel.recipes.loading import num_workers
from manylabel.recipes.self_distillation.classroom import Classroom
from manylabel.recipes.self_distillation.executors.executor import Executor
from manylabel.recipes.self_distillation.executors.on_ray import OnRay
from manylabel.recipes.self_distillation.executors.processes import Processes
from manylabel.recipes.self_distillation.executors.sequential import Sequential
from manylabel.recipes.self_distillation.lessons import Lesson
from manylabel.recipes.self_distillation.settings import SelfDistillation
from manylabel.system import available_cores

__all__ = ["make_executor", "train_teachers"]

logger = logging.getLogger(__name__)


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
        return OnRay(address=settings.ray_address, cpus=threads, gpus=settings.teacher_gpus)
    return Processes(num_processes=num_processes, threads=threads, num_gpus=_gpus(settings))


def train_teachers(classroom: Classroom, lessons: Sequence[Lesson]) -> None:
    """Train the teachers that are not finished yet; one that fails is tried again.

    Args:
        classroom: What all share.
        lessons: What they learn.

    Raises:
        TrainingError: Some failed each time; they are named, and the others are kept.
        RunInterruptedError: A signal ended it; what was done is saved.
    """
    settings = classroom.settings
    failures: dict[str, str] = {}
    for _ in range(1 + settings.retries):
        missing = [lesson for lesson in lessons if not classroom.is_learned(lesson)]
        if not missing:
            return
        executor = make_executor(settings, num_teachers=len(missing))
        failures = executor.run(_sharing_workers(classroom, len(missing)), missing)
        if not failures:
            return
        logger.warning("%d of %d teachers failed: %s", len(failures), len(missing), ", ".join(failures))
    told = "\n  ".join(f"{name}: {reason}" for name, reason in failures.items())
    raise TrainingError(
        f"{len(failures)} of {len(lessons)} teachers could not be trained; the others are kept in "
        f"{classroom.folder}. Mend the cause and give the same command with --resume:\n  {told}"
    )


def _sharing_workers(classroom: Classroom, num_teachers: int) -> Classroom:
    """Share out the processes that decode pictures, where the user did not say how many."""
    settings = classroom.settings
    if settings.workers is not None or settings.executor == "sequential":
        return classroom
    at_once = min(_processes(settings), num_teachers)
    return replace(classroom, settings=replace(settings, workers=num_workers(settings) // at_once))


def _processes(settings: SelfDistillation) -> int:
    """Return how many teachers train at once."""
    return settings.processes or _gpus(settings) or min(available_cores(), 8)


def _gpus(settings: SelfDistillation) -> int:
    return 0 if settings.device == "cpu" else torch.cuda.device_count()
