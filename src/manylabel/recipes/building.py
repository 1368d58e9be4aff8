"""From the names in settings to objects: the classifier and the loss."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from manylabel.classifier import Classifier
from manylabel.classifier.head_config import build_head, naming_settings
from manylabel.errors import ConfigError, list_choices
from manylabel.heads import HEADS
from manylabel.losses import LOSSES
from manylabel.recipes.sets import TrainAndVal
from manylabel.recipes.settings import RecipeSettings
from manylabel.types import LabelSpace

__all__ = ["build_classifier", "build_loss", "build_teacher", "is_single_label", "name_head"]

Settings = TypeVar("Settings", bound=RecipeSettings)


def name_head(settings: Settings, head: type[nn.Module] | None) -> Settings:
    """Return settings that name the head that is passed as a class, if one is, with its arguments as they were given.

    Args:
        settings: Those of a recipe.
        head: The head's class, when it is one of the user's own.
    """
    if head is None:
        return settings
    ours = {kind: name for name, kind in HEADS.items()}
    name = ours.get(head, f"{head.__module__}:{head.__qualname__}")
    return replace(settings, head=name, head_settings=settings.given_head_settings)


def build_classifier(
    settings: RecipeSettings, sets: TrainAndVal, *, frozen: bool, head: type[nn.Module] | None = None
) -> Classifier:
    """Build the classifier that the settings describe, the same one for the same seed, or load a trained one.

    Args:
        settings: Those of a recipe.
        sets: The pictures, for their labels.
        frozen: Whether the backbone never learns.
        head: The head's class, when it is one of the user's own.

    Raises:
        ConfigError: A setting of the backbone or the head is wrong.
    """
    if settings.trained_model is not None:
        return _load_to_train(settings.trained_model, sets, head=head)
    single_label = is_single_label(settings, sets)
    return _create(settings, sets.train.labels, _head_class(settings, head), frozen=frozen, single_label=single_label)


def build_teacher(
    settings: RecipeSettings, labels: LabelSpace, *, seed: int, head: type[nn.Module] | None = None
) -> Classifier:
    """Build an untrained classifier for some of the labels, on the same backbone as `build_classifier` does.

    Args:
        settings: Those of a recipe. Of more groups than labels (``num_groups``), as many as labels are taken.
        labels: The labels.
        seed: Fixes the start of the head.
        head: The head's class, when it is one of the user's own.
    """
    kind = _head_class(settings, head)
    settings = replace(settings, head_settings=_fewer_groups(settings.head_settings, len(labels)))
    model = _create(settings, labels, kind, frozen=not settings.trains_backbone, single_label=False)
    torch.manual_seed(seed)
    model.head = build_head(kind, model.backbone, num_labels=len(labels), settings=settings.head_settings)
    return model


def build_loss(settings: RecipeSettings, *, single_label: bool) -> nn.Module:
    """Build the loss that the settings name.

    Args:
        settings: Those of a recipe.
        single_label: Whether every picture has exactly one label.

    Raises:
        ConfigError: The loss has no such setting, a value does not fit, or the loss does not fit single labels.
    """
    name = settings.loss
    if name == "auto":
        name = "cross_entropy" if single_label else "asymmetric"
    if single_label != (name == "cross_entropy"):
        fits = "cross_entropy" if single_label else "asymmetric, binary_cross_entropy, focal or soft_margin"
        kind = "exactly one label" if single_label else "any number of labels"
        raise ConfigError(f"the loss {name} does not fit pictures with {kind}; use {fits}, or leave it out")
    _check_settings(LOSSES[name], settings.loss_settings)
    with naming_settings(LOSSES[name].__name__, settings.loss_settings):
        return LOSSES[name](**settings.loss_settings)


def is_single_label(settings: RecipeSettings, sets: TrainAndVal) -> bool:
    """Say whether every picture has exactly one label: the settings, or else the data, know."""
    return sets.train.single_label if settings.single_label is None else settings.single_label


def _head_class(settings: RecipeSettings, given: type[nn.Module] | None) -> type[nn.Module]:
    if given is None and settings.head not in HEADS:
        raise ConfigError(
            f"the head {settings.head} is not one of ours; call the recipe from Python and pass its class"
        )
    return given or HEADS[settings.head]


def _fewer_groups(settings: Mapping[str, Any], num_labels: int) -> dict[str, Any]:
    """Return a head's settings with at most as many groups as labels, also for a head inside the head."""
    fewer = dict(settings)
    if "num_groups" in settings:
        fewer["num_groups"] = min(settings["num_groups"] or num_labels, num_labels)
    for name, value in settings.items():
        if isinstance(value, Mapping) and "settings" in value:
            fewer[name] = {**value, "settings": _fewer_groups(value["settings"], num_labels)}
    return fewer


def _create(
    settings: RecipeSettings, labels: LabelSpace, head: type[nn.Module], *, frozen: bool, single_label: bool
) -> Classifier:
    torch.manual_seed(settings.seed)
    return Classifier.create(
        settings.backbone,
        head=head,
        labels=labels,
        head_settings=settings.head_arguments(labels),
        pretrained=settings.pretrained,
        frozen=frozen,
        image_size=settings.image_size,
        single_label=single_label,
    )


def _check_settings(kind: type[nn.Module], settings: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(kind).parameters if name != "positive_weights"]
    for name in settings:
        if name not in known:
            raise ConfigError(f"{kind.__name__} has no setting {name!r}; {list_choices(name, known)}")


def _load_to_train(model: str, sets: TrainAndVal, *, head: type[nn.Module] | None) -> Classifier:
    """Load a trained classifier to go on with, backbone included; what it was tuned to is for the weights it had."""
    loaded = Classifier.from_pretrained(model, head=head)
    loaded.thresholds = loaded.calibration = None
    if loaded.labels.names != sets.train.labels.names:
        odd = sorted({*loaded.labels.names} ^ {*sets.train.labels.names})
        raise ConfigError(
            f"{model} was trained on other labels than {sets.train.name} has: {', '.join(odd[:5]) or 'another order'}; "
            "start from a model of the same labels, or leave start_from out"
        )
    loaded.backbone.freeze(False)
    return loaded
