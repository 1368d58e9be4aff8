"""Common steps of all recipes: check, prepare, create the run folder, train, report."""

import logging
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from lightning import Callback
from torch import Tensor, nn

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation import ScoredImages
from manylabel.features import compare_backbones, remove_leftovers
from manylabel.losses import LOSSES, MultiLabelLoss
from manylabel.progress import ProgressBar, SafeConsole
from manylabel.recipes.loaders import cache_sets, make_loaders, num_workers
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.setup import (
    INCOMPLETE_LOSS,
    NO_PARTS,
    Loss,
    Parts,
    Setup,
    TrainAndVal,
    Transform,
    are_tags_incomplete,
    describe_images,
    open_sets,
    prepare_frozen,
    resolve,
)
from manylabel.settings import RecipeSettings
from manylabel.system import find_device
from manylabel.training import ClassificationTask, RunFolder, fit, is_first_process
from manylabel.tuning import METRIC_TITLES, tune

logger = logging.getLogger(__name__)

Settings = TypeVar("Settings", bound=RecipeSettings)

FEWEST_TO_TUNE = 30  # validation images; with fewer, tuning can lower CF1 although cross-validation is for it
OFFLINE_CHOICES = ("offline:everyday", "offline:efficientnet_lite0")  # of --backbone auto


def train_setup(
    setup: Setup[RecipeSettings], run: RunFolder, reporter: Reporter, *, callbacks: Sequence[Callback] = ()
) -> None:
    """Train the trained part of a model, on cached features or on images.

    Args:
        setup: Setup of the run.
        run: Run folder.
        reporter: Progress output.
        callbacks: Further callbacks, which may freeze parameters for some epochs.
    """
    settings, model = setup.settings, setup.model
    task = ClassificationTask(
        setup.trained,
        setup.loss,
        settings=settings,
        single_label=model.single_label,
        backbone_scale=setup.backbone_scale,
    )
    sets = setup.sets if setup.cached is None else cache_sets(setup, reporter)
    loaders = make_loaders(sets, settings, model=model, augment=setup.augment, transform=setup.parts.transform)
    fit(task, loaders, run=run, callbacks=[*callbacks, *reporter.callbacks])


def save_model(setup: Setup[RecipeSettings], run: RunFolder, reporter: Reporter) -> None:
    """Save the trained model, with thresholds and calibration fitted to the validation scores where they pay off.

    They are saved only if they improve the cross-validated CF1 (for single-label models: the log loss).

    Args:
        setup: Setup of the run.
        run: Run folder.
        reporter: Progress output, with the validation scores of the saved weights.
    """
    scores = reporter.scores.of(setup.settings.keep)
    if setup.settings.tune and scores is not None and is_first_process():
        if len(scores) < FEWEST_TO_TUNE:
            reporter.say(f"thresholds stay at 0.5: {len(scores)} validation images are too few to tune them")
        else:
            _tune(setup.model, scores, reporter)
    run.save(setup.model)


def _tune(model: Classifier, scores: Tensor, reporter: Reporter) -> None:
    truth, known = reporter.scores.targets, reporter.scores.known
    scored = ScoredImages.from_arrays(scores, truth, labels=model.labels, known=known)
    result = tune(replace(scored, single_label=model.single_label))
    before, after = result.before.metrics, result.after.metrics
    name, sign = ("log_loss", -1) if model.single_label else ("CF1", 1)
    if sign * after[name] > sign * before[name]:
        model.thresholds, model.calibration = result.thresholds, result.calibration
        change = f"{METRIC_TITLES[name]} {before[name]:.3f} to {after[name]:.3f}, cross-validated"
        reporter.say(f"thresholds and calibration are tuned on the validation images ({change})")


