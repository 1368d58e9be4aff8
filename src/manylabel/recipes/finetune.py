"""Fine-tuning: everything trains, the backbone in smaller steps, on pictures that are changed at random.

    manylabel train finetune --preset ml_decoder --data coco:coco --backbone tresnet_m.miil_in21k --out runs/finetune

The presets are the papers' settings, as far as the papers and the authors' code tell them. Momentum does not cycle with
the learning rate here. HSQ and Query2Label do not say how long that rises: as long as in ML-Decoder's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.evaluation import measure, score
from manylabel.recipes.building import build_classifier, build_loss, name_head
from manylabel.recipes.loading import picture_loaders
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.sets import TrainAndVal, sets_of_run
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.fit import fit
from manylabel.training.freezing import FreezeFirst
from manylabel.training.run_folder import RunFolder
from manylabel.training.settings import AtLeastOne, NotNegative, Positive, Share
from manylabel.training.task import ClassificationTask

__all__ = ["PRESETS", "Finetune", "finetune", "mix_in"]

PRESETS: dict[str, Mapping[str, Any]] = {
    # Ridnik et al., "ML-Decoder", WACV 2023, and their code
    "ml_decoder": {
        "head": "ml_decoder",
        "loss": "asymmetric",
        "loss_settings": {"gamma_negative": 4, "gamma_positive": 0, "clip": 0.05},
        "optimizer": "adam",
        "learning_rate": 1e-4,
        "backbone_scale": 1.0,
        "weight_decay": 1e-4,
        "warmup": 0.2,
        "epochs": 40,
        "batch_size": 56,
        "keep_statistics": False,
        "image_size": 448,
        "ema_decay": 0.9997,
    },
    # Yin et al., "Hybrid Sharing for Multi-Label Image Classification"
    "hsq": {
        "head": "hsq",
        "loss": "asymmetric",
        "optimizer": "adam",
        "learning_rate": 1e-4,
        "backbone_scale": 1.0,
        "weight_decay": 1e-2,
        "betas": (0.9, 0.9999),
        "warmup": 0.2,
        "epochs": 100,
        "keep_statistics": False,
        "image_size": 576,
    },
    # Liu et al., "Query2Label", and their code
    "q2l": {
        "head": "q2l",
        "loss": "asymmetric",
        "loss_settings": {"gamma_negative": 2, "gamma_positive": 0, "clip": 0.0},
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "backbone_scale": 1.0,
        "weight_decay": 1e-2,
        "warmup": 0.2,
        "epochs": 80,
        "keep_statistics": False,
        "image_size": 448,
        "ema_decay": 0.9997,
    },
}


@dataclass(frozen=True, kw_only=True)
class Finetune(RecipeSettings):
    """Settings of `finetune`; `PRESETS` has those of the papers.

    Examples:
        >>> Finetune(data="scenes:100", **PRESETS["ml_decoder"]).epochs
        40
    """

    out: Path = Path("runs/finetune")
    """The run's folder: settings, numbers, state and the finished model."""

    start_from: str | None = None
    """A trained model to start from, such as RUN/model of a linear probe on the same labels; backbone, head and image
    size are then the model's, whatever else is set."""

    start_share: Annotated[float, Share] = 0.0
    """The share that the weights it started from (start_from) have in the finished model. Half of both often beats
    either: what was learnt is kept, what was learnt by heart fades (Wortsman et al., "Robust fine-tuning of zero-shot
    models", CVPR 2022)."""

    epochs: Annotated[int, AtLeastOne] = 10
    """How often every picture is seen."""

    batch_size: Annotated[int, AtLeastOne] = 32
    """Pictures per step, on each device."""

    learning_rate: Annotated[float, Positive] = 5e-4
    """The largest step size of the schedule, for the head."""

    backbone_scale: Annotated[float, Positive] = 0.1
    """What the learning rate is multiplied by for the backbone, which knows much already."""

    freeze_epochs: Annotated[int, NotNegative] = 0
    """For how many epochs the backbone stays as it is, while the head settles."""

    keep_statistics: bool | None = None
    """Whether batch norms of the backbone keep the means and variances they have, which those of small batches blur.
    When left out: yes, where the backbone starts from trained weights."""

    augment: bool = True
    """Whether training pictures are changed at random: flip, Cutout, RandAugment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_share and self.start_from is None:
            raise ConfigError(
                f"start_share is {self.start_share}, but there is no trained model to share; set start_from"
            )

    @property
    def trained_model(self) -> str | None:
        """The trained model to start from, if any."""
        return self.start_from

    @property
    def trains_backbone(self) -> bool:
        """Whether the backbone learns."""
        return True

    @property
    def keeps_statistics(self) -> bool:
        """Whether batch norms of the backbone keep the means and variances they have."""
        if self.keep_statistics is not None:
            return self.keep_statistics
        return self.pretrained or self.start_from is not None


def finetune(
    settings: Finetune,
    *,
    sets: TrainAndVal | None = None,
    head: type[nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunFolder:
    """Train a backbone and a head together.

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
    settings = name_head(settings, head)
    run = RunFolder.open(settings.out, resume=resume, overwrite=overwrite)
    run.describe(settings, command=reporter.command, resume=resume)
    if run.is_finished:
        return reporter.finished(run)

    sets = sets_of_run(settings, sets, run)
    model = build_classifier(settings, sets, frozen=False, head=head)
    model.backbone.keep_statistics(settings.keeps_statistics)
    loss = build_loss(settings, single_label=model.single_label)
    start = {name: weights.clone() for name, weights in model.state_dict().items()} if settings.start_share else {}
    reporter.start(model, sets)

    freezing = [FreezeFirst(model.backbone, epochs=settings.freeze_epochs)] if settings.freeze_epochs else []
    task = ClassificationTask(
        model, loss, settings=settings, single_label=model.single_label, backbone_scale=settings.backbone_scale
    )
    fit(
        task,
        partial(picture_loaders, model, sets, settings, augment=settings.augment),
        run=run,
        callbacks=[*freezing, *reporter.callbacks],
        find_unused=bool(freezing),
    )

    if start:
        mix_in(model, start, share=settings.start_share)
    run.save(model)
    reporter.finished(run)
    if start:
        reached = 100 * measure(score(model, sets.val, batch_size=settings.batch_size))["mAP"]
        reporter.say(
            f"With {settings.start_share:.0%} of the weights it started from, that model has mAP {reached:.2f}"
        )
    return run


def mix_in(model: nn.Module, weights: Mapping[str, Tensor], *, share: float) -> None:
    """Mix other weights into those of a model.

    Args:
        model: It is changed.
        weights: The others, as `state_dict` gives them.
        share: Their share.

    Examples:
        >>> model = nn.Linear(1, 1)
        >>> _ = nn.init.constant_(model.weight, 4.0)
        >>> mix_in(model, {**model.state_dict(), "weight": torch.tensor([[2.0]])}, share=0.25)
        >>> model.weight.item()
        3.5
    """
    own = model.state_dict()
    mixed = {
        name: torch.lerp(own[name], other.to(own[name]), share) if other.is_floating_point() else own[name]
        for name, other in weights.items()
    }
    model.load_state_dict(mixed)
