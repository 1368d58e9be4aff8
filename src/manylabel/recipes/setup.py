"""Setup of a run: its datasets, and its classifier and loss, built from settings or passed as Python objects."""

import copy
import hashlib
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar, get_args

import torch
from PIL import Image
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, hold_out, load
from manylabel.errors import ConfigError, DataError, TrainingError, list_choices
from manylabel.heads import HEADS
from manylabel.heads.config import build_head, describe_head, naming_settings
from manylabel.heads.head import ProbeDefaults, probe_defaults, stages_of
from manylabel.losses import LOSSES, MultiLabelLoss
from manylabel.settings import DataSettings, LossName, RecipeSettings
from manylabel.types import LabelSpace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainAndVal:
    """Training and validation set with the same labels.

    Args:
        train: Training set.
        val: Validation set; training labels that it lacks are absent from its images, its other labels are ignored.

    Raises:
        DataError: A set is empty, or the sets have no label in common.

    Examples:
        >>> from manylabel.data import scenes
        >>> sets = TrainAndVal(scenes(10, split="train"), scenes(10, split="val"))
        >>> len(sets.train), len(sets.val)
        (8, 2)
    """

    train: ImageDataset
    val: ImageDataset

    def __post_init__(self) -> None:
        for what, part in (("training", self.train), ("validation", self.val)):
            if not len(part):
                raise DataError(f"there are no {what} images in {part.name}")
        if self.val.labels.names != self.train.labels.names:
            object.__setattr__(self, "val", self.val.align_labels(self.train.labels))


def open_sets(settings: DataSettings, *, data: object = None, val: object = None) -> TrainAndVal:
    """Load the training and validation set that the settings name.

    The validation set is the first of: `val`; the split of the dataset whose name begins with "val", if another begins
    with "train"; a held-out fraction, stratified by label, of the split that begins with "train", else of all images.
    With `val`, too, the training set is the split that begins with "train", if there is exactly one.

    Args:
        settings: Settings of a recipe.
        data: Training set, in any form that `load` takes (default: the one the settings name).
        val: Validation set, likewise.

    Raises:
        DataError: The dataset cannot be read, or the labels of the sets differ.
    """
    images, others = _open(settings.data, data), _open(settings.val, val)
    if images is None:
        raise DataError("there is no training set; set data")
    if not len(images.labels):
        raise DataError(f"{images.name} has no labels to train on; use images with tags, such as a table")
    if others is not None:
        sets = _train_split(images), others
    elif len(train := images.splits_like("train")) == len(val_split := images.splits_like("val")) == 1:
        sets = images.split(train[0]), images.split(val_split[0])
    else:
        sets = _held_out(images, settings.val_fraction)
    return TrainAndVal(*(hold_out(part, limit=settings.limit) for part in sets))


def _held_out(data: ImageDataset, val_fraction: float) -> tuple[ImageDataset, ImageDataset]:
    """Return the training split, else all images, without a held-out fraction, and that fraction."""
    named = data.splits_like("")
    if len(named) > 1 and len(data.splits_like("train")) != 1:
        logger.warning(
            "%s has the splits %s, and the training split is ambiguous, so validation images are held out of all "
            "of them; set the training split with split=NAME in DATA, the validation set with --val",
            data.name,
            ", ".join(named),
        )
    data = hold_out(data, val_fraction=val_fraction)
    if aside := ", ".join(name for name in data.splits if name not in ("train", "val")):
        logger.warning("%s: validation images are held out of the training split; ignoring %s", data.name, aside)
    return data.split("train"), data.split("val")


def _open(name: str | None, given: object) -> ImageDataset | None:
    """Load a dataset that was passed from Python, or else the one of a name."""
    if given is None and name is not None and name.startswith("<"):
        raise DataError(f"the run trained on a Python object, {name}, which its settings cannot hold; pass it again")
    return None if given is None and name is None else load(name if given is None else given)


