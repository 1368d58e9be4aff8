"""Heat maps of labels over an image, from one model or several.

Letters in shape comments: L labels, H and W positions of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.data import eval_transform
from manylabel.errors import ConfigError, list_choices
from manylabel.explain import class_activation
from manylabel.explain.class_activation import LIBRARY, WITHOUT_GRADIENTS
from manylabel.explain.explanation import Explanation, scale_heat, seen_part
from manylabel.heads.traits import attention_of, label_weights
from manylabel.images import ImageLike, decode
from manylabel.types import LabelSpace

__all__ = ["METHODS", "best_method", "explain", "explain_models"]

METHODS: tuple[str, ...] = ("auto", "attention", "cam", *LIBRARY)
"""Methods of explanation; auto is the one measured to be most faithful for the model's head."""

_FINAL_ONLY = ("attention", "cam")
_MOST_LABELS = 5


def explain(
    model: Classifier,
    image: ImageLike,
    *,
    labels: str | Sequence[str] | None = None,
    method: str | Sequence[str] = "auto",
    blocks: Sequence[int] | Literal["all"] = (-1,),
    name: str = "",
) -> list[Explanation]:
    """Compute heat maps of labels over an image.

    Attention comes from the same forward pass as the scores, for all labels at once. Class activation maps share one
    pass of the backbone; only blocks before the final one need a backward pass for each label.

    Args:
        model: The classifier; it is left in eval mode.
        image: A path, encoded bytes, a PIL image or an array ``[H, W, 3]`` of bytes.
        labels: One label or several (default: the predicted ones, at most five, or else the most confident one).
        method: One of `METHODS`, or several. EigenCAM is the same for every label.
        blocks: Stages of the backbone, numbered as in `Backbone`, or all. Attention and CAM support the final one
            only; ``"auto"`` uses Grad-CAM for earlier ones.
        name: Name of the model in a grid.

    Returns:
        One explanation for each label, method and supported block, in this order.

    Raises:
        ConfigError: There is no such method or block, the model does not support it, or the array has a wrong type.
        LabelError: There is no such label.
        ImageError: The image cannot be decoded.

    Examples:
        >>> from PIL import Image
        >>> from manylabel import heads
        >>> model = Classifier.create(
        ...     "resnet10t", head=heads.MLDecoder, labels=["cat", "dog"], pretrained=False, image_size=64
        ... )
        >>> [cat] = explain(model, Image.new("RGB", (80, 60)), labels="cat", method="attention")
        >>> cat.label, cat.heat.shape
        ('cat', torch.Size([2, 2]))
    """
    columns = _plan(model, [method] if isinstance(method, str) else list(method), blocks)
    source = str(image) if isinstance(image, str | Path) else ""
    decoded = decode(image, name=source or "image")
    device = next(model.parameters()).device
    prepared = eval_transform(model.input_spec)(decoded)[None].to(device)
    model.eval()
    tapped = sorted({block for kind, block in columns if kind not in _FINAL_ONLY})
    look = _Look(model, prepared, labels, tapped)
    heat = {(kind, block): scale_heat(look.maps(kind, block)).cpu() for kind, block in columns}
    seen = seen_part(decoded, model.input_spec)
    return [
        Explanation(seen, model.labels[column], look.scores[column].item(), maps[row], kind, block, name, source)
        for row, column in enumerate(look.columns)
        for (kind, block), maps in heat.items()
    ]


def explain_models(
    models: Mapping[str, Classifier | Sequence[Classifier]],
    image: ImageLike,
    *,
    labels: str | Sequence[str] | None = None,
    method: str | Sequence[str] = "auto",
    blocks: Sequence[int] | Literal["all"] = (-1,),
) -> list[Explanation]:
    """Explain an image with several models, label by label.

    Models are skipped for labels they lack: a CPSD teacher has only the labels of its subset.

    Args:
        models: Classifiers by name, in the order of the columns. A name may have several, such as the teachers of a
            CPSD partition; each label is explained by those that have it.
        image: As for `explain`.
        labels: As for `explain` (default: those that the last model predicts).
        method: As for `explain`.
        blocks: As for `explain`.

    Returns:
        Explanations, grouped by label; `draw_grid` draws them.

    Raises:
        ConfigError: There is no model.
        LabelError: No model knows a label.

    Examples:
        >>> from PIL import Image
        >>> from manylabel import heads
        >>> pets, all_animals = (
        ...     Classifier.create("resnet10t", head=heads.CSRA, labels=labels, pretrained=False, image_size=64)
        ...     for labels in (["cat", "dog"], ["cat", "dog", "cow"])
        ... )
        >>> models = {"co teachers": [pets], "student": all_animals}
        >>> found = explain_models(models, Image.new("RGB", (64, 64)), labels=["cow", "cat"])
        >>> [(each.label, each.model) for each in found]
        [('cow', 'student'), ('cat', 'co teachers'), ('cat', 'student')]
    """
    if not any(isinstance(given, Classifier) or given for given in models.values()):
        raise ConfigError("no model to explain with, got an empty mapping; give at least one")
    columns = [
        (name, model)
        for name, given in models.items()
        for model in ([given] if isinstance(given, Classifier) else given)
    ]
    named = [labels] if isinstance(labels, str) else labels
    if named is None:
        named = list(dict.fromkeys(each.label for each in explain(columns[-1][1], image)))
    known_by_any = LabelSpace(list(dict.fromkeys(label for _, model in columns for label in model.labels)))
    for label in named:
        known_by_any.index(label)  # raises where no model knows it, with the nearest names
    found: dict[str, list[Explanation]] = {label: [] for label in named}
    for name, model in columns:
        known = [label for label in named if label in model.labels]
        if known:
            for each in explain(model, image, labels=known, method=method, blocks=blocks, name=name):
                found[each.label].append(each)
    return [each for rows in found.values() for each in rows]


