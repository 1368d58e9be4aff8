"""Linear probe and beyond: train a head on the features of a frozen backbone, which sees each picture once.

    manylabel train linear_probe --data voc:VOCdevkit/VOC2012 --out runs/probe

Any head will do; the name comes from the simplest one, a linear layer (``--head linear``).
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from torch import nn

from manylabel.recipes.building import build_classifier, build_loss
from manylabel.recipes.loading import cache_sets, feature_loaders, picture_loaders
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.sets import TrainAndVal, open_sets
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.fit import fit
from manylabel.training.run_folder import RunFolder
from manylabel.training.settings import AtLeastOne
from manylabel.training.task import ClassificationTask

__all__ = ["LinearProbe", "linear_probe"]


@dataclass(frozen=True, kw_only=True)
class LinearProbe(RecipeSettings):
    """Settings of `linear_probe`.

    Examples:
        >>> LinearProbe(data="scenes:100").head
        'ml_decoder'
    """

    out: Path = Path("runs/linear_probe")
    """The run's folder: settings, numbers, state and the finished model."""

    cache: bool = True
    """Whether to keep features on disk and train on them, instead of passing pictures through the backbone each
    epoch."""

    views: Annotated[int, AtLeastOne] = 1
    """How many views of each training picture to cache; the first is the picture as it is, the others are changed at
    random. Each costs a pass of all pictures through the backbone."""

    @property
    def caches_features(self) -> bool:
        """Whether pictures pass through the backbone once, and training works on what is kept of them."""
        return self.cache

    @property
    def num_views(self) -> int:
        """How many views of a training picture are kept."""
        return self.views


def linear_probe(
    settings: LinearProbe,
    *,
    sets: TrainAndVal | None = None,
    head: type[nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunFolder:
    """Train a head on a frozen backbone.

    Args:
        settings: What to train on what.
        sets: The pictures, instead of those that the settings name.
        head: The head's class, when it is one of your own.
        resume: Whether to go on with the run in the folder, if there is one.
        overwrite: Whether to throw away a run that is there.
        reporter: Told what happens; nothing is shown when left out.

    Returns:
        The run's folder, with the model in it.
    """
    reporter = reporter or Reporter()
    run = RunFolder.open(settings.out, resume=resume, overwrite=overwrite)
    run.describe(settings, command=reporter.command, resume=resume)
    if run.is_finished:
        return reporter.finished(run)

    sets = sets or open_sets(settings)
    model = build_classifier(settings, sets, frozen=True, head=head)
    loss = build_loss(settings, single_label=model.single_label)
    reporter.start(model, sets)

    if settings.cache:
        cached = cache_sets(model, sets, settings, progress=reporter.features)
        loaders = partial(feature_loaders, cached, settings)
    else:
        loaders = partial(picture_loaders, model, sets, settings, augment=settings.views > 1)
    task = ClassificationTask(
        model.head if settings.cache else model, loss, settings=settings, single_label=model.single_label
    )
    fit(task, loaders, run=run, callbacks=reporter.callbacks)

    run.save(model)
    return reporter.finished(run)