def describe_images(sets: TrainAndVal) -> dict[str, object]:
    """Return the sizes of both sets, and a fingerprint of the image names.

    Examples:
        >>> from manylabel.data import scenes
        >>> described = describe_images(TrainAndVal(scenes(10, split="train"), scenes(10, split="val")))
        >>> described["train"], described["val"], len(described["fingerprint"])
        (8, 2, 16)
    """
    digest = hashlib.sha256()
    for part in (sets.train, sets.val):
        digest.update("\0".join(part.images.name(index) for index in range(len(part))).encode(errors="surrogatepass"))
        digest.update(b"\0\0")
    return {"train": len(sets.train), "val": len(sets.val), "fingerprint": digest.hexdigest()[:16]}


def _train_split(data: ImageDataset) -> ImageDataset:
    """Return the training split of a dataset if it is unambiguous, else all images."""
    train = data.splits_like("train")
    if len(train) != 1:
        return data
    if aside := ", ".join(name for name in data.splits_like("") if name not in train):
        logger.warning("%s: training on split %s; ignoring %s", data.name, train[0], aside)
    return data.split(train[0])


Settings = TypeVar("Settings", bound=RecipeSettings)
OwnSettings = TypeVar("OwnSettings", bound=RecipeSettings, covariant=True)
Loss: TypeAlias = Callable[..., Tensor]
Transform: TypeAlias = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class Parts:
    """Python objects to use in place of the parts that the settings name.

    Modules are copied before training; the objects themselves do not change.

    Args:
        head: Head class, or a module that maps features to logits.
        backbone: `Backbone`, or a timm model.
        loss: ``(logits, targets, known) -> scalar``, or ``(logits, targets) -> scalar`` as in torch.
        transform: Training transform from a PIL image to a tensor ``[3, H, W]``.
    """

    head: type[nn.Module] | nn.Module | None = None
    backbone: nn.Module | None = None
    loss: Loss | None = None
    transform: Transform | None = None

    @property
    def head_class(self) -> type[nn.Module] | None:
        """Class of the head, if there is one."""
        return type(self.head) if isinstance(self.head, nn.Module) else self.head

    def names(self) -> dict[str, Any]:
        """Return the class path of each object, and the arguments of a ready head, for the record of the settings."""
        found: dict[str, Any] = {name: _path(value) for name, value in vars(self).items() if value is not None}
        if self.head_class is not None:
            found["head"] = HEADS.name_of(self.head_class) or found["head"]
        if self.backbone is not None:
            found["backbone"] += f"({getattr(self.backbone, 'name', '')})"
        if isinstance(self.head, nn.Module):
            arguments = describe_head(self.head).settings.items()
            implied = ("in_channels", "num_labels")  # by backbone and labels
            found["head_settings"] = {name: value for name, value in arguments if name not in implied}
        return found


NO_PARTS = Parts()


@dataclass(frozen=True)
class Setup(Generic[OwnSettings]):
    """Datasets, model and loss of a run, built and checked before the run folder is created.

    Args:
        settings: Resolved settings.
        data: Training and validation set, with all labels.
        sets: Training and validation set, with the trained labels.
        model: Classifier.
        loss: Loss.
        trained: Trained part of the model: the head, the top of the backbone and the head, or all.
        cached: Frozen part of the backbone, whose maps are cached; None to train on images.
        parts: Objects passed from Python.
        backbone_scale: Learning rate of the backbone relative to the head.
        augment: Augment training images.
        total_epochs: Total epochs of all models of the run (default: those of one model).
    """

    settings: OwnSettings
    data: TrainAndVal
    sets: TrainAndVal
    model: Classifier
    loss: nn.Module
    trained: nn.Module
    cached: Backbone | None = None
    parts: Parts = NO_PARTS
    backbone_scale: float = 1.0
    augment: bool = False
    total_epochs: float | None = None


