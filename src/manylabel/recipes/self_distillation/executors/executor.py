"""What an executor is: it trains teachers, which know nothing of each other, in any order."""

from collections.abc import Sequence
from typing import Protocol

from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining

__all__ = ["Executor"]


class Executor(Protocol):
    """Trains teachers."""

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
