"""Self-distillation: teachers of a part of the labels each, trained in parallel, and a student that learns from all.

    manylabel train self_distillation --data voc:VOCdevkit/VOC2012 --out runs/distilled

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022 (PSD): CPSD
(``partition: both``), CGPD (co), DGPD (dis), a random partition, and plain self-distillation (whole). What differs from
the paper: teachers are in eval mode while the student learns (the authors' code leaves them in train mode); a teacher
of a single label trains on all pictures; and see `loss`. Pictures with exactly one label are refused.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, ImageLoader, eval_transform
from manylabel.errors import ConfigError
from manylabel.features import FeatureLoader
from manylabel.recipes.building import build_classifier, build_loss, is_single_label, name_head
from manylabel.recipes.loading import CachedSets, cache_sets, num_workers
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.self_distillation.board import TeacherBoard
from manylabel.recipes.self_distillation.classroom import Classroom, train_on
from manylabel.recipes.self_distillation.executors import train_teachers
from manylabel.recipes.self_distillation.hearing import Hearing
from manylabel.recipes.self_distillation.lessons import Lesson, plan_lessons, read_or_divide
from manylabel.recipes.self_distillation.loss import Distillation
from manylabel.recipes.self_distillation.merging import CachedTeachers, OnlineTeachers, write_logits
from manylabel.recipes.self_distillation.settings import SelfDistillation
from manylabel.recipes.self_distillation.summary import summarise
from manylabel.recipes.sets import TrainAndVal, sets_of_run
from manylabel.training.run_folder import RunFolder
from manylabel.training.trainer import find_device
from manylabel.types import Batch, FeatureBatch

__all__ = ["self_distillation"]

ASKED_AT_ONCE = 256  # pictures; teachers are asked without gradients, so more fit than train


def self_distillation(
    settings: SelfDistillation,
    *,
    sets: TrainAndVal | None = None,
    head: type[nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunFolder:
    """Divide the labels, train a teacher for each subset, and a student on all labels that learns from them.

    With ``executor: processes``, which is the default, a script of your own must call this below
    ``if __name__ == "__main__":``, as with all processes that Python starts.

    Args:
        settings: What to train on what.
        sets: The pictures, instead of those that the settings name.
        head: The head's class, when it is one of your own.
        resume: Whether to go on with the run in the folder, if there is one.
        overwrite: Whether to throw away a run that is there.
        reporter: Told what happens; nothing is shown when left out.

    Returns:
        The run's folder, with the student in it.

    Raises:
        TrainingError: Some teachers could not be trained; they are named, and the others are kept.
    """
    reporter = reporter or Reporter()
    settings = name_head(settings, head)
    run = RunFolder.open(settings.out, resume=resume, overwrite=overwrite)
    run.describe(settings, command=reporter.command, resume=resume)
    if run.is_finished:
        return reporter.finished(run)

    sets = sets_of_run(settings, sets, run)
    if is_single_label(settings, sets):
        raise ConfigError("self_distillation divides labels that come together; pictures with one label each have none")
    num_labels = len(sets.train.labels)
    if settings.partition != "whole" and settings.k > num_labels:
        raise ConfigError(f"{num_labels} labels cannot be divided into k={settings.k} subsets; give --k {num_labels}")
    model = build_classifier(settings, sets, frozen=not settings.trains_backbone, head=head)
    reporter.start(model, sets)
    seen: TrainAndVal | CachedSets = sets
    if settings.caches_features:
        seen = cache_sets(model, sets, settings, progress=reporter.features)
        sets = TrainAndVal(seen.train.dataset, seen.val.dataset)  # without bad pictures, as batches number them

    sides = read_or_divide(
        run.path, sets.train, partition=settings.partition, k=settings.k, tau=settings.tau, seed=settings.seed
    )
    lessons = plan_lessons(sides)
    classroom = Classroom(settings, seen, run.path / "teachers", head, reporter.command)
    with TeacherBoard(reporter.console, classroom, lessons):
        train_teachers(classroom, lessons)

    baseline = _train_baseline(classroom, lessons, sets, run, reporter) if settings.baseline else None
    guide = _make_guide(classroom, lessons, model, sets.train, run)
    train_on(seen, model, settings, run=run, guide=guide, callbacks=reporter.callbacks)

    summary = summarise(classroom, lessons, train=sets.train, val=sets.val, student=run, baseline=baseline)
    summary.write(run.path)
    run.save(model)
    shutil.rmtree(run.path / "teacher-logits", ignore_errors=True)
    reporter.show(summary.to_table())
    return reporter.finished(run)


def _train_baseline(
    classroom: Classroom, lessons: Sequence[Lesson], sets: TrainAndVal, run: RunFolder, reporter: Reporter
) -> RunFolder:
    """Train a plain model on as many pictures as teachers and student see, from where the student begins, too."""
    settings = classroom.settings
    beside = RunFolder.open(run.path / "baseline", resume=True)
    plain = replace(settings, epochs=round(settings.budget(sets.train, lessons)), out=beside.path)
    beside.describe(plain, command=reporter.command, resume=True)
    if not beside.is_finished:
        model = build_classifier(settings, sets, frozen=not settings.trains_backbone, head=classroom.head)
        train_on(classroom.sets, model, plain, run=beside, callbacks=reporter.callbacks)
        beside.save(model, include_backbone=settings.trains_backbone or not settings.pretrained)
    return beside


def _make_guide(
    classroom: Classroom, lessons: Sequence[Lesson], model: Classifier, train: ImageDataset, run: RunFolder
) -> Distillation:
    """Ask the teachers, now or while the student learns."""
    settings = classroom.settings
    planned: dict[str, list[Lesson]] = {}
    for lesson in lessons:
        planned.setdefault(lesson.side, []).append(lesson)
    sides = {side: [classroom.run_of(lesson).model for lesson in of_side] for side, of_side in planned.items()}
    loss = build_loss(settings, single_label=False)

    def load(folders: Sequence[Path]) -> Iterator[Classifier]:
        return (Classifier.load(folder, head=classroom.head) for folder in folders)

    if settings.caches_logits:
        files = [run.path / "teacher-logits" / f"{side}.npy" for side in sides]
        for file, folders in zip(files, sides.values(), strict=True):
            write_logits(
                file,
                load(folders),
                _all_pictures(classroom, model),
                labels=model.labels,
                num_views=settings.views if settings.caches_features else 1,
                num_pictures=len(classroom.sets.train),
                device=find_device(settings),
            )
    return Distillation(
        CachedTeachers(files)
        if settings.caches_logits
        else OnlineTeachers([list(load(folders)) for folders in sides.values()], model.labels),
        shares=(settings.co_share, 1 - settings.co_share) if len(sides) == 2 else (1.0,),
        weight=settings.distillation_weight,
        kind=settings.distillation,
        temperature=settings.temperature,
        reduction=getattr(loss, "reduction", "sum"),
        hearing=Hearing(list(planned.values()), train.targets, train.labels, which=settings.teacher_pictures)
        if settings.ask_about == "own"
        else None,
    )


def _all_pictures(classroom: Classroom, model: Classifier) -> Callable[[], Iterator[Batch | FeatureBatch]]:
    """Return what gives every view of every training picture."""
    sets, settings = classroom.sets, classroom.settings

    def of_features(cached: CachedSets) -> Iterator[FeatureBatch]:
        for view in range(cached.train.num_views):
            yield from FeatureLoader(cached.train, batch_size=ASKED_AT_ONCE, view=view)

    def of_pictures(pictures: TrainAndVal) -> Iterator[Batch]:
        yield from ImageLoader(
            pictures.train,
            transform=eval_transform(model.input_spec),
            batch_size=settings.batch_size,
            num_workers=num_workers(settings),
        )

    return lambda: of_features(sets) if isinstance(sets, CachedSets) else of_pictures(sets)