def best_method(model: Classifier) -> str:
    """Return the method that ``"auto"`` selects for the final block; docs/how-to/explain.md has the measurements.

    Examples:
        >>> from manylabel import heads
        >>> best_method(Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat"], pretrained=False))
        'cam'
    """
    if label_weights(model.head) is not None:
        return "cam"
    return "grad_cam" if attention_of(model.head) is None else "attention"


def _plan(model: Classifier, methods: Sequence[str], blocks: Sequence[int] | Literal["all"]) -> list[tuple[str, int]]:
    """Return each method with each block that it supports, without duplicates; resolves ``"auto"``."""
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        problem = f"no method {unknown[0]!r}" if unknown else "no method given"
        raise ConfigError(f"{problem}; {list_choices(''.join(unknown[:1]), METHODS)}")
    best, final = best_method(model), model.backbone.num_stages - 1
    if "attention" in methods and attention_of(model.head) is None:
        raise ConfigError(f"{type(model.head).__name__} has no attention maps; use {best} or grad_cam")
    numbers = _absolute(model, range(final + 1) if blocks == "all" else blocks)
    columns: dict[tuple[str, int], None] = {}
    for method in methods:
        supported = [block for block in numbers if block == final or method not in _FINAL_ONLY]
        if not supported:
            raise ConfigError(f"attention and CAM support the final block only, got blocks {list(numbers)}; add -1")
        for block in supported:
            automatic = best if block == final else "grad_cam"
            columns[automatic if method == "auto" else method, block] = None
    return list(columns)


def _absolute(model: Classifier, blocks: Sequence[int]) -> list[int]:
    """Return non-negative block numbers, sorted and without duplicates."""
    count = model.backbone.num_stages
    if not blocks or not all(-count <= block < count for block in blocks):
        name = model.backbone.name
        raise ConfigError(f"{name} has the blocks 0 to {count - 1}, or -{count} to -1, got {list(blocks)}")
    return sorted({block % count for block in blocks})


class _Look:
    """Forward pass of an image through a model, and the heat maps computed from it."""

    def __init__(
        self, model: Classifier, prepared: Tensor, labels: str | Sequence[str] | None, blocks: Sequence[int]
    ) -> None:
        self.head = model.head
        self.features, self.logits, self.tapped = class_activation.tap_blocks(model, prepared, blocks)
        self.scores = model.scores(self.logits.detach())[0].float()
        self.columns = _columns(model, self.scores, labels)

    @torch.no_grad()
    def maps(self, method: str, block: int) -> Tensor:
        """Return the maps ``[L, H, W]`` of the labels."""
        if method == "attention" and (attention := attention_of(self.head)):
            return attention(self.features)[0, self.columns]
        if method == "cam":
            return class_activation.class_activation(self.head, self.features[-1], self.columns)
        gradients = None if method in WITHOUT_GRADIENTS else self._gradients[block]
        maps = class_activation.library_maps(method, self.head, self.tapped[block].map, gradients)
        return maps.expand(len(self.columns), -1, -1)

    @cached_property
    def _gradients(self) -> dict[int, Tensor]:
        return class_activation.block_gradients(self.logits, self.tapped, self.columns)


def _columns(model: Classifier, scores: Tensor, labels: str | Sequence[str] | None) -> list[int]:
    if labels is not None:
        return [model.labels.index(label) for label in ([labels] if isinstance(labels, str) else labels)]
    limits = torch.tensor(model.thresholds or [0.5] * len(scores), device=scores.device)
    order: list[int] = scores.argsort(descending=True).tolist()
    predicted = [column for column in order if scores[column] >= limits[column]]
    return predicted[:_MOST_LABELS] or order[:1]
