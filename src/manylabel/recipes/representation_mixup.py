"""Representation mixup: a linear head on a frozen backbone that takes a hint from an early layer.

    manylabel train representation_mixup --data voc:VOCdevkit/VOC2012 --out runs/mixup

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning". Settings are
theirs: SGD with momentum 0.9, soft margin loss, one cycle up to 0.1, 30 epochs, the hint from the first block group
(RM@1). Left open there and decided here: batches of 64, no weight decay, no average of the weights, no augmentation
(the features are cached), 30 % of the cycle rising as is torch's default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from manylabel.losses import LOSSES
from manylabel.recipes.building import build_classifier, build_loss
from manylabel.recipes.loading import cache_sets, feature_loaders
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.sets import TrainAndVal, sets_of_run
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.fields import OneOf
from manylabel.training.fit import fit
from manylabel.training.run_folder import RunFolder
from manylabel.training.settings import AtLeastOne, NotNegative, Positive, Share
from manylabel.training.task import ClassificationTask

__all__ = ["RepresentationMixup", "representation_mixup"]


@dataclass(frozen=True, kw_only=True)
class RepresentationMixup(RecipeSettings):
    """Settings of `representation_mixup`.

    Examples:
        >>> RepresentationMixup(data="scenes:100").head_settings
        {'stages': [0, -1]}
    """

    out: Path = Path("runs/representation_mixup")
    """The run's folder: settings, numbers, state and the finished model."""

    head: Annotated[str, OneOf(["rm"])] = "rm"
    """From feature maps to labels."""

    head_settings: Mapping[str, Any] = field(default_factory=lambda: {"stages": [0, -1]})
    """Arguments of the head; as a flag: --head.stages [1,-1] for RM@2."""

    loss: Annotated[str, OneOf(("auto", *LOSSES))] = "soft_margin"
    """What is made small."""

    epochs: Annotated[int, AtLeastOne] = 30
    """How often every picture is seen."""

    optimizer: Literal["adam", "adamw", "sgd"] = "sgd"
    """What turns gradients into steps."""

    learning_rate: Annotated[float, Positive] = 0.1
    """The largest step size of the schedule."""

    weight_decay: Annotated[float, NotNegative] = 0.0
    """How strongly weights are drawn to zero; biases and norms never are."""

    warmup: Annotated[float, Share] = 0.3
    """The share of all steps in which the learning rate rises."""

    ema_decay: Annotated[float, Share] = 0.0
    """Judge and save a moving average of the weights; 0, as in the paper, does not."""

    @property
    def caches_features(self) -> bool:
        """Whether pictures pass through the backbone once, and training works on what is kept of them."""
        return True


def representation_mixup(
    settings: RepresentationMixup,
    *,
    sets: TrainAndVal | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunFolder:
    """Train the representation mixup head on a frozen backbone, as its paper does.

    Args:
        settings: What to train on what.
        sets: The pictures, instead of those that the settings name.
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

    sets = sets_of_run(settings, sets, run)
    model = build_classifier(settings, sets, frozen=True)
    loss = build_loss(settings, single_label=model.single_label)
    reporter.start(model, sets)

    cached = cache_sets(model, sets, settings, progress=reporter.features)
    task = ClassificationTask(model.head, loss, settings=settings, single_label=model.single_label)
    fit(task, partial(feature_loaders, cached, settings), run=run, callbacks=reporter.callbacks)

    run.save(model)
    return reporter.finished(run)
