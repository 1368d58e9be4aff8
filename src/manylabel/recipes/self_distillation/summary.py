"""Summary of a run: mAP and training time of teachers, student and baseline."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from manylabel.evaluation import Estimate, compare_map
from manylabel.recipes.self_distillation.partition import TeacherTask, image_mask
from manylabel.recipes.self_distillation.teachers import TeacherTraining
from manylabel.recipes.sets import TrainAndVal
from manylabel.storage import write_text
from manylabel.training import RunFolder, ValidationScores, reached, read_metrics


@dataclass(frozen=True)
class Row:
    """Result of one model of the run.

    Args:
        name: Name of the model.
        labels: Number of labels.
        evaluated_labels: Number of labels with positive validation images.
        images: Number of training images.
        epochs: Number of epochs.
        mAP: Mean average precision over these labels.
        seconds: Training time.
    """

    name: str
    labels: int
    evaluated_labels: int
    images: int
    epochs: int
    mAP: float  # noqa: N815 (the field's spelling)
    seconds: float


@dataclass(frozen=True)
class Summary:
    """Results of all models of a run.

    Args:
        partition: Kind of partition.
        teachers: Results of the teachers.
        sides: Mean average precision of all teachers of a side together.
        student: Result of the student.
        baseline: Result of the model without distillation, if there is one.
        gain: mAP of the student minus that of the baseline, on the same validation images.
    """

    partition: str
    teachers: tuple[Row, ...]
    sides: dict[str, float]
    student: Row
    baseline: Row | None
    gain: Estimate | None = None

    def write(self, folder: Path) -> None:
        """Write summary.json and summary.md to a folder."""
        values = asdict(self) | {"gain": None if self.gain is None else self.gain._asdict()}
        write_text(folder / "summary.json", json.dumps(values, indent=2) + "\n", overwrite=True)
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
                *map("{:,}".format, (each.labels, each.images, each.epochs)),
                *map("{:.2f}".format, (100 * each.mAP, each.seconds)),
            ]
            for each in models
        ]
        together = [
            [f"{side} teachers together", f"{self.student.labels:,}", "", "", f"{100 * value:.2f}", ""]
            for side, value in self.sides.items()
        ]
        split = len(self.teachers)
        return [["model", "labels", "images", "epochs", "mAP", "seconds"], *cells[:split], *together, *cells[split:]]


def summarise(
    training: TeacherTraining,
    tasks: Sequence[TeacherTask],
    *,
    sets: TrainAndVal,
    student: RunFolder,
    baseline: RunFolder | None,
    scores: ValidationScores,
) -> Summary:
    """Summarise a run.

    Args:
        training: Common settings and data of the teachers.
        tasks: Tasks of the teachers.
        sets: Training and validation set.
        student: Run folder of the student.
        baseline: Run folder of the baseline, if there is one.
        scores: Validation scores of the student.
    """
    settings, train, val = training.settings, sets.train, sets.val
    shown = {name for name, count in zip(val.labels, val.targets.positives, strict=True) if count}

    def row(name: str, run: RunFolder, labels: Sequence[str], images: int) -> Row:
        epochs = read_metrics(run.metrics)
        score = reached(epochs, keep=settings.keep) or 0.0
        seconds = round(sum(epoch["seconds"] for epoch in epochs), 2)
        return Row(name, len(labels), len(shown & set(labels)), images, len(epochs), score, seconds)

    def count(task: TeacherTask) -> int:
        return int(image_mask(train.targets, train.labels, task, which=settings.teacher_images).sum())

    teachers = [row(each.name, training.run_of(each), each.labels, count(each)) for each in tasks]
    sides: dict[str, list[Row]] = {}
    for task, teacher in zip(tasks, teachers, strict=True):
        sides.setdefault(task.side, []).append(teacher)
    return Summary(
        partition=settings.partition,
        teachers=tuple(teachers),
        sides={name: _mean(rows) for name, rows in sides.items()},
        student=row("student", student, train.labels.names, len(train)),
        baseline=None if baseline is None else row("baseline", baseline, train.labels.names, len(train)),
        gain=None if baseline is None else _gain(scores, baseline, keep=settings.keep),
    )


def _gain(scores: ValidationScores, baseline: RunFolder, *, keep: str) -> Estimate | None:
    """Compare the student with the baseline on the same validation images."""
    path, student = baseline.path / "scores.npy", scores.of(keep)
    if student is None or not path.is_file():
        return None
    return compare_map(torch.from_numpy(np.load(path)), student, scores.targets, scores.known)


def _mean(rows: Sequence[Row]) -> float:
    """Return the mAP over the labels of all rows."""
    weights = np.array([row.evaluated_labels for row in rows])
    return float((weights * [row.mAP for row in rows]).sum() / max(1, weights.sum()))