def prepare_frozen(settings: Settings, data: TrainAndVal, parts: Parts) -> Setup[Settings]:
    """Build a classifier with a frozen backbone, and its loss.

    Args:
        settings: Settings of a recipe.
        data: Training and validation set.
        parts: Objects passed from Python.
    """
    model = build_classifier(settings, data.train, frozen=True, parts=parts)
    loss = build_loss(settings, single_label=model.single_label, incomplete=data.train.incomplete, parts=parts)
    return Setup(settings, data, data, model, loss, model.head, model.backbone, parts)


def resolve(settings: Settings, parts: Parts = NO_PARTS) -> Settings:
    """Return settings with the names of all parts and, for cached features, the head's default size and learning rate.

    Args:
        settings: Settings of a recipe.
        parts: Objects passed from Python.

    Raises:
        ConfigError: The settings name an object that was not passed.

    Examples:
        >>> from manylabel.settings import Probe
        >>> found = resolve(Probe(data="voc:VOC", head="hsq"))
        >>> found.head_settings, found.learning_rate
        ({'width': 256, 'feedforward': 512}, 0.0005)
    """
    names: dict[str, Any] = parts.names()
    for name in vars(parts).keys() - names:
        recorded = str(getattr(settings, name))
        if recorded.endswith(")") if name == "backbone" else ":" in recorded:
            raise ConfigError(f"the {name} {recorded} is a Python object; call the recipe from Python and pass {name}=")
    settings = replace(settings, **names)
    trains_all = getattr(settings, "train_from", "all") == "all" or not settings.pretrained
    if trains_all and not settings.on_features:
        return settings
    filled, rate = _filled(settings.head, settings.head_settings)
    own = settings.head_settings if isinstance(parts.head, nn.Module) else filled
    return replace(settings, head_settings=own, learning_rate=settings.learning_rate or rate)


def build_classifier(
    settings: RecipeSettings,
    train: ImageDataset,
    *,
    frozen: bool,
    parts: Parts = NO_PARTS,
    head_arguments: Mapping[str, Any] | None = None,
) -> Classifier:
    """Build the classifier that the settings describe; deterministic for a seed.

    Args:
        settings: Settings of a recipe.
        train: Training set, for its labels.
        frozen: Freeze the backbone.
        parts: Objects passed from Python.
        head_arguments: All arguments of the head (default: those of the settings).

    Raises:
        ConfigError: A setting of the backbone or the head is invalid.
    """
    arguments = settings.head_settings if head_arguments is None else head_arguments
    torch.manual_seed(settings.seed)
    if isinstance(parts.head, nn.Module):
        head = copy.deepcopy(parts.head)
        backbone = _backbone(settings, parts, stages=tuple(getattr(head, "stages", (-1,))), frozen=frozen)
    else:
        kind = _head_class(settings, parts)
        backbone = _backbone(settings, parts, stages=stages_of(kind, arguments), frozen=frozen)
        head = build_head(kind, backbone, num_labels=len(train.labels), settings=arguments)
    describe_head(head)  # one that cannot be saved must fail now, not after training
    return Classifier(backbone, head, train.labels, single_label=is_single_label(settings, train))


def build_teacher(
    settings: RecipeSettings, labels: LabelSpace, *, seed: int, frozen: bool, parts: Parts = NO_PARTS
) -> Classifier:
    """Build an untrained classifier for a subset of the labels, with the backbone of `build_classifier`.

    Args:
        settings: Settings of a recipe; ``num_groups`` of the head is capped at the number of labels.
        labels: Labels of the teacher.
        seed: Seed of the head's initialisation.
        frozen: Freeze the backbone.
        parts: Objects passed from Python.
    """
    kind = _head_class(settings, parts)
    arguments = _fewer_groups(settings.head_settings, len(labels))
    torch.manual_seed(settings.seed)
    backbone = _backbone(settings, parts, stages=stages_of(kind, arguments), frozen=frozen)
    torch.manual_seed(seed)
    return Classifier(backbone, build_head(kind, backbone, num_labels=len(labels), settings=arguments), labels)


