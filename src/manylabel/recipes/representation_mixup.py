"""Representation mixup: a linear head on a frozen backbone that takes a hint from an early layer.

    manylabel train representation_mixup --data voc:VOCdevkit/VOC2012 --out runs/mixup

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". Settings are
theirs: SGD with momentum 0.9, soft margin loss, one cycle up to 0.1, 30 epochs, the hint from the first block group
(RM@1). Left open there and decided here: batches of 64, no weight decay, no average of the weights, no augmentation
(the features are cached), 30 % of the cycle rising as is torch's default.
"""

from functools import partial

from manylabel.recipes.loaders import cache_sets, feature_loaders
from manylabel.recipes.recipe import Recipe, Setup
from manylabel.recipes.reporter import Reporter
from manylabel.settings import RepresentationMixup
from manylabel.training import ClassificationTask, RunFolder, fit

__all__ = ["representation_mixup"]


def _train(setup: Setup[RepresentationMixup], run: RunFolder, reporter: Reporter) -> None:
    """Train the representation mixup head on a frozen backbone, as its paper does."""
    settings, model = setup.settings, setup.model
    cached = cache_sets(model, setup.sets, settings, progress=reporter.features)
    task = ClassificationTask(model.head, setup.loss, settings=settings, single_label=model.single_label)
    fit(task, partial(feature_loaders, cached, settings), run=run, callbacks=reporter.callbacks)
    run.save(model)


representation_mixup = Recipe(RepresentationMixup, _train)
