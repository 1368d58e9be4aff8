"""What all teachers share, sent to every process that trains some of them; and how one of them is trained."""

from __future__ import annotations

import logging
import shutil
import traceback
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from lightning import Callback
from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import Files, ImageDataset
from manylabel.errors import ManyLabelError, RunInterruptedError
from manylabel.features import CachedFeatures
from manylabel.recipes.building import build_loss, build_teacher
from manylabel.recipes.loading import CachedSets, feature_loaders, picture_loaders
from manylabel.recipes.self_distillation.lessons import Lesson, own_pictures
from manylabel.recipes.self_distillation.settings import SelfDistillation
from manylabel.recipes.sets import TrainAndVal
from manylabel.storage import write_text
from manylabel.training.fit import Loaders, fit
from manylabel.training.freezing import FreezeFirst
from manylabel.training.loaders import Share
from manylabel.training.run_folder import RunFolder
from manylabel.training.task import ClassificationTask, Guide

__all__ = ["Classroom", "attempt", "teach", "train_on"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classroom:
    """What all teachers share; another process can be handed one.

    Args:
        settings: Those of the recipe.
        sets: Features of a frozen backbone, or the pictures.
        folder: Where the teachers' own folders go.
        head: The head's class, when it is one of the user's own.
        command: The command that was given to the machine.
    """

    settings: SelfDistillation
    sets: CachedSets | TrainAndVal
    folder: Path
    head: type[nn.Module] | None = None
    command: str = ""

    def run_of(self, lesson: Lesson) -> RunFolder:
        """Return a teacher's folder."""
        return RunFolder(self.folder / lesson.name)

    def is_learned(self, lesson: Lesson) -> bool:
        """Say whether a teacher is finished."""
        return self.run_of(lesson).is_finished

    def settings_of(self, lesson: Lesson) -> SelfDistillation:
        """Return the settings of a teacher: a seed of its own, so that none begins where the student does."""
        seed = int(np.random.SeedSequence([self.settings.seed, lesson.number]).generate_state(1)[0])
        epochs = self.settings.teacher_epochs or self.settings.epochs
        return replace(self.settings, seed=seed, epochs=epochs, out=self.run_of(lesson).path)

    def sets_of(self, lesson: Lesson) -> CachedSets | TrainAndVal:
        """Return a teacher's labels and pictures; it is judged by all pictures, as the student asks it about all."""
        train = self.sets.train
        labelled = train.dataset if isinstance(train, CachedFeatures) else train
        chosen = own_pictures(labelled.targets, labelled.labels, lesson, which=self.settings.teacher_pictures)
        if isinstance(self.sets, CachedSets):
            parts = (_select(self.sets.train, lesson).subset(chosen), _select(self.sets.val, lesson))
            return CachedSets(*parts)
        return TrainAndVal(
            self.sets.train.select_labels(lesson.labels).subset(chosen), self.sets.val.select_labels(lesson.labels)
        )

    def portable(self) -> Classroom:
        """Return the same without pictures, where features are all that anybody looks at."""
        if not isinstance(self.sets, CachedSets):
            return self
        return replace(self, sets=CachedSets(_without_pictures(self.sets.train), _without_pictures(self.sets.val)))


def teach(classroom: Classroom, lesson: Lesson) -> None:
    """Train one teacher, going on from its own checkpoint if there is one; a finished one is left as it is.

    Args:
        classroom: What all share.
        lesson: What it learns.
    """
    run = RunFolder.open(classroom.run_of(lesson).path, resume=True)
    if run.is_finished:
        return
    settings = classroom.settings_of(lesson)
    run.describe(settings, command=classroom.command, resume=True)
    sets = classroom.sets_of(lesson)
    labels = sets.train.dataset.labels if isinstance(sets, CachedSets) else sets.train.labels
    model = build_teacher(
        replace(settings, seed=classroom.settings.seed), labels, seed=settings.seed, head=classroom.head
    )
    train_on(sets, model, settings, run=run)
    # A backbone that anybody can load again need not be saved once per teacher.
    run.save(model, include_backbone=settings.trains_backbone or not settings.pretrained)
    shutil.rmtree(run.checkpoints)


def train_on(
    sets: CachedSets | TrainAndVal,
    model: Classifier,
    settings: SelfDistillation,
    *,
    run: RunFolder,
    guide: Guide | None = None,
    callbacks: list[Callback] | None = None,
) -> None:
    """Train a model on features or on pictures, whichever there are.

    Args:
        sets: What to train on and judge by.
        model: The classifier; of one with a frozen backbone, the head.
        settings: Those of the recipe, its epochs and seed those of this training.
        run: Where the state goes.
        guide: What else there is to learn from.
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
        guide=guide,
    )
    loaders = partial(_loaders, sets, model, settings)
    fit(task, loaders, run=run, callbacks=[*freezing, *(callbacks or [])], find_unused=bool(freezing))


def attempt(classroom: Classroom, lesson: Lesson) -> str | None:
    """Train one teacher; a failure is told, not raised, and goes to error.txt in the teacher's folder.

    Args:
        classroom: What all share.
        lesson: What it learns.

    Returns:
        What went wrong, if anything did.

    Raises:
        RunInterruptedError: A signal ended it.
    """
    try:
        teach(classroom, lesson)
    except RunInterruptedError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, the other teachers go on)
        report = classroom.run_of(lesson).path / "error.txt"
        write_text(report, traceback.format_exc(), overwrite=True)
        logger.warning("teacher %s failed: %s", lesson.name, error)
        what = str(error) if isinstance(error, ManyLabelError) else f"{type(error).__name__}: {error}"
        return f"{what} (see {report})"
    return None


def _loaders(sets: CachedSets | TrainAndVal, model: Classifier, settings: SelfDistillation, share: Share) -> Loaders:
    if isinstance(sets, CachedSets):
        return feature_loaders(sets, settings, share)
    return picture_loaders(model, sets, settings, share, augment=settings.augment)


def _select(cached: CachedFeatures, lesson: Lesson) -> CachedFeatures:
    return replace(cached, dataset=cached.dataset.select_labels(lesson.labels))


def _without_pictures(cached: CachedFeatures) -> CachedFeatures:
    labels: ImageDataset = replace(cached.dataset, pictures=Files("", [""] * len(cached)), areas=None, splits={})
    return replace(cached, dataset=labels, bad=())
