"""From the names in settings to objects: the classifier and the loss."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, list_choices
from manylabel.heads import HEADS
from manylabel.losses import LOSSES
from manylabel.recipes.sets import TrainAndVal
from manylabel.recipes.settings import RecipeSettings

__all__ = ["build_classifier", "build_loss", "is_single_label"]


def build_classifier(
    settings: RecipeSettings, sets: TrainAndVal, *, frozen: bool, head: type[nn.Module] | None = None
) -> Classifier:
    """Build the untrained classifier that the settings describe; the same one for the same seed.

    Args:
        settings: Those of a recipe.
        sets: The pictures, for their labels.
        frozen: Whether the backbone never learns.
        head: The head's class, when it is one of the user's own.

    Raises:
        ConfigError: A setting of the backbone or the head is wrong.
    """
    if head is None and settings.head not in HEADS:
        raise ConfigError(
            f"the head {settings.head} is not one of ours; call the recipe from Python and pass its class"
        )
    torch.manual_seed(settings.seed)
    return Classifier.create(
        settings.backbone,
        head=head or HEADS[settings.head],
        labels=sets.train.labels,
        head_settings=settings.head_arguments(sets.train.labels),
        pretrained=settings.pretrained,
        frozen=frozen,
        image_size=settings.image_size,
        single_label=is_single_label(settings, sets),
    )


def build_loss(settings: RecipeSettings, *, single_label: bool) -> nn.Module:
    """Build the loss that the settings name.

    Args:
        settings: Those of a recipe.
        single_label: Whether every picture has exactly one label.

    Raises:
        ConfigError: The loss has no such setting, or does not fit single labels.
    """
    name = settings.loss
    if name == "auto":
        name = "cross_entropy" if single_label else "asymmetric"
    if single_label != (name == "cross_entropy"):
        fits = "cross_entropy" if single_label else "asymmetric, binary_cross_entropy, focal or soft_margin"
        kind = "exactly one label" if single_label else "any number of labels"
        raise ConfigError(f"the loss {name} does not fit pictures with {kind}; use {fits}, or leave it out")
    _check_settings(LOSSES[name], settings.loss_settings)
    return LOSSES[name](**settings.loss_settings)


def is_single_label(settings: RecipeSettings, sets: TrainAndVal) -> bool:
    """Say whether every picture has exactly one label: the settings, or else the data, know."""
    return sets.train.single_label if settings.single_label is None else settings.single_label


def _check_settings(kind: type[nn.Module], settings: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(kind).parameters if name != "positive_weights"]
    for name in settings:
        if name not in known:
            raise ConfigError(f"{kind.__name__} has no setting {name!r}; {list_choices(name, known)}")
