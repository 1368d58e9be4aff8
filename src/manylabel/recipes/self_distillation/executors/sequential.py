"""One teacher after the other, in this process."""

from collections.abc import Sequence

from manylabel.recipes.self_distillation.partition import TeacherTask
from manylabel.recipes.self_distillation.teachers import TeacherTraining, attempt

__all__ = ["Sequential"]


class Sequential:
    """Trains one teacher after the other."""

    def run(self, training: TeacherTraining, tasks: Sequence[TeacherTask]) -> dict[str, str]:
        """Train a teacher for each task; see `Executor`."""
        told = {task.name: attempt(training, task) for task in tasks}
        return {name: reason for name, reason in told.items() if reason is not None}
