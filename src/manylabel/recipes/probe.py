"""Probe: train a head on cached features of a frozen backbone.

    manylabel train voc:VOCdevkit/VOC2012 --out runs/probe

With ``--head linear`` it is a linear probe; any head works.
"""

from dataclasses import replace
from functools import partial

from manylabel.features import dropped_channels
from manylabel.recipes.loaders import cache_sets, feature_loaders, image_loaders
from manylabel.recipes.models import Parts
from manylabel.recipes.recipe import Recipe, Setup, prepare_frozen
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import Probe
from manylabel.training import ClassificationTask, RunFolder, fit

__all__ = ["probe"]


def _train(setup: Setup[Probe], run: RunFolder, reporter: Reporter) -> None:
    """Train a head on a frozen backbone."""
    settings, model, sets = setup.settings, setup.model, setup.sets
    transform = setup.parts.transform
    if settings.cache:
        cached = cache_sets(model, sets, settings, progress=reporter.features, transform=transform)
        loaders = partial(feature_loaders, cached, settings)
    else:
        augment = settings.num_views(len(sets.train)) > 1
        loaders = partial(image_loaders, model, sets, settings, augment=augment, transform=transform)
    task = ClassificationTask(
        model.head if settings.cache else model, setup.loss, settings=settings, single_label=model.single_label
    )
    with dropped_channels(model.head, fraction=settings.feature_dropout):
        fit(task, loaders, run=run, callbacks=reporter.callbacks)
    run.save(model)


def _prepare(settings: Probe, data: TrainAndVal, parts: Parts) -> Setup[Probe]:
    return replace(prepare_frozen(settings, data, parts), on_features=settings.cache)


probe = Recipe(Probe, _train, _prepare, small_heads=True)
