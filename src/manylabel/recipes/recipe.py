"""The skeleton of every recipe: check, prepare, open the run's folder, train, report."""

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
    """What a recipe trains: built and checked before a run's folder is made.

    Args:
        settings: Every setting, as resolved.
        data: The images, with all labels.
        sets: The images, with the labels that are trained.
        model: The classifier.
        loss: The loss.
        head: The head's class, when it is one of the user's own.
        on_features: Images pass through the backbone once, and training works on cached features.
        total_epochs: Epochs' worth of images that all models of the run see, where that is not one model's.
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
    """Build a classifier whose backbone is frozen, and its loss.

    Args:
        settings: Those of a recipe.
        data: The images.
        head: The head's class, when it is one of the user's own.
    """
    model = build_classifier(settings, data.train, frozen=True, head=head)
    loss = build_loss(settings, single_label=model.single_label)
    return Setup(settings, data, data, model, loss, head)


@dataclass(frozen=True)
class Recipe(Generic[Settings]):
    """A recipe: called with settings, it trains a model and leaves it in the run's folder.

    Args:
        settings: The class of its settings.
        train: Trains what was prepared, and saves the model in the run's folder.
        prepare: Builds and checks what will be trained.
        files: Files that it writes into the folder besides those of every run.
        small_heads: Take the sizes and learning rates of heads for frozen features, where none are given.

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
            settings: What to train, and on what.
            sets: The images (default: those that the settings name).
            head: The head's class, when it is one of your own.
            resume: Resume the run in the folder, if there is one.
            overwrite: Delete a run that is in the folder.
            reporter: Shows what happens (default: nothing is shown).

        Returns:
            The run's folder, with the model in it.

        Raises:
            ConfigError: A setting does not fit; nothing was written.
            TrainingError: Training failed; the message says why and what to do.
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
            run.remember_images(describe_images(setup.data))
            reporter.start(setup.model, setup.sets)
            if resume and not run.has_state:
                reporter.say(f"no saved state in {run.path}, starting from epoch 1")
            self.train(setup, run, reporter)
        return reporter.finished(run)

    def setup(
        self, settings: Settings, *, sets: TrainAndVal | None = None, head: type[nn.Module] | None = None
    ) -> Setup[Settings]:
        """Build and check what would be trained, and write nothing; arguments as for a call."""
        settings = resolve_head(settings, head, small=self.small_heads)
        find_device(settings)
        return self.prepare(settings, sets or open_sets(settings), head)
