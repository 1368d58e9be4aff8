"""Fine-tuning: everything trains, the backbone at a lower rate, on augmented images.

    manylabel train finetune --preset ml_decoder --data coco:coco --backbone tresnet_m.miil_in21k --out runs/finetune

The presets are the papers' settings, as far as the papers and the authors' code give them. Momentum does not cycle with
the learning rate here. HSQ and Query2Label do not say how long that rises: as long as in ML-Decoder's code.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from manylabel.evaluation import measure, score
from manylabel.recipes.loaders import image_loaders
from manylabel.recipes.models import build_classifier, build_loss, load_to_train
from manylabel.recipes.recipe import Recipe, Setup
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import Finetune
from manylabel.training import ClassificationTask, FreezeFirst, RunFolder, fit

__all__ = ["finetune", "mix_in"]


def _prepare(settings: Finetune, data: TrainAndVal, head: type[nn.Module] | None) -> Setup[Finetune]:
    if settings.start_from is None:
        model = build_classifier(settings, data.train, frozen=False, head=head)
    else:
        model = load_to_train(settings.start_from, data.train, head=head)
    model.backbone.keep_statistics(settings.keeps_statistics)
    loss = build_loss(settings, single_label=model.single_label)
    return Setup(settings, data, data, model, loss, head, on_features=False)


def _train(setup: Setup[Finetune], run: RunFolder, reporter: Reporter) -> None:
    """Train a backbone and a head together."""
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
        partial(image_loaders, model, sets, settings, augment=settings.augment),
        run=run,
        callbacks=[*freezing, *reporter.callbacks],
        find_unused=bool(freezing),
    )
    if start:
        mix_in(model, start, fraction=settings.start_fraction)
    run.save(model)
    if start:
        value = 100 * measure(score(model, sets.val, batch_size=settings.batch_size))["mAP"]
        reporter.say(
            f"with {settings.start_fraction:.0%} of the weights it started from, the model has mAP {value:.2f}"
        )


def mix_in(model: nn.Module, weights: Mapping[str, Tensor], *, fraction: float) -> None:
    """Mix other weights into those of a model, in place.

    Args:
        model: The model.
        weights: The others, as `state_dict` gives them.
        fraction: Their weight in the mixture.

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
