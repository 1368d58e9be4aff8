"""Recipes on cached features of a frozen backbone: the probe, and representation mixup (RM).

    manylabel train voc:VOCdevkit/VOC2012 --out runs/probe
    manylabel train voc:VOCdevkit/VOC2012 --recipe representation_mixup --out runs/mixup
    manylabel train voc:VOCdevkit/VOC2012 --recipe representation_mixup --preset paper --out runs/paper

With ``--head linear``, `probe` is a linear probe; any head works.

`representation_mixup` trains a head on mixed earlier and final features: Eom et al., "Layover Intermediate Layer for
Multi-Label Classification in Efficient Transfer Learning". By default it trains like the probe, with the stable form of
the mixture (see `manylabel.heads.RepresentationMixup`) from the stage before the final one, and ends with the gain over
the same head without the mixture.

The preset is the paper: its form of the mixture, SGD with momentum 0.9, soft margin loss, one-cycle schedule with peak
0.1, 30 epochs, early features from the first block group (RM@1). Not specified there, chosen here: batch size 64, no
weight decay, no weight averaging, no augmentation (features are cached), 30 % warmup as in torch.
"""

import copy
from dataclasses import replace

from manylabel.errors import ConfigError
from manylabel.evaluation import compare_map
from manylabel.features import dropped_channels
from manylabel.recipes.recipe import Recipe, save_model, train_setup
from manylabel.recipes.reporter import Reporter, describe_gain
from manylabel.recipes.setup import Parts, Setup, TrainAndVal, prepare_frozen
from manylabel.settings import Probe, RepresentationMixup
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


def _prepare_mixup(settings: RepresentationMixup, data: TrainAndVal, parts: Parts) -> Setup[RepresentationMixup]:
    if not settings.cache:
        raise ConfigError("representation_mixup trains on cached features; use probe with --head rm and cache=False")
    return prepare_frozen(settings, data, parts)


def _train_mixup(setup: Setup[RepresentationMixup], run: RunFolder, reporter: Reporter) -> None:
    """Train the head on the mixture, then the same head without it, and report the gain."""
    settings, head = setup.settings, setup.model.head
    plain = copy.deepcopy(head.get_submodule("top"))
    with dropped_channels(head, fraction=settings.feature_dropout):
        train_setup(setup, run, reporter)
    if settings.baseline:
        watching = Reporter()
        with dropped_channels(plain, fraction=settings.feature_dropout):
            train_setup(replace(setup, trained=plain), RunFolder.open(run.path / "baseline", resume=True), watching)
        mixed, alone = reporter.scores.of(settings.keep), watching.scores.of(settings.keep)
        gain = None
        if mixed is not None and alone is not None:
            gain = compare_map(alone, mixed, reporter.scores.targets, reporter.scores.known)
        reporter.say(describe_gain(gain, over="the same head without the mixture"))
    save_model(setup, run, reporter)


representation_mixup = Recipe(RepresentationMixup, _train_mixup, _prepare_mixup, files=frozenset({"baseline"}))
