"""Heat maps of labels over an image, from one model or several: attention, CAM, Grad-CAM, Grad-CAM++ and EigenCAM.

Zhou et al., "Learning Deep Features for Discriminative Localization", 2016 (CAM); Selvaraju et al., "Grad-CAM", 2017;
Chattopadhay et al., "Grad-CAM++", 2018; Muhammad and Yeasin, "Eigen-CAM", 2020. All but CAM are the grad-cam library's.

A backbone converts its maps to one layout, from channels-last or tokens, depending on its family. The head reads that
copy, but later blocks read the original, so gradients are taken at the output of the block's own module.

Letters in shape comments: B images, L labels, C channels, H and W positions of a map.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from manylabel.backbone.blueprint import as_map, layout_like, module_outputs
from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, eval_transform
from manylabel.errors import ConfigError, list_choices
from manylabel.explain.explanation import Explanation, scale_heat, seen_part
from manylabel.heads.head import attention_of, label_weights
from manylabel.images import ImageLike, decode
from manylabel.page import Thumbnail
from manylabel.system import require
from manylabel.types import LabelSpace

LIBRARY = {"grad_cam": "GradCAM", "grad_cam_plus_plus": "GradCAMPlusPlus", "eigen_cam": "EigenCAM"}
"""Classes of the grad-cam library by method; another one is an entry here."""

METHODS: tuple[str, ...] = ("auto", "attention", "cam", *LIBRARY)
"""Methods of explanation; auto is the one measured to be most faithful for the model's head."""

_HEIGHT, _GAP = 112, 3  # of thumbnails, in pixels
_FINAL_ONLY = ("attention", "cam")
_MOST_LABELS = 5
_WITHOUT_GRADIENTS = ("eigen_cam",)


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
        raise ConfigError("there is no model to explain, got an empty mapping; pass at least one")
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


def heat_thumbnail(model: Classifier, dataset: ImageDataset, index: int, label: str, *, caption: str) -> Thumbnail:
    """Return the thumbnail of an image, and to its right the heat map of a label.

    Args:
        model: The classifier.
        dataset: The images.
        index: Position of the image.
        label: The label.
        caption: Text below it.

    Raises:
        ImageError: The image cannot be decoded.
    """
    image = decode(dataset.images[index], name=dataset.images.name(index))
    [found] = explain(model, image, labels=label)
    plain, heat = found.image.convert("RGB"), found.overlay()
    for side in (plain, heat):
        side.thumbnail((2 * _HEIGHT, _HEIGHT))
    both = Image.new("RGB", (2 * plain.width + _GAP, plain.height), "white")
    both.paste(plain, (0, 0))
    both.paste(heat, (plain.width + _GAP, 0))
    return Thumbnail.of(both, caption, size=both.size)


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
        raise ConfigError(f"{name} has blocks 0 to {count - 1}, or -{count} to -1, got {list(blocks)}")
    return sorted({block % count for block in blocks})


class _Look:
    """Forward pass of an image through a model, and the heat maps computed from it."""

    def __init__(
        self, model: Classifier, prepared: Tensor, labels: str | Sequence[str] | None, blocks: Sequence[int]
    ) -> None:
        self.head = model.head
        self.features, self.logits, self.tapped = tap_blocks(model, prepared, blocks)
        self.scores = model.scores(self.logits.detach())[0].float()
        self.columns = _columns(model, self.scores, labels)

    @torch.no_grad()
    def maps(self, method: str, block: int) -> Tensor:
        """Return the maps ``[L, H, W]`` of the labels."""
        if method == "attention" and (attention := attention_of(self.head)):
            return attention(self.features)[0, self.columns]
        if method == "cam":
            return class_activation(self.head, self.features[-1], self.columns)
        gradients = None if method in _WITHOUT_GRADIENTS else self._gradients[block]
        maps = library_maps(method, self.head, self.tapped[block].map, gradients)
        return maps.expand(len(self.columns), -1, -1)

    @cached_property
    def _gradients(self) -> dict[int, Tensor]:
        return block_gradients(self.logits, self.tapped, self.columns)


def _columns(model: Classifier, scores: Tensor, labels: str | Sequence[str] | None) -> list[int]:
    if labels is not None:
        return [model.labels.index(label) for label in ([labels] if isinstance(labels, str) else labels)]
    limits = torch.tensor(model.thresholds or [0.5] * len(scores), device=scores.device)
    order: list[int] = scores.argsort(descending=True).tolist()
    predicted = [column for column in order if scores[column] >= limits[column]]
    return predicted[:_MOST_LABELS] or order[:1]


def class_activation(head: nn.Module, final: Tensor, labels: Sequence[int]) -> Tensor:
    """Return CAM: the contribution of each position of the final map ``[1, C, H, W]`` to each logit, ``[L, H, W]``.

    Raises:
        ConfigError: The head is not linear in the map.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> class_activation(LinearClassifier(8, 3), torch.rand(1, 8, 7, 7), [0, 2]).shape
        torch.Size([2, 7, 7])
    """
    weights = label_weights(head)
    if weights is None:
        raise ConfigError(
            f"CAM needs a head that is linear in the final map, got {type(head).__name__}; use attention or grad_cam"
        )
    return torch.einsum("lc,chw->lhw", weights[list(labels)], final[0]).clamp(min=0)


