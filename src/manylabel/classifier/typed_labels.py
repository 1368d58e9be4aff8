"""Any typed label, for a classifier of fixed labels: matched to what its pretrained backbone knows.

Letters in shape comments: L labels, M typed labels, K classes.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from manylabel.backbone import Backbone, Top, load_classes
from manylabel.backbone.split import shallow_copy
from manylabel.backbone.weights import PRETRAINED
from manylabel.classifier.class_match import ClassMatch, find_kinds, find_synonyms, match_classes
from manylabel.classifier.engine import ScoreCalibration
from manylabel.errors import ConfigError
from manylabel.heads.typed_labels import TypedLabels
from manylabel.text import TextEncoder, open_encoder
from manylabel.types import LabelSpace

if TYPE_CHECKING:  # a classifier makes classifiers with typed labels
    from manylabel.classifier.classifier import Classifier

logger = logging.getLogger(__name__)

KNOWN_SPREAD = 190
"""Effective number of matched names above which a typed label counts as unknown; of labels below, nine in ten have
informative scores (docs/results.md). It separates better than the similarity to the nearest name."""

KIND_WEIGHT = 0.2
"""Weight of a trained label in a kind of it that the model cannot tell from others: where it is certainly present, the
kind gets about 0.5."""

KIND_SIMILARITY = 0.7
"""Cosine similarity to another name from which a kind of a trained label is matched to that: "surfer" to "surfboard",
but not "toddler" to "bassinet". Set by looking at names of people."""

THRESHOLD = 0.3
"""Threshold of typed labels; unknown ones get 1, so that they are never tags, but can be listed with `top`."""

_MANY_LABELS = 5000  # encoding takes half a minute


@dataclass(frozen=True)
class TypedLabel:
    """What a model knows about a typed label.

    Args:
        label: The label.
        known: Whether the model knows something similar.
        trained: The trained label that it is another name of, or None.
        kind_of: The trained label that it is a kind of, if the model knows it in no other way, or None.
        nearest: Most similar names that the model knows.
        similarity: Cosine similarity to the first of them; 1 for a trained label or the name of a group of classes.

    Examples:
        >>> TypedLabel("sunset", known=False, nearest=("seashore", "volcano"), similarity=0.41)
        sunset: known: no (nearest: seashore, volcano; similarity 0.41)
    """

    label: str
    known: bool
    trained: str | None = None
    nearest: tuple[str, ...] = ()
    similarity: float = 1.0
    kind_of: str | None = None

    def __repr__(self) -> str:
        label = "".join(each if each.isprintable() else repr(each)[1:-1] for each in self.label[:60])
        label = label if len(label) <= 60 else f"{label[:59]}…"
        if self.trained is not None:
            return f"{label}: known: yes (trained as {self.trained})"
        if self.kind_of is not None:
            return f"{label}: known: yes (as a kind of {self.kind_of})"
        details = f"nearest: {', '.join(self.nearest)}; similarity {self.similarity:.2f}"
        return f"{label}: known: {'yes' if self.known else 'no'} ({details})"


def add_typed_labels(model: "Classifier", wanted: LabelSpace, encoder: TextEncoder | None) -> "Classifier":
    """Return a classifier of typed labels: the model's own labels and their synonyms as trained, others by text.

    Args:
        model: A classifier of fixed labels.
        wanted: Typed labels.
        encoder: Text encoder (default: offline:minilm).

    Raises:
        ConfigError: The model is a single-label one, or its backbone's classes are not known or have been trained away.
    """
    if model.single_label:
        raise ConfigError("typed labels need a model of several labels per image; this one gives a single label")
    own = {name: name for name in wanted if name in model.labels}
    rest = [name for name in wanted if name not in own]
    used = _EachOnce(encoder or open_encoder()) if rest else None
    if len(rest) > _MANY_LABELS:
        logger.warning("encoding %s labels takes a while: about a minute per 10,000 on one core", f"{len(rest):,}")
    if used is not None:
        shown = {model.labels.display(name): name for name in model.labels}
        own |= {name: shown[label] for name, label in find_synonyms(used, rest, list(shown)).items()}
    typed = wanted.subset([name for name in wanted if name not in own])
    order = [model.labels.index(own[name]) if name in own else -1 for name in wanted]
    found = [TypedLabel(name, known=True, trained=own[name]) for name in wanted if name in own]
    if not len(typed) or used is None:
        backbone, head = model.backbone, _trained_only(model, order)
    else:
        try:
            classes = load_classes(model.backbone.name)
            cut, top = original_top(model.backbone, size=model.input_spec.size)
        except ConfigError as error:
            raise ConfigError(
                f"this model ({type(model.head).__name__}) knows only the {len(model.labels)} labels it was trained "
                f"on: {error}; to predict any label, use the recipe zero_shot (manylabel train DATA --recipe zero_shot)"
            ) from error
        names = [*classes.names, *(model.labels.display(name).replace(", ", " ") for name in model.labels)]
        match = match_classes(used, typed, names, classes.synsets)
        found += _describe(match, typed, list(shown))
        for each in found:
            if each.kind_of is not None:
                row = match.weights[typed.index(each.label)]
                row *= 1 - KIND_WEIGHT
                row[len(classes.names) + list(shown).index(each.kind_of)] += KIND_WEIGHT
        backbone = shallow_copy(model.backbone)
        backbone.select(sorted({*([] if cut is None else [cut]), *model.backbone.stages}))
        if cut is not None and backbone.stages[0] != cut:
            raise ConfigError(
                "typed labels need a head that reads the trained layers only, but "
                f"{type(model.head).__name__} reads the stages {list(model.backbone.stages)}"
            )
        columns = iter(range(len(model.labels), len(model.labels) + len(typed)))
        head = TypedLabels(
            model.head,
            classes,
            weights=match.weights,
            calibration=_table(model.calibration),
            order=[next(columns) if column < 0 else column for column in order],
            head_maps=[backbone.stages.index(stage) for stage in model.backbone.stages],
            top=top,
            stages=backbone.stages,
        )
    by_name = {each.label: each for each in found}
    described = tuple(by_name[name] for name in wanted)
    unknown = [each for each in described if not each.known]
    for each in unknown[:10]:
        logger.warning("%r; no image is tagged with it, but its scores can be listed", each)
    if len(unknown) > 10:
        logger.warning("and %s more typed labels are not known", f"{len(unknown) - 10:,}")
    for label in dict.fromkeys(each.kind_of for each in described if each.kind_of is not None):
        kinds_of = [repr(each.label) for each in described if each.kind_of == label]
        more = f" and {len(kinds_of) - 10:,} more" if len(kinds_of) > 10 else ""
        logger.warning("%s%s: the model knows %s, but not of which kind", ", ".join(kinds_of[:10]), more, label)
    other = model._like(backbone, head, labels=wanted, **_decisions(model, described))
    other.typed_labels = described
    return other.train(model.training)


def _describe(match: ClassMatch, typed: LabelSpace, trained: Sequence[str]) -> list[TypedLabel]:
    """Return what is known about typed labels: as kinds of trained ones only if no other name is similar."""
    found, kinds = [], find_kinds(list(typed), trained)
    facts = zip(typed, match.nearest, match.similarity.tolist(), match.spread.tolist(), strict=True)
    for name, nearest, value, spread in facts:
        kind_of, known = kinds.get(name), spread <= KNOWN_SPREAD
        if kind_of is None or spread == 1 or (value >= KIND_SIMILARITY and nearest[0] != kind_of):
            found.append(TypedLabel(name, known, None, nearest, value))
        else:
            near = tuple(dict.fromkeys((kind_of, *nearest)))
            found.append(TypedLabel(name, known=True, nearest=near, similarity=value, kind_of=kind_of))
    return found


class _EachOnce:
    """Text encoder that encodes each text once: labels are compared with trained ones, then with classes."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.name, self.templates, self.reads = encoder.name, encoder.templates, encoder.reads
        self.encoder = encoder
        self.vectors: dict[str, torch.Tensor] = {}

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        new = [text for text in dict.fromkeys(texts) if text not in self.vectors]
        if new:
            self.vectors |= zip(new, self.encoder.encode(new), strict=True)
        return torch.stack([self.vectors[text] for text in texts])


