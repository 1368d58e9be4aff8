"""How far all teachers are, at once: a bar for each on a terminal, elsewhere a line when one is done.

What is shown is read from the teachers' folders, so it does not matter which process, or machine, trains them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from manylabel.recipes.self_distillation.classroom import Classroom
from manylabel.recipes.self_distillation.lessons import Lesson
from manylabel.training.metrics_file import read_metrics

__all__ = ["TeacherBoard"]

POLL_SECONDS = 0.5


class TeacherBoard:
    """Shows the progress of teachers while the block runs.

    Args:
        console: Where to; nowhere when None.
        classroom: What all share.
        lessons: What they learn.
    """

    def __init__(self, console: Console | None, classroom: Classroom, lessons: Sequence[Lesson]) -> None:
        self.console = console
        self.classroom = classroom
        self.lessons = lessons
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._told = {lesson.name for lesson in lessons if classroom.is_learned(lesson)}

    def __enter__(self) -> Self:
        if self.console is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self.console is not None:
            self._thread.join()

    def _watch(self) -> None:
        if self.console is None:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
        )
        epochs = self.classroom.settings.teacher_epochs or self.classroom.settings.epochs
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as bars:
            numbers = {each.name: bars.add_task(each.name, total=epochs, numbers="") for each in self.lessons}
            over = False
            while not over:
                over = self._over.wait(POLL_SECONDS)  # look once more when all is over
                for lesson in self.lessons:
                    rows = read_metrics(self.classroom.run_of(lesson).metrics)
                    said = f"mAP {100 * rows[-1]['val_mAP']:.2f}" if rows else ""
                    bars.update(numbers[lesson.name], completed=len(rows), numbers=said)
                    self._tell(lesson, said)

    def _tell(self, lesson: Lesson, said: str) -> None:
        if self.console is None or lesson.name in self._told or not self.classroom.is_learned(lesson):
            return
        self._told.add(lesson.name)
        if not self.console.is_terminal:
            count = f"{len(self._told)}/{len(self.lessons)}"
            self.console.print(f"teacher {lesson.name} ({count})  {said}", highlight=False)
