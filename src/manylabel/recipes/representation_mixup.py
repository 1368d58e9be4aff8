"""Representation mixup (RM): a linear head on mixed early and final features of a frozen backbone.

    manylabel train voc:VOCdevkit/VOC2012 --recipe representation_mixup --out runs/mixup

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". As in
the paper: SGD with momentum 0.9, soft margin loss, one-cycle schedule with peak 0.1, 30 epochs, early features from the
first block group (RM@1). Not specified there, chosen here: batch size 64, no weight decay, no weight averaging, no
augmentation (features are cached), 30 % warmup as in torch.
"""

from manylabel.recipes.models import Setup
from manylabel.recipes.recipe import Recipe, save_model, train_setup
from manylabel.recipes.reporter import Reporter
from manylabel.settings import RepresentationMixup
from manylabel.training import RunFolder

__all__ = ["representation_mixup"]


def _train(setup: Setup[RepresentationMixup], run: RunFolder, reporter: Reporter) -> None:
    """Train the representation mixup head on a frozen backbone."""
    train_setup(setup, run, reporter)
    save_model(setup, run, reporter)


representation_mixup = Recipe(RepresentationMixup, _train)
