"""Fine-tuning: train backbone and head on augmented images, the backbone at a lower learning rate.

    manylabel train coco:coco --recipe finetune --preset ml_decoder --backbone tresnet_m.miil_in21k --out runs/finetune

Presets are the settings of the papers and the authors' code. Deviation: momentum does not cycle with the learning rate.
HSQ and Query2Label do not specify the warmup; it is that of ML-Decoder's code.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from manylabel.evaluation import compute_metrics, score
from manylabel.recipes.loaders import image_loaders
from manylabel.recipes.models import Parts, build_classifier, build_loss, load_to_train
from manylabel.recipes.recipe import Recipe, Setup
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import Finetune
from manylabel.training import ClassificationTask, FreezeFirst, RunFolder, fit

__all__ = ["finetune", "mix_in"]


def _prepare(settings: Finetune, data: TrainAndVal, parts: Parts) -> Setup[Finetune]:
    if settings.start_from is None:
        model = build_classifier(settings, data.train, frozen=False, parts=parts)
    else:
        model = load_to_train(settings.start_from, data.train, parts=parts)
    model.backbone.keep_statistics(settings.keeps_statistics)
    loss = build_loss(settings, single_label=model.single_label, parts=parts)
    return Setup(settings, data, data, model, loss, parts, on_features=False)


def _train(setup: Setup[Finetune], run: RunFolder, reporter: Reporter) -> None:
    """Train backbone and head together."""
    settings, model, sets = setup.settings, setup.model, setup.sets
    start = {name: weights.clone() for name, weights in model.state_dict().items()} if settings.start_fraction else {}
    freezing = [FreezeFirst(model.backbone, epochs=settings.freeze_epochs)] if settings.freeze_epochs else []
    task = ClassificationTask(
        model,
        setup.loss,
        settings=settings,
        single_label=model.single_label,
        backbone_scale=settings.backbone_scale,
    )
    fit(
        task,
        partial(image_loaders, model, sets, settings, augment=settings.augment, transform=setup.parts.transform),
        run=run,
        callbacks=[*freezing, *reporter.callbacks],
        find_unused=bool(freezing),
    )
    if start:
        mix_in(model, start, fraction=settings.start_fraction)
    run.save(model)
    if start:
        value = 100 * compute_metrics(score(model, sets.val, batch_size=settings.batch_size))["mAP"]
        reporter.say(f"mAP {value:.2f} after averaging with start_from (weight {settings.start_fraction:.0%})")


def mix_in(model: nn.Module, weights: Mapping[str, Tensor], *, fraction: float) -> None:
    """Interpolate the weights of a model towards others, in place.

    Args:
        model: Model to change.
        weights: Other weights, as returned by `state_dict`.
        fraction: Weight of the other weights.

    Examples:
        >>> model = nn.Linear(1, 1)
        >>> _ = nn.init.constant_(model.weight, 4.0)
        >>> mix_in(model, {**model.state_dict(), "weight": torch.tensor([[2.0]])}, fraction=0.25)
        >>> model.weight.item()
        3.5
    """
    own = model.state_dict()
    mixed = {
        name: torch.lerp(own[name], other.to(own[name]), fraction) if other.is_floating_point() else own[name]
        for name, other in weights.items()
    }
    model.load_state_dict(mixed)


finetune = Recipe(Finetune, _train, _prepare)