def library_maps(method: str, head: nn.Module, activation: Tensor, gradients: Tensor | None) -> Tensor:
    """Compute heat maps with the grad-cam library, from a map and the gradients at it where the method reads them.

    Args:
        method: Name in `LIBRARY`.
        head: The head, from which the library takes the device.
        activation: ``[1, C, H, W]``.
        gradients: ``[L, C, H, W]``, or None.

    Returns:
        ``[L, H, W]``, not negative; ``[1, H, W]`` without gradients, which is the same for all labels.

    Raises:
        MissingExtraError: The library is not installed.

    Examples:
        >>> from manylabel.heads import CSRA
        >>> library_maps("grad_cam", CSRA(8, 3), torch.rand(1, 8, 2, 2), torch.rand(3, 8, 2, 2)).shape
        torch.Size([3, 2, 2])
    """
    library: Any = require("pytorch_grad_cam", extra="explain")
    if gradients is not None:
        activation = activation.expand_as(gradients)
    arrays = [None if each is None else each.float().cpu().numpy() for each in (activation, gradients)]
    with getattr(library, LIBRARY[method])(head, []) as cam:
        maps = cam.get_cam_image(None, None, None, *arrays, False)
    return torch.from_numpy(np.maximum(np.asarray(maps, dtype=np.float32), 0))


@dataclass(frozen=True, eq=False)
class Tapped:
    """Output of a block in the layout of its backbone, and its conversion to a map.

    Args:
        output: Output of the block; the logits depend on it.
        to_map: Converts it, or a gradient of its shape, to ``[B, C, H, W]``.
    """

    output: Tensor
    to_map: Callable[[Tensor], Tensor]

    @property
    def map(self) -> Tensor:
        """The output as a map ``[B, C, H, W]``."""
        return self.to_map(self.output.detach())


def tap_blocks(
    model: Classifier, images: Tensor, blocks: Sequence[int]
) -> tuple[list[Tensor], Tensor, dict[int, Tapped]]:
    """Compute features and logits, and record the outputs of some blocks.

    The backbone is only differentiated if a block before the final one is recorded.

    Args:
        model: The classifier, in eval mode.
        images: ``[B, 3, H, W]``.
        blocks: Block numbers from the front, in ascending order; none for no gradients.

    Returns:
        The maps that the head reads, the logits ``[B, L]``, and the output of each block.

    Raises:
        ConfigError: A block's output cannot be found.

    Examples:
        >>> from manylabel import heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
        >>> _, _, tapped = tap_blocks(model.eval(), torch.zeros(1, 3, 64, 64), [0, 3])
        >>> [tuple(each.map.shape) for each in tapped.values()]
        [(1, 64, 16, 16), (1, 512, 2, 2)]
    """
    body = copy.copy(model.backbone)  # shares the weights; only the choice of stages is its own
    body.select(sorted({*blocks, *model.backbone.stages}))
    earlier = [block for block in blocks if block < body.num_stages - 1]
    with torch.set_grad_enabled(bool(earlier)):
        paths = [body.stage_modules[block] for block in earlier]
        given = images.requires_grad_() if earlier else images
        outputs, stages = module_outputs(body.model, paths, lambda: body(given))
    maps = dict(zip(body.stages, stages, strict=True))
    if blocks and not earlier:
        stages[-1].requires_grad_()
    features = [maps[stage] for stage in model.backbone.stages]
    with torch.set_grad_enabled(bool(blocks)):
        logits = model.classify(features)
    tapped = {block: Tapped(maps[block], nn.Identity()) for block in blocks}
    for block, output in zip(earlier, outputs, strict=True):
        tapped[block] = Tapped(output, partial(as_map, layout=layout_like(output, maps[block]), like=maps[block]))
        if not torch.equal(tapped[block].map, maps[block]):
            raise ConfigError(
                f"block {block} of {body.name} cannot be explained: no module returns its map; use block -1"
            )
    return features, logits, tapped


@torch.enable_grad()
def block_gradients(logits: Tensor, tapped: Mapping[int, Tapped], labels: Sequence[int]) -> dict[int, Tensor]:
    """Return the gradient of each label's logit at each block, of one image, ``[L, C, H, W]`` by block.

    Labels share the forward pass; each has its own backward pass, which stops at the first block: at the head, if only
    the final block is asked for.

    Args:
        logits: ``[1, L]``.
        tapped: Block outputs recorded by `tap_blocks`.
        labels: Columns of the logits.
    """
    outputs = [each.output for each in tapped.values()]
    rows = [torch.autograd.grad(logits[0, label], outputs, retain_graph=True) for label in labels]
    return {
        block: torch.cat([each.to_map(gradient) for gradient in gradients])
        for (block, each), gradients in zip(tapped.items(), zip(*rows, strict=True), strict=True)
    }
