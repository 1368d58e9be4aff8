"""Common steps of all recipes: check, prepare, create the run folder, train, report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from torch import nn

from manylabel.classifier import Classifier
from manylabel.features import remove_leftovers
from manylabel.recipes.models import build_classifier, build_loss, resolve_head
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.sets import TrainAndVal, describe_images, open_sets
from manylabel.settings import RecipeSettings
from manylabel.training import RunFolder, find_device

__all__ = ["Recipe", "Setup", "prepare_frozen"]

Settings = TypeVar("Settings", bound=RecipeSettings)


@dataclass(frozen=True)
class Setup(Generic[Settings]):
    """Datasets, model and loss of a run, built and checked before the run folder is created.

    Args:
        settings: Resolved settings.
        data: Training and validation set, with all labels.
        sets: Training and validation set, with the trained labels.
        model: Classifier.
        loss: Loss.
        head: Custom head class (default: the one the settings name).
        on_features: Train on cached features of a frozen backbone.
        total_epochs: Total epochs of all models of the run (default: those of one model).
    """

    settings: Settings
    data: TrainAndVal
    sets: TrainAndVal
    model: Classifier
    loss: nn.Module
    head: type[nn.Module] | None = None
    on_features: bool = True
    total_epochs: float | None = None


def prepare_frozen(settings: Settings, data: TrainAndVal, head: type[nn.Module] | None) -> Setup[Settings]:
    """Build a classifier with a frozen backbone, and its loss.

    Args:
        settings: Settings of a recipe.
        data: Training and validation set.
        head: Custom head class (default: the one the settings name).
    """
    model = build_classifier(settings, data.train, frozen=True, head=head)
    loss = build_loss(settings, single_label=model.single_label)
    return Setup(settings, data, data, model, loss, head)


@dataclass(frozen=True)
class Recipe(Generic[Settings]):
    """Training recipe: a call trains a model and saves it in the run folder.

    Args:
        settings: Settings class.
        train: Trains a `Setup` and saves the model in the run folder.
        prepare: Builds and checks the `Setup`.
        files: Files in the run folder besides those of every run.
        small_heads: Default to the head sizes and learning rates for frozen features.

    Examples:
        >>> from manylabel.recipes import RECIPES
        >>> RECIPES["probe"].settings.__name__
        'Probe'
    """

    settings: type[Settings]
    train: Callable[[Setup[Settings], RunFolder, Reporter], None]
    prepare: Callable[[Settings, TrainAndVal, type[nn.Module] | None], Setup[Settings]] = prepare_frozen
    files: frozenset[str] = frozenset()
    small_heads: bool = False

    def __call__(
        self,
        settings: Settings,
        *,
        sets: TrainAndVal | None = None,
        head: type[nn.Module] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        reporter: Reporter | None = None,
    ) -> RunFolder:
        """Train a model.

        Args:
            settings: Settings of the run.
            sets: Training and validation set (default: those the settings name).
            head: Custom head class (default: the one the settings name).
            resume: Resume the run in the folder, if it exists.
            overwrite: Delete an existing run in the folder.
            reporter: Progress output (default: none).

        Returns:
            The run folder, with the trained model.

        Raises:
            ConfigError: A setting is invalid; nothing was written.
            TrainingError: Training failed; the message states the cause and a fix.
        """
        reporter = reporter or Reporter()
        settings = resolve_head(settings, head, small=self.small_heads)
        run = RunFolder(Path(settings.out))
        run.check(resume=resume, overwrite=overwrite, files=self.files)
        if resume:
            run.check_same(settings)
            if run.is_finished:
                return reporter.finished(run)
        setup = self.setup(settings, sets=sets, head=head)
        if resume:
            remove_leftovers()
        with run.removed_if_failed(unless=resume and run.path.exists()):
            RunFolder.open(run.path, resume=resume, overwrite=overwrite, files=self.files)
            run.describe(settings, command=shlex.join(sys.argv), resume=resume)
            run.record_images(describe_images(setup.data))
            reporter.start(setup.model, setup.sets)
            if resume and not run.has_state:
                reporter.say(f"no checkpoint in {run.path}, starting from epoch 1")
            self.train(setup, run, reporter)
        return reporter.finished(run)

    def setup(
        self, settings: Settings, *, sets: TrainAndVal | None = None, head: type[nn.Module] | None = None
    ) -> Setup[Settings]:
        """Build and check a run without writing anything; arguments as in `__call__`."""
        settings = resolve_head(settings, head, small=self.small_heads)
        find_device(settings)
        return self.prepare(settings, sets or open_sets(settings), head)
