"""What an executor is: it trains teachers, which know nothing of each other, in any order."""

from collections.abc import Sequence
from typing import Protocol

from manylabel.recipes.self_distillation.classroom import Classroom
from manylabel.recipes.self_distillation.lessons import Lesson

__all__ = ["Executor"]


class Executor(Protocol):
    """Trains teachers."""

    def run(self, classroom: Classroom, lessons: Sequence[Lesson]) -> dict[str, str]:
        """Train a teacher for each lesson, whatever becomes of the others.

        Args:
            classroom: What all share.
            lessons: What they learn.

        Returns:
            The names of the teachers that failed, with what went wrong.

        Raises:
            RunInterruptedError: A signal ended it; what was done is saved.
        """
        ...