def build_loss(
    settings: RecipeSettings, *, single_label: bool, incomplete: bool = False, parts: Parts = NO_PARTS
) -> nn.Module:
    """Build the loss that the settings name.

    Args:
        settings: Settings of a recipe.
        single_label: True if every image has exactly one label.
        incomplete: True if tags may be missing: a loss that takes `unknown` then counts unknown labels as absent.
        parts: Objects passed from Python.

    Raises:
        ConfigError: An argument of the loss is unknown or invalid, or the loss does not fit the kind of labels.
    """
    if parts.loss is not None and settings.positive_weights:
        raise ConfigError("a loss object has its own positive weights; pass them to it, and remove positive_weights")
    if isinstance(parts.loss, MultiLabelLoss):
        return copy.deepcopy(parts.loss)
    if parts.loss is not None:
        return CustomLoss(parts.loss)
    name = resolve_loss(settings.loss, single_label=single_label, incomplete=incomplete)
    if name in get_args(LossName) and single_label != (name == "cross_entropy"):
        fits = "cross_entropy" if single_label else "another loss"
        kind = "exactly one label" if single_label else "any number of labels"
        raise ConfigError(f"the loss {name} does not fit images with {kind}; use {fits}, or auto")
    loss = LOSSES[name]
    known = set(inspect.signature(loss).parameters)
    given: dict[str, Any] = {"unknown": "negative"} if incomplete and "unknown" in known else {}
    if settings.loss == "auto" and name == "asymmetric":
        given["clip"] = NO_MARGIN
    given |= settings.loss_settings
    if settings.positive_weights and "positive_weights" not in known:
        raise ConfigError(f"the loss {name} takes no positive weights; use another, or remove positive_weights")
    known -= {"positive_weights"}
    for each in given.keys() - known:
        raise ConfigError(f"{loss.__name__} has no setting {each!r}; {list_choices(each, known)}")
    with naming_settings(loss.__name__, given):
        return loss(**given)


class CustomLoss(nn.Module):
    """Loss of the user's own, with or without a mask of known labels.

    Args:
        loss: ``(logits, targets, known) -> scalar``, or ``(logits, targets) -> scalar``.

    Raises:
        ConfigError: The loss is a class.

    Examples:
        >>> loss = CustomLoss(nn.BCEWithLogitsLoss())
        >>> loss(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool))
        tensor(0.6931)
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        if inspect.isclass(loss):
            raise ConfigError(f"loss must be a function or a module, got a class; write {loss.__name__}()")
        self.loss = loss
        self.reduction = getattr(loss, "reduction", "mean")
        self.takes_known = True
        try:
            inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).bind(0, 0, 0)
        except TypeError:
            self.takes_known = False

    def forward(self, logits: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the loss of logits ``[B, L]``."""
        if self.takes_known:
            return self.loss(logits, targets, known)
        if known is not None and not known.all():
            raise TrainingError(
                f"the data has unknown labels, which the loss {_path(self.loss)} cannot skip; "
                "define it as loss(logits, targets, known)"
            )
        return self.loss(logits, targets)


INCOMPLETE_LOSS: LossName = "entropy_maximization"
"""For incomplete tags: best, or close to it, if tags are missing; measured in docs/how-to/unknown-labels.md."""

NO_MARGIN = 0.0
"""Default margin of the asymmetric loss: with its own, 0.05, a confident error on an absent label has no gradient."""


def resolve_loss(name: str, *, single_label: bool, incomplete: bool = False) -> str:
    """Return the name of a loss; ``"auto"`` depends on the labels.

    Examples:
        >>> [resolve_loss("auto", single_label=False, incomplete=incomplete) for incomplete in (False, True)]
        ['asymmetric', 'entropy_maximization']
        >>> resolve_loss("auto", single_label=True), resolve_loss("focal", single_label=False)
        ('cross_entropy', 'focal')
    """
    if name != "auto":
        return name
    return "cross_entropy" if single_label else INCOMPLETE_LOSS if incomplete else "asymmetric"


