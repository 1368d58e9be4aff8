"""Classifier and loss, built from settings."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from manylabel.classifier import Classifier
from manylabel.classifier.head_config import build_head, naming_settings
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError, list_choices
from manylabel.heads import HEADS
from manylabel.heads.traits import ProbeDefaults, probe_defaults
from manylabel.losses import LOSSES
from manylabel.settings import RecipeSettings
from manylabel.types import LabelSpace

__all__ = ["build_classifier", "build_loss", "build_teacher", "is_single_label", "load_to_train", "resolve_head"]

Settings = TypeVar("Settings", bound=RecipeSettings)


def resolve_head(settings: Settings, head: type[nn.Module] | None, *, small: bool = False) -> Settings:
    """Return settings with the head's name and, for frozen features, its default size and learning rate.

    Args:
        settings: Settings of a recipe.
        head: Custom head class (default: the one the settings name).
        small: Default to the sizes and learning rates for frozen features.

    Examples:
        >>> from manylabel.settings import Probe
        >>> found = resolve_head(Probe(data="voc:VOC", head="hsq"), None, small=True)
        >>> found.head_settings, found.learning_rate
        ({'width': 256, 'feedforward': 512}, 0.0005)
    """
    if head is not None:
        ours = {kind: name for name, kind in HEADS.items()}
        settings = replace(settings, head=ours.get(head, f"{head.__module__}:{head.__qualname__}"))
    if not small:
        return settings
    filled, rate = _filled(settings.head, settings.head_settings)
    return replace(
        settings,
        head_settings=filled,
        learning_rate=rate if settings.learning_rate is None else settings.learning_rate,
    )


def build_classifier(
    settings: RecipeSettings,
    train: ImageDataset,
    *,
    frozen: bool,
    head: type[nn.Module] | None = None,
    head_arguments: Mapping[str, Any] | None = None,
) -> Classifier:
    """Build the classifier that the settings describe; deterministic for a seed.

    Args:
        settings: Settings of a recipe.
        train: Training set, for its labels.
        frozen: Freeze the backbone.
        head: Custom head class (default: the one the settings name).
        head_arguments: All arguments of the head (default: those of the settings).

    Raises:
        ConfigError: A setting of the backbone or the head is invalid.
    """
    single_label, kind = is_single_label(settings, train), _head_class(settings, head)
    arguments = settings.head_settings if head_arguments is None else head_arguments
    return _create(settings, train.labels, kind, arguments, frozen=frozen, single_label=single_label)


def build_teacher(
    settings: RecipeSettings,
    labels: LabelSpace,
    *,
    seed: int,
    frozen: bool,
    head: type[nn.Module] | None = None,
) -> Classifier:
    """Build an untrained classifier for a subset of the labels, with the backbone of `build_classifier`.

    Args:
        settings: Settings of a recipe; ``num_groups`` of the head is capped at the number of labels.
        labels: Labels of the teacher.
        seed: Seed of the head's initialisation.
        frozen: Freeze the backbone.
        head: Custom head class (default: the one the settings name).
    """
    kind = _head_class(settings, head)
    arguments = _fewer_groups(settings.head_settings, len(labels))
    model = _create(settings, labels, kind, arguments, frozen=frozen, single_label=False)
    torch.manual_seed(seed)
    model.head = build_head(kind, model.backbone, num_labels=len(labels), settings=arguments)
    return model


def build_loss(settings: RecipeSettings, *, single_label: bool) -> nn.Module:
    """Build the loss that the settings name.

    Args:
        settings: Settings of a recipe.
        single_label: True if every image has exactly one label.

    Raises:
        ConfigError: An argument of the loss is unknown or invalid, or the loss does not fit the kind of labels.
    """
    name = resolve_loss(settings.loss, single_label=single_label)
    if single_label != (name == "cross_entropy"):
        fits = "cross_entropy" if single_label else "asymmetric, binary_cross_entropy, focal or soft_margin"
        kind = "exactly one label" if single_label else "any number of labels"
        raise ConfigError(f"the loss {name} does not fit images with {kind}; use {fits}, or auto")
    _check_settings(LOSSES[name], settings.loss_settings)
    with naming_settings(LOSSES[name].__name__, settings.loss_settings):
        return LOSSES[name](**settings.loss_settings)


def resolve_loss(name: str, *, single_label: bool) -> str:
    """Return the name of a loss; ``"auto"`` is cross_entropy for single-label data, else asymmetric."""
    return name if name != "auto" else "cross_entropy" if single_label else "asymmetric"


def is_single_label(settings: RecipeSettings, train: ImageDataset) -> bool:
    """Return the setting `single_label` (default: that of the dataset)."""
    return train.single_label if settings.single_label is None else settings.single_label


def load_to_train(model: str, train: ImageDataset, *, head: type[nn.Module] | None = None) -> Classifier:
    """Load a trained classifier for fine-tuning, without its thresholds and calibration.

    Args:
        model: Model folder, or another name for `Classifier.from_pretrained`.
        train: Training set with the same labels.
        head: Custom head class (default: the one the settings name).

    Raises:
        ConfigError: The model was trained on other labels.
    """
    loaded = Classifier.from_pretrained(model, head=head)
    loaded.thresholds = loaded.calibration = None
    if loaded.labels.names != train.labels.names:
        odd = sorted({*loaded.labels.names} ^ {*train.labels.names})
        raise ConfigError(
            f"the labels of {model} and {train.name} differ: {', '.join(odd[:5]) or 'another order'}; "
            "start from a model with the same labels, or remove start_from"
        )
    loaded.backbone.freeze(False)
    return loaded


def _head_class(settings: RecipeSettings, given: type[nn.Module] | None) -> type[nn.Module]:
    if given is None and ":" in settings.head:
        raise ConfigError(
            f"the head {settings.head} is a custom class; call the recipe from Python and pass the class as head"
        )
    if given is None and settings.head not in HEADS:
        raise ConfigError(f"head cannot be {settings.head!r}; {list_choices(settings.head, HEADS)}")
    return given or HEADS[settings.head]


def _filled(head: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Return the settings and learning rate of a head on frozen features, with its defaults."""
    defaults = probe_defaults(HEADS[head]) if head in HEADS else ProbeDefaults()
    settings, rate = {**defaults.settings, **given}, defaults.learning_rate
    if top := settings.get("top"):  # a nested head
        name, inner = (top, {}) if isinstance(top, str) else (top["name"], top.get("settings", {}))
        inner, rate = _filled(name, inner)
        settings["top"] = {"name": name, "settings": inner}
    return settings, rate


def _fewer_groups(settings: Mapping[str, Any], num_labels: int) -> dict[str, Any]:
    """Return head settings with at most as many groups as labels, nested heads included."""
    fewer = dict(settings)
    if "num_groups" in settings:
        fewer["num_groups"] = min(settings["num_groups"] or num_labels, num_labels)
    for name, value in settings.items():
        if isinstance(value, Mapping) and "settings" in value:
            fewer[name] = {**value, "settings": _fewer_groups(value["settings"], num_labels)}
    return fewer


def _create(
    settings: RecipeSettings,
    labels: LabelSpace,
    head: type[nn.Module],
    arguments: Mapping[str, Any],
    *,
    frozen: bool,
    single_label: bool,
) -> Classifier:
    torch.manual_seed(settings.seed)
    return Classifier.create(
        settings.backbone,
        head=head,
        labels=labels,
        head_settings=arguments,
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