@dataclass(frozen=True)
class Recipe(Generic[Settings]):
    """Training recipe: a call trains a model and saves it in the run folder.

    Args:
        settings: Settings class.
        train: Trains a `Setup` and saves the model in the run folder.
        prepare: Builds and checks the `Setup`.
        files: Files in the run folder besides those of every run.

    Examples:
        >>> from manylabel.recipes import RECIPES
        >>> RECIPES["probe"].settings.__name__
        'Probe'
    """

    settings: type[Settings]
    train: Callable[[Setup[Settings], RunFolder, Reporter], None]
    prepare: Callable[[Settings, TrainAndVal, Parts], Setup[Settings]] = prepare_frozen
    files: frozenset[str] = frozenset()

    def __call__(
        self,
        settings: Settings,
        *,
        sets: TrainAndVal | None = None,
        head: type[nn.Module] | nn.Module | None = None,
        backbone: nn.Module | None = None,
        loss: Loss | None = None,
        transform: Transform | None = None,
        resume: bool = False,
        overwrite: bool = False,
        reporter: Reporter | None = None,
    ) -> RunFolder:
        """Train a model.

        Args:
            settings: Settings of the run.
            sets: Training and validation set (default: those the settings name).
            head: Head class or ready head, instead of the one the settings name; so are the next three. See `Parts`.
            backbone: Ready backbone.
            loss: Ready loss.
            transform: Training transform.
            resume: Resume the run in the folder, if it exists.
            overwrite: Delete an existing run in the folder.
            reporter: Progress output (default: on standard error; ``Reporter()`` is silent).

        Returns:
            The run folder, with the trained model.

        Raises:
            ConfigError: A setting is invalid; nothing was written.
            TrainingError: Training failed; the message states the cause and a fix.
        """
        reporter = reporter or Reporter(SafeConsole(stderr=True))
        parts = Parts(head, backbone, loss, transform)
        settings = resolve(settings, parts)
        run = RunFolder(Path(settings.out))
        run.check(resume=resume, overwrite=overwrite, files=self.files)
        if resume:
            run.check_same(settings)
            if run.is_finished:
                return reporter.finished(run, keep=settings.keep)
        with ProgressBar(f"working on {run.path}", console=reporter.console):
            setup = self.setup(settings, sets=sets, parts=parts)
            if resume:
                remove_leftovers()
            with run.removed_if_failed(unless=resume and run.path.exists()):
                RunFolder.open(run.path, resume=resume, overwrite=overwrite, files=self.files)
                run.describe(settings, command=shlex.join(sys.argv), resume=resume)
                run.record_images(describe_images(setup.data))
                reporter.start(setup.sets)
                if settings.backbone == "auto":
                    reporter.say(f"backbone: {setup.settings.backbone}, chosen by a quick comparison on these images")
                if settings.loss == "auto" and isinstance(setup.loss, LOSSES[INCOMPLETE_LOSS]):
                    reporter.say(f"loss: {INCOMPLETE_LOSS}, as the tags are incomplete; choose another with --loss")
                if resume and not run.has_state:
                    reporter.say(f"no checkpoint in {run.path}, starting from epoch 1")
                self.train(setup, run, reporter)
            return reporter.finished(run, keep=settings.keep)

    def setup(self, settings: Settings, *, sets: TrainAndVal | None = None, parts: Parts = NO_PARTS) -> Setup[Settings]:
        """Build and check a run without writing anything; arguments as in `__call__`."""
        settings = resolve(settings, parts)
        find_device(settings.device, count=settings.devices)
        sets = sets or open_sets(settings)
        if settings.backbone == "auto":
            settings = replace(settings, backbone=_choose_backbone(settings, sets.train))
        if settings.loss == "auto" and are_tags_incomplete(sets.train, settings.loss_settings):
            sets = TrainAndVal(replace(sets.train, incomplete=True), sets.val)
        setup = self.prepare(settings, sets, parts)
        if isinstance(setup.loss, MultiLabelLoss):
            setup.loss.fit(setup.sets.train.for_training().targets)  # to fail before anything is written
        _check_validation(setup.settings, setup.sets)
        return setup


def _choose_backbone(settings: RecipeSettings, train: ImageDataset) -> str:
    """Return the better of the offline backbones on the training images; the first if no label can be evaluated."""
    found = compare_backbones(train, OFFLINE_CHOICES, num_workers=num_workers(settings))
    listed = ", ".join(f"{name} {100 * value:.1f}" for name, value in found.items())
    logger.info("cross-validated mAP of a quick linear model on each backbone: %s", listed)
    return max(found, key=lambda name: -1.0 if math.isnan(found[name]) else found[name])


def _check_validation(settings: RecipeSettings, sets: TrainAndVal) -> None:
    """Refuse to select an epoch by mAP if no label of the validation images is present, or none is absent."""
    targets = sets.val.targets
    if not targets.positives.any():
        problem = f"none of the {len(sets.val)} validation images in {sets.val.name} has a label, so mAP is undefined"
    elif (targets.known == targets.positives).all():
        problem = f"no label of the validation images in {sets.val.name} is known to be absent, so mAP is always 100"
    else:
        return
    if settings.patience or settings.keep == "best":
        raise ConfigError(f"{problem}; set other images with --val, or train without --patience and --keep best")
    logger.warning("%s; set other images with --val to evaluate the model", problem)