def _trained_only(model: "Classifier", order: list[int]) -> TypedLabels:
    stages = model.backbone.stages
    return TypedLabels(model.head, order=order, head_maps=range(len(stages)), stages=stages)


def original_top(backbone: Backbone, *, size: tuple[int, int]) -> tuple[int | None, Top | None]:
    """Return the pretrained layers above the last stage that training has left unchanged.

    Args:
        backbone: Backbone of a trained classifier.
        size: Height and width of its images.

    Returns:
        The stage and the layers; (None, None) if nothing was changed.

    Raises:
        ConfigError: Training has changed even the first stage.
    """
    name = PRETRAINED.get(backbone.name, backbone.name)
    original = Backbone(name, image_size=backbone.image_size, stages=(-1,), frozen=True)
    tensors = backbone.model.state_dict()
    changed = {key for key, value in original.model.state_dict().items() if not _same(value, tensors.get(key))}
    if not changed:
        return None, None
    for stage in reversed(range(original.num_stages - 1)):
        _, top = original.split(stage, size=size)
        if changed <= set(top.model.state_dict()):
            _, top = original.fuse(channels_last=True).split(stage, size=size)
            return stage, top.requires_grad_(False).eval()
    raise ConfigError(f"training has changed all layers of {backbone.name}, so the classes that it knew are lost")


def _table(calibration: ScoreCalibration | None) -> torch.Tensor | None:
    return None if calibration is None else torch.tensor([calibration.scale, calibration.shift])


def _same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Return whether two tensors are equal in half precision, in which models may be saved."""
    if other is None or one.shape != other.shape:
        return False
    return not one.is_floating_point() or torch.equal(one.cpu().half(), other.cpu().half())


def _decisions(model: "Classifier", labels: tuple[TypedLabel, ...]) -> dict[str, Any]:
    """Return thresholds and calibration: those of trained labels, and those of typed ones."""
    rows = [None if each.trained is None else model.labels.index(each.trained) for each in labels]
    own = model.thresholds or [0.5] * len(model.labels)
    new = [THRESHOLD if each.known else 1.0 for each in labels]
    limits = [new[position] if row is None else own[row] for position, row in enumerate(rows)]
    calibration = model.calibration
    if calibration is not None:
        scale = tuple(1.0 if row is None else calibration.scale[row] for row in rows)
        shift = tuple(0.0 if row is None else calibration.shift[row] for row in rows)
        calibration = ScoreCalibration(calibration.method, scale, shift)
    return {"thresholds": limits, "calibration": calibration}
