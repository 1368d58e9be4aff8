"""One teacher after the other, in this process."""

from collections.abc import Sequence

from manylabel.recipes.self_distillation.classroom import Classroom, attempt
from manylabel.recipes.self_distillation.lessons import Lesson

__all__ = ["Sequential"]


class Sequential:
    """Trains one teacher after the other."""

    def run(self, classroom: Classroom, lessons: Sequence[Lesson]) -> dict[str, str]:
        """Train a teacher for each lesson; see `Executor`."""
        told = {lesson.name: attempt(classroom, lesson) for lesson in lessons}
        return {name: reason for name, reason in told.items() if reason is not None}
