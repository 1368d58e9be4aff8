"""What became of a run: the scores of teachers, student and baseline, and what each of them cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from manylabel.data import ImageDataset
from manylabel.recipes.self_distillation.classroom import Classroom
from manylabel.recipes.self_distillation.lessons import Lesson, count_pictures
from manylabel.storage import write_text
from manylabel.training.metrics_file import reached, read_metrics
from manylabel.training.run_folder import RunFolder

__all__ = ["Row", "Summary", "summarise"]


@dataclass(frozen=True)
class Row:
    """A model of the run.

    Args:
        name: Which.
        labels: How many labels it knows.
        judged: How many of them the pictures to judge by show, and so have a score.
        pictures: How many pictures it was trained on.
        epochs: How often it saw each.
        mAP: Mean average precision over the labels that are judged.
        seconds: How long it trained.
    """

    name: str
    labels: int
    judged: int
    pictures: int
    epochs: int
    mAP: float  # noqa: N815 (the field's spelling)
    seconds: float


@dataclass(frozen=True)
class Summary:
    """All models of a run.

    Args:
        partition: How labels were divided.
        budget: How many epochs' worth of pictures all teachers and the student saw.
        teachers: The teachers.
        sides: What the teachers of a side reach together: the mean over all labels.
        student: The student.
        baseline: The plain model beside it, if there is one.
    """

    partition: str
    budget: float
    teachers: tuple[Row, ...]
    sides: dict[str, float]
    student: Row
    baseline: Row | None

    def write(self, folder: Path) -> None:
        """Leave summary.json and summary.md in a folder."""
        write_text(folder / "summary.json", json.dumps(asdict(self), indent=2) + "\n", overwrite=True)
        lines = ["| " + " | ".join(cells) + " |" for cells in self._cells()]
        lines.insert(1, "|---" + "|---:" * 5 + "|")
        write_text(folder / "summary.md", "\n".join(lines) + "\n", overwrite=True)

    def to_table(self) -> Table:
        """Return a table for a terminal."""
        header, *rows = self._cells()
        table = Table(box=None, header_style="bold")
        for number, title in enumerate(header):
            table.add_column(title, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        return table

    def _cells(self) -> list[list[str]]:
        models = [*self.teachers, self.student, *([] if self.baseline is None else [self.baseline])]
        cells = [
            [
                each.name,
                *map("{:,}".format, (each.labels, each.pictures, each.epochs)),
                *map("{:.2f}".format, (100 * each.mAP, each.seconds)),
            ]
            for each in models
        ]
        together = [
            [f"{side} teachers together", f"{self.student.labels:,}", "", "", f"{100 * value:.2f}", ""]
            for side, value in self.sides.items()
        ]
        split = len(self.teachers)
        return [["model", "labels", "pictures", "epochs", "mAP", "seconds"], *cells[:split], *together, *cells[split:]]


def summarise(
    classroom: Classroom,
    lessons: Sequence[Lesson],
    *,
    train: ImageDataset,
    val: ImageDataset,
    student: RunFolder,
    baseline: RunFolder | None,
) -> Summary:
    """Put together what became of a run.

    Args:
        classroom: What all teachers share.
        lessons: What they learned.
        train: The pictures to train on.
        val: The pictures to judge by.
        student: The student's run.
        baseline: The baseline's run, if there is one.
    """
    settings = classroom.settings
    shown = {name for name, count in zip(val.labels, val.targets.positives, strict=True) if count}

    def row(name: str, run: RunFolder, labels: Sequence[str], pictures: int) -> Row:
        epochs = read_metrics(run.metrics)
        score = reached(epochs, keep=settings.keep) or 0.0
        seconds = round(sum(epoch["seconds"] for epoch in epochs), 2)
        return Row(name, len(labels), len(shown & set(labels)), pictures, len(epochs), score, seconds)

    def count(lesson: Lesson) -> int:
        return count_pictures(train.targets, train.labels, lesson, which=settings.teacher_pictures)

    teachers = [row(each.name, classroom.run_of(each), each.labels, count(each)) for each in lessons]
    sides: dict[str, list[Row]] = {}
    for lesson, teacher in zip(lessons, teachers, strict=True):
        sides.setdefault(lesson.side, []).append(teacher)
    return Summary(
        partition=settings.partition,
        budget=settings.budget(train, lessons),
        teachers=tuple(teachers),
        sides={name: _mean(rows) for name, rows in sides.items()},
        student=row("student", student, train.labels.names, len(train)),
        baseline=None if baseline is None else row("baseline", baseline, train.labels.names, len(train)),
    )


def _mean(rows: Sequence[Row]) -> float:
    """Return the mean over the labels of all: average precision is a label's own."""
    judged = np.array([row.judged for row in rows])
    return float((judged * [row.mAP for row in rows]).sum() / max(1, judged.sum()))