def are_tags_incomplete(train: ImageDataset, loss_settings: Mapping[str, Any]) -> bool:
    """Return whether ``"auto"`` takes the loss for incomplete tags.

    It does if tags are declared incomplete, and if labels are unknown and none is known to be absent: ignoring unknown
    labels, another loss would learn that everything is present.

    Args:
        train: Training set.
        loss_settings: Arguments of the loss; one that sets `unknown` has decided already.
    """
    return train.incomplete or (train.targets.positive_unlabeled and "unknown" not in loss_settings)


def is_single_label(settings: RecipeSettings, train: ImageDataset) -> bool:
    """Return the setting `single_label` (default: that of the dataset)."""
    return train.single_label if settings.single_label is None else settings.single_label


def load_to_train(
    model: str, train: ImageDataset, *, image_size: int | None = None, parts: Parts = NO_PARTS
) -> Classifier:
    """Load a trained classifier for fine-tuning, without its thresholds and calibration.

    Args:
        model: Model folder, or another name for `Classifier.from_pretrained`.
        train: Training set with the same labels.
        image_size: Input height and width in pixels (default: those of the model).
        parts: Objects passed from Python, for the class of a custom head.

    Raises:
        ConfigError: The model was trained on other labels, or takes no images of another size.
    """
    loaded = Classifier.from_pretrained(model, head=parts.head_class)
    loaded.thresholds = loaded.calibration = None
    if loaded.labels.names != train.labels.names:
        odd = sorted({*loaded.labels.names} ^ {*train.labels.names})
        raise ConfigError(
            f"the labels of {model} and {train.name} differ: {', '.join(odd[:5]) or 'another order'}; "
            "start from a model with the same labels, or remove start_from"
        )
    old = loaded.backbone
    if image_size not in (None, old.input_spec.size[0]):
        if not old.takes_any_size:
            raise ConfigError(f"{model} only takes images of {old.input_spec.size[0]} pixels; remove image_size")
        backbone = Backbone(old.name, pretrained=False, stages=old.stages, image_size=image_size)
        backbone.load_state_dict(old.state_dict())
        loaded = Classifier(backbone, loaded.head, loaded.labels, single_label=loaded.single_label)
    loaded.backbone.freeze(False)
    return loaded


def _path(value: object) -> str:
    """Return the path of a class or function, or of an object's class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{getattr(named, '__qualname__', '')}"


def _head_class(settings: RecipeSettings, parts: Parts) -> type[nn.Module]:
    if isinstance(parts.head, nn.Module):
        raise ConfigError(
            f"this recipe builds several heads, but head is a {_path(parts.head)} module; pass its class, and its "
            "arguments as head_settings"
        )
    if parts.head is None and settings.head not in HEADS:
        raise ConfigError(f"head cannot be {settings.head!r}; {list_choices(settings.head, HEADS)}")
    return parts.head or HEADS[settings.head]


def _backbone(settings: RecipeSettings, parts: Parts, *, stages: tuple[int, ...], frozen: bool) -> Backbone:
    if parts.backbone is None:
        name, pretrained, size = settings.backbone, settings.pretrained, settings.image_size
        return Backbone(name, pretrained=pretrained, frozen=frozen, stages=stages, image_size=size)
    module = copy.deepcopy(parts.backbone)
    backbone = module if isinstance(module, Backbone) else Backbone(module, image_size=settings.image_size)
    backbone.check_name()  # one that cannot be saved must fail now, not after training
    if settings.image_size not in (None, backbone.input_spec.size[0]):
        raise ConfigError(
            f"image_size is {settings.image_size}, but the backbone was built for {backbone.input_spec.size[0]} "
            "pixels; pass image_size to Backbone instead"
        )
    backbone.select(stages)
    backbone.freeze(frozen)
    return backbone


def _filled(head: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Return the settings and learning rate of a head on cached features, with its defaults."""
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
