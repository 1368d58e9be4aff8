"""Self-distillation: teachers on subsets of the labels, trained in parallel, and a student that distils them.

    manylabel train voc:VOCdevkit/VOC2012 --recipe self_distillation --out runs/distilled

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022 (PSD): CPSD
(``partition: both``), CGPD (co), DGPD (dis), a random partition, and plain self-distillation (whole). As in the
authors' code, which produced the tables of the paper, teachers train on all images and for as many epochs as the
student, which queries all of them on every image; ``teacher_images: own`` follows the paper's text (X_C). Deviation
from the code: teachers are in eval mode during distillation. Single-label data is refused.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, ImageLoader, eval_transform
from manylabel.errors import ConfigError
from manylabel.evaluation import Estimate, compare_map
from manylabel.features import FeatureLoader
from manylabel.recipes.finetune import TopAndHead, choose_stage
from manylabel.recipes.loaders import CachedSets, cache_sets, num_workers
from manylabel.recipes.recipe import Recipe, save_model
from manylabel.recipes.reporter import Reporter, describe_gain
from manylabel.recipes.self_distillation.executors import train_teachers
from manylabel.recipes.self_distillation.partition import (
    TeacherTask,
    image_mask,
    partition_sides,
    read_or_partition,
    teacher_tasks,
)
from manylabel.recipes.self_distillation.student import (
    CachedTeachers,
    Distillation,
    OnlineTeachers,
    TeacherMask,
    write_logits,
)
from manylabel.recipes.self_distillation.teachers import TeacherTraining, shown_progress, train_model
from manylabel.recipes.setup import Parts, Setup, TrainAndVal, build_classifier, build_loss, is_single_label
from manylabel.settings import SelfDistillation
from manylabel.storage import write_text
from manylabel.system import find_device
from manylabel.training import RunFolder, ValidationScores, reached, read_metrics
from manylabel.types import Batch, FeatureBatch


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


STUDENT_EPOCHS = 2  # relative to teachers: a student of logits learns for longer before it overfits
BATCH_SIZE = 256  # of teacher inference: without gradients, larger batches fit


def _prepare(settings: SelfDistillation, data: TrainAndVal, parts: Parts) -> Setup[SelfDistillation]:
    if is_single_label(settings, data.train):
        raise ConfigError(
            "self_distillation needs co-occurring labels, but every image has exactly one; use probe or finetune"
        )
    num_labels = len(data.train.labels)
    if settings.partition not in ("whole", "ensemble") and settings.k > num_labels:
        raise ConfigError(f"cannot divide {num_labels} labels into k={settings.k} subsets; set a smaller --k")
    plain = settings.teacher_epochs or settings.num_epochs(
        -(-len(data.train) // settings.batch_size), num_labels=num_labels
    )
    patient = STUDENT_EPOCHS * plain if settings.on_features else plain
    settings = replace(settings, epochs=settings.epochs or patient, teacher_epochs=plain)
    model = build_classifier(settings, data.train, frozen=settings.on_features, parts=parts)
    loss = build_loss(settings, single_label=False, incomplete=data.train.incomplete, parts=parts)
    epochs = _total_epochs(settings, data.train)
    setup = Setup(settings, data, data, model, loss, model, parts=parts, total_epochs=epochs)
    if settings.on_features:
        return replace(setup, trained=model.head, cached=model.backbone)
    stage = choose_stage(settings, model.backbone, num_images=len(data.train) + len(data.val), parts=parts)
    if stage is None:
        return setup
    bottom, top = model.backbone.split(stage, size=model.input_spec.size)
    return replace(setup, trained=TopAndHead(top, model.head, mirror=settings.augment), cached=bottom)


def _train(setup: Setup[SelfDistillation], run: RunFolder, reporter: Reporter) -> None:
    """Partition the labels, train a teacher per subset, and distil them into a student on all labels.

    With ``executor: processes`` (the default), a script must call this under ``if __name__ == "__main__":``, as always
    with `multiprocessing`.
    """
    settings, model, sets = setup.settings, setup.model, setup.sets
    seen: TrainAndVal | CachedSets = sets
    if setup.cached is not None:
        seen = cache_sets(setup, reporter)
        sets = TrainAndVal(seen.train.dataset, seen.val.dataset)  # without unreadable images, to match batch indices

    sides = read_or_partition(
        run.path, sets.train, partition=settings.partition, k=settings.k, tau=settings.tau, seed=settings.seed
    )
    tasks = teacher_tasks(sides)
    cut = setup.trained.backbone.cut.name if isinstance(setup.trained, TopAndHead) else None
    training = TeacherTraining(settings, seen, run.path / "teachers", setup.parts, shlex.join(sys.argv), cut)
    with shown_progress(reporter.console, training, tasks):
        train_teachers(training, tasks)

    baseline = _train_baseline(setup, training, run, reporter) if settings.baseline else None
    term = _distillation(setup, training, tasks, sets.train, run, reporter)
    train_model(training, seen, model, settings, run=run, distillation=term, callbacks=reporter.callbacks)

    summary = summarise(training, tasks, sets=sets, student=run, baseline=baseline, scores=reporter.scores)
    summary.write(run.path)
    save_model(setup, run, reporter)
    shutil.rmtree(run.path / "teacher-logits", ignore_errors=True)
    reporter.show(summary.to_table())
    reporter.say(describe_gain(summary.gain, over="the baseline"))


def _train_baseline(
    setup: Setup[SelfDistillation], training: TeacherTraining, run: RunFolder, reporter: Reporter
) -> RunFolder:
    """Train a model without distillation, with the epochs of the teachers and the initialisation of the student."""
    settings = setup.settings
    plain = RunFolder.open(run.path / "baseline", resume=True)
    own = replace(settings, epochs=settings.teacher_epochs, out=plain.path)
    plain.describe(own, command=training.command, resume=True)
    if not plain.is_finished:
        model = build_classifier(settings, setup.sets.train, frozen=settings.on_features, parts=setup.parts)
        watching = Reporter(reporter.console)
        train_model(training, training.sets, model, own, run=plain, callbacks=watching.callbacks)
        scores = watching.scores.of(settings.keep)
        if scores is not None:
            np.save(plain.path / "scores.npy", scores.numpy())
        plain.save(model, include_backbone=training.saves_backbones)
    return plain


def _distillation(
    setup: Setup[SelfDistillation],
    training: TeacherTraining,
    tasks: Sequence[TeacherTask],
    train: ImageDataset,
    run: RunFolder,
    reporter: Reporter,
) -> Distillation:
    """Return the distillation term: cached teacher logits if images are not augmented, else online teachers."""
    settings, labels = setup.settings, setup.model.labels
    sides: dict[str, list[TeacherTask]] = {}
    for task in tasks:
        sides.setdefault(task.side, []).append(task)
    folders = {side: [training.run_of(task).model for task in members] for side, members in sides.items()}

    def load(paths: Sequence[Path]) -> Iterator[Classifier]:
        return (Classifier.from_pretrained(path, head=training.parts.head_class) for path in paths)

    files = [run.path / "teacher-logits" / f"{side}.npy" for side in sides]
    cached = training.sets.train if isinstance(training.sets, CachedSets) else None
    is_fixed = cached is not None or not settings.augment
    num_views, num_images, done = 1 if cached is None else cached.num_views, len(training.sets.train), 0

    def count(images: int) -> None:
        nonlocal done
        done += images
        reporter.progress("teacher logits", done, len(tasks) * num_views * num_images)

    for file, paths in zip(files, folders.values(), strict=True) if is_fixed else ():
        write_logits(
            file,
            load(paths),
            partial(_all_images, training, setup.model),
            labels=labels,
            num_views=num_views,
            num_images=num_images,
            part=training.trained_part,
            device=find_device(settings.device).type,
            progress=count,
        )
    return Distillation(
        CachedTeachers(files) if is_fixed else OnlineTeachers([list(load(each)) for each in folders.values()], labels),
        weight=settings.distillation_weight,
        reduction=getattr(setup.loss, "reduction", "sum"),
        mask=TeacherMask(list(sides.values()), train.targets, labels) if settings.teacher_images == "own" else None,
    )


def _all_images(training: TeacherTraining, model: Classifier) -> Iterator[Batch | FeatureBatch]:
    """Yield every view of every training image."""
    sets, settings = training.sets, training.settings
    if isinstance(sets, CachedSets):
        for view in range(sets.train.num_views):
            yield from FeatureLoader(sets.train, batch_size=BATCH_SIZE, view=view)
    else:
        plain, workers = eval_transform(model.input_spec), num_workers(settings)
        yield from ImageLoader(sets.train, transform=plain, batch_size=settings.batch_size, num_workers=workers)


def _total_epochs(settings: SelfDistillation, train: ImageDataset) -> float:
    """Return the total epochs of teachers, student and baseline."""
    sides = partition_sides(train, partition=settings.partition, k=settings.k, tau=settings.tau, seed=settings.seed)
    masks = (
        image_mask(train.targets, train.labels, task, which=settings.teacher_images) for task in teacher_tasks(sides)
    )
    epochs = settings.num_epochs(1, num_labels=len(train.labels))
    plain = (settings.teacher_epochs or epochs) * (sum(mask.mean() for mask in masks) + settings.baseline)
    return float(plain + epochs)


FILES = frozenset({"partitions.json", "label-graph.png", "teachers", "teacher-logits", "baseline"})
FILES |= {"summary.json", "summary.md"}

self_distillation = Recipe(SelfDistillation, _train, _prepare, files=FILES)
