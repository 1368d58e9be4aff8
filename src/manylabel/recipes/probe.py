"""Probe: train a head on cached features of a frozen backbone.

    manylabel train voc:VOCdevkit/VOC2012 --out runs/probe

With ``--head linear`` it is a linear probe; any head works.
"""

from dataclasses import replace

from manylabel.features import dropped_channels
from manylabel.recipes.models import Parts, Setup, prepare_frozen
from manylabel.recipes.recipe import Recipe, save_model, train_setup
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import Probe
from manylabel.training import RunFolder


def _prepare(settings: Probe, data: TrainAndVal, parts: Parts) -> Setup[Probe]:
    setup = prepare_frozen(settings, data, parts)
    if settings.cache:
        return setup
    return replace(setup, cached=None, trained=setup.model, augment=settings.num_views(len(data.train)) > 1)


def _train(setup: Setup[Probe], run: RunFolder, reporter: Reporter) -> None:
    """Train a head on a frozen backbone."""
    with dropped_channels(setup.model.head, fraction=setup.settings.feature_dropout):
        train_setup(setup, run, reporter)
    save_model(setup, run, reporter)


probe = Recipe(Probe, _train, _prepare)
