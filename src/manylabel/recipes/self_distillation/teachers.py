"""Training of teachers: what all share, sent to every process that trains some of them, and the training of one."""

from __future__ import annotations

import logging
import shutil
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lightning import Callback
from rich.console import Console
from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import Files, ImageDataset
from manylabel.errors import ManyLabelError, RunInterruptedError
from manylabel.features import CachedFeatures
from manylabel.progress import ProgressBar
from manylabel.recipes.loaders import CachedSets, feature_loaders, image_loaders
from manylabel.recipes.models import build_loss, build_teacher
from manylabel.recipes.self_distillation.partition import TeacherTask, image_mask
from manylabel.recipes.sets import TrainAndVal
from manylabel.seeds import seed_sequence
from manylabel.settings import SelfDistillation
from manylabel.storage import write_text
from manylabel.training import (
    ClassificationTask,
    DistillationTerm,
    FreezeFirst,
    Loaders,
    RunFolder,
    Share,
    fit,
    read_metrics,
)

__all__ = ["TeacherTraining", "attempt", "showing_progress", "train_model", "train_teacher"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class TeacherTraining:
    """What all teachers share; it can be sent to another process.

    Args:
        settings: Those of the recipe.
        sets: Features of a frozen backbone, or the images.
        folder: The folder of the teachers' own folders.
        head: The head's class, when it is one of the user's own.
        command: The command that started the run.
    """

    settings: SelfDistillation
    sets: CachedSets | TrainAndVal
    folder: Path
    head: type[nn.Module] | None = None
    command: str = ""

    def run_of(self, task: TeacherTask) -> RunFolder:
        """Return a teacher's folder."""
        return RunFolder(self.folder / task.name)

    def is_finished(self, task: TeacherTask) -> bool:
        """Return whether a teacher is finished."""
        return self.run_of(task).is_finished

    def settings_of(self, task: TeacherTask) -> SelfDistillation:
        """Return the settings of a teacher: a seed of its own, so that none begins where the student does."""
        seed = int(seed_sequence("teacher", self.settings.seed, task.number).generate_state(1)[0])
        epochs = self.settings.teacher_epochs or self.settings.epochs
        return replace(self.settings, seed=seed, epochs=epochs, out=self.run_of(task).path)

    def sets_of(self, task: TeacherTask) -> CachedSets | TrainAndVal:
        """Return a teacher's labels and images; all validation images, as the student asks it about all."""
        train = self.sets.train
        labelled = train.dataset if isinstance(train, CachedFeatures) else train
        chosen = image_mask(labelled.targets, labelled.labels, task, which=self.settings.teacher_images)
        if isinstance(self.sets, CachedSets):
            return CachedSets(_select(self.sets.train, task).subset(chosen), _select(self.sets.val, task))
        return TrainAndVal(
            self.sets.train.select_labels(task.labels).subset(chosen), self.sets.val.select_labels(task.labels)
        )

    def portable(self) -> TeacherTraining:
        """Return the same without images, where features are all that anybody looks at."""
        if not isinstance(self.sets, CachedSets):
            return self
        return replace(self, sets=CachedSets(_without_images(self.sets.train), _without_images(self.sets.val)))


def train_teacher(training: TeacherTraining, task: TeacherTask) -> None:
    """Train one teacher, resuming from its own checkpoint if there is one; a finished one is left as it is.

    Args:
        training: What all share.
        task: The labels that it learns.
    """
    run = RunFolder.open(training.run_of(task).path, resume=True)
    if run.is_finished:
        return
    settings = training.settings_of(task)
    run.describe(settings, command=training.command, resume=True)
    sets = training.sets_of(task)
    labels = sets.train.dataset.labels if isinstance(sets, CachedSets) else sets.train.labels
    model = build_teacher(
        replace(settings, seed=training.settings.seed),
        labels,
        seed=settings.seed,
        frozen=settings.on_features,
        head=training.head,
    )
    train_model(sets, model, settings, run=run)
    # A backbone that anybody can load again need not be saved once per teacher.
    run.save(model, include_backbone=not settings.on_features or not settings.pretrained)
    shutil.rmtree(run.checkpoints)


def train_model(
    sets: CachedSets | TrainAndVal,
    model: Classifier,
    settings: SelfDistillation,
    *,
    run: RunFolder,
    distillation: DistillationTerm | None = None,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Train a model on features or on images, whichever there are.

    Args:
        sets: The training and the validation set.
        model: The classifier; of one with a frozen backbone, the head.
        settings: Those of the recipe, its epochs and seed those of this training.
        run: The folder of the state.
        distillation: Distance to teachers, for a student.
        callbacks: What else happens beside the loop.
    """
    on_features = isinstance(sets, CachedSets)
    freezing: list[Callback] = []
    if not on_features and settings.freeze_epochs:
        freezing = [FreezeFirst(model.backbone, epochs=settings.freeze_epochs)]
    task = ClassificationTask(
        model.head if on_features else model,
        build_loss(settings, single_label=False),
        settings=settings,
        backbone_scale=1.0 if on_features else settings.backbone_scale,
        distillation=distillation,
    )
    loaders = partial(_loaders, sets, model, settings)
    fit(task, loaders, run=run, callbacks=[*freezing, *callbacks], find_unused=bool(freezing))


def attempt(training: TeacherTraining, task: TeacherTask) -> str | None:
    """Train one teacher; a failure is returned, not raised, and goes to error.txt in the teacher's folder.

    Args:
        training: What all share.
        task: The labels that it learns.

    Returns:
        What went wrong, if anything did.

    Raises:
        RunInterruptedError: A signal ended it.
    """
    try:
        train_teacher(training, task)
    except RunInterruptedError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, the other teachers go on)
        report = training.run_of(task).path / "error.txt"
        write_text(report, traceback.format_exc(), overwrite=True)
        logger.warning("teacher %s failed: %s", task.name, error)
        what = str(error) if isinstance(error, ManyLabelError) else f"{type(error).__name__}: {error}"
        return f"{what} (see {report})"
    return None


@contextmanager
def showing_progress(
    console: Console | None, training: TeacherTraining, tasks: Sequence[TeacherTask]
) -> Iterator[None]:
    """Show the progress of all teachers while the block runs.

    It is read from the teachers' folders, so it does not matter which process, or machine, trains them.

    Args:
        console: Console to show it on, if any.
        training: What all share.
        tasks: The teachers.
    """
    if console is None:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(console, training, tasks, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(console: Console, training: TeacherTraining, tasks: Sequence[TeacherTask], over: threading.Event) -> None:
    total = (training.settings.teacher_epochs or training.settings.epochs) * len(tasks)
    reported = {task.name for task in tasks if training.is_finished(task)}
    with ProgressBar("epochs of teachers", console=console, keep=True) as bar:
        is_over = False
        while not is_over:
            is_over = over.wait(POLL_SECONDS)  # look once more when all is over
            rows = {task.name: read_metrics(training.run_of(task).metrics) for task in tasks}
            finished = [task.name for task in tasks if training.is_finished(task)]
            for name in [name for name in finished if name not in reported]:
                reported.add(name)
                found = f"mAP {100 * rows[name][-1]['val_mAP']:.2f}" if rows[name] else ""
                console.print(f"teacher {name} ({len(reported)}/{len(tasks)})  {found}", highlight=False)
            bar.update(sum(map(len, rows.values())), total, f"{len(finished)}/{len(tasks)} teachers")


def _loaders(sets: CachedSets | TrainAndVal, model: Classifier, settings: SelfDistillation, share: Share) -> Loaders:
    if isinstance(sets, CachedSets):
        return feature_loaders(sets, settings, share)
    return image_loaders(model, sets, settings, share, augment=settings.augment)


def _select(cached: CachedFeatures, task: TeacherTask) -> CachedFeatures:
    return replace(cached, dataset=cached.dataset.select_labels(task.labels))


def _without_images(cached: CachedFeatures) -> CachedFeatures:
    labels: ImageDataset = replace(cached.dataset, images=Files("", [""] * len(cached)), areas=None, splits={})
    return replace(cached, dataset=labels, bad=())
