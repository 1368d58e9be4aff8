"""Class activation maps: CAM, Grad-CAM, Grad-CAM++ and EigenCAM, of the final block or any other.

Zhou et al., "Learning Deep Features for Discriminative Localization", 2016 (CAM); Selvaraju et al., "Grad-CAM", 2017;
Chattopadhay et al., "Grad-CAM++", 2018; Muhammad and Yeasin, "Eigen-CAM", 2020. All but CAM are the grad-cam library's.

A backbone converts its maps to one layout, from channels-last or tokens, depending on its family. The head reads that
copy, but later blocks read the original, so gradients are taken at the output of the block's own module.

Letters in shape comments: B images, L labels, C channels, H and W positions of a map.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from manylabel.backbone import Backbone
from manylabel.backbone.blueprint import as_map, layout_like, module_outputs
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError
from manylabel.heads.traits import label_weights
from manylabel.system import require

__all__ = [
    "LIBRARY",
    "Tapped",
    "absolute_blocks",
    "block_gradients",
    "class_activation",
    "head_gradients",
    "library_maps",
    "tap_blocks",
]


class LibraryMethod(NamedTuple):
    """A method of the grad-cam library: its class and its need for gradients."""

    class_name: str
    reads_gradients: bool = True


LIBRARY: dict[str, LibraryMethod] = {
    "grad_cam": LibraryMethod("GradCAM"),
    "grad_cam_plus_plus": LibraryMethod("GradCAMPlusPlus"),
    "eigen_cam": LibraryMethod("EigenCAM", reads_gradients=False),
}
"""The methods by name; another one of the library is a line here."""

_LABELS_AT_ONCE = 32  # copies of a map that go through the head together


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


def head_gradients(head: nn.Module, features: Sequence[Tensor], labels: Sequence[int]) -> Tensor:
    """Return the gradient of each label's logit at the final map of one image, ``[L, C, H, W]``.

    The backbone is not run: one copy of its map per label goes through the head in a batch.

    Args:
        head: In eval mode.
        features: One map ``[1, C, H, W]`` per stage.
        labels: Columns of the logits.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> head = LinearClassifier(8, 3)
        >>> gradients = head_gradients(head, [torch.rand(1, 8, 2, 2)], [1, 2])
        >>> torch.allclose(gradients[:, :, 0, 0], head.linear.weight[1:] / 4)
        True
    """
    weights = {name: tensor.detach() for name, tensor in head.state_dict(keep_vars=True).items()}
    gradients = []
    for start in range(0, len(labels), _LABELS_AT_ONCE):
        columns = torch.as_tensor(list(labels[start : start + _LABELS_AT_ONCE]), device=features[-1].device)
        copies = [stage.detach().expand(len(columns), -1, -1, -1) for stage in features]
        final = copies[-1].clone().requires_grad_()
        with torch.enable_grad():
            logits: Tensor = functional_call(head, weights, ([*copies[:-1], final],))
            chosen = logits.gather(1, columns[:, None]).sum()
        gradients.append(torch.autograd.grad(chosen, final)[0])
    return torch.cat(gradients)


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
    with getattr(library, LIBRARY[method].class_name)(head, []) as cam:
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


def absolute_blocks(backbone: Backbone, blocks: Sequence[int]) -> tuple[int, ...]:
    """Return non-negative block numbers, sorted and without duplicates.

    Raises:
        ConfigError: There is no such block.

    Examples:
        >>> absolute_blocks(Backbone("resnet10t", pretrained=False), [-1, 0])
        (0, 3)
    """
    count = backbone.num_stages
    wrong = [block for block in blocks if not -count <= block < count]
    if wrong or not blocks:
        raise ConfigError(f"{backbone.name} has the blocks 0 to {count - 1}, or -{count} to -1, got {list(blocks)}")
    return tuple(sorted({block % count for block in blocks}))


def tap_blocks(
    model: Classifier, images: Tensor, blocks: Sequence[int]
) -> tuple[list[Tensor], Tensor, dict[int, Tapped]]:
    """Compute features and logits, and record the outputs of some blocks.

    Args:
        model: The classifier, in eval mode.
        images: ``[B, 3, H, W]``.
        blocks: Block numbers from the front, in ascending order.

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
    with torch.enable_grad():
        paths = [body.stage_modules[block] for block in earlier]
        outputs, stages = module_outputs(body.model, paths, lambda: body(images.requires_grad_()))
        maps = dict(zip(body.stages, stages, strict=True))
        features = [maps[stage] for stage in model.backbone.stages]
        logits = model.classify(features)
    tapped = {block: Tapped(maps[block], nn.Identity()) for block in blocks}
    for block, output in zip(earlier, outputs, strict=True):
        tapped[block] = Tapped(output, partial(as_map, layout=layout_like(output, maps[block]), like=maps[block]))
        if not torch.equal(tapped[block].map, maps[block]):
            raise ConfigError(
                f"block {block} of {body.name} cannot be explained: no module returns its map; explain -1"
            )
    return features, logits, tapped


def block_gradients(logits: Tensor, tapped: Mapping[int, Tapped], labels: Sequence[int]) -> dict[int, Tensor]:
    """Return the gradient of each label's logit at each block, of one image, ``[L, C, H, W]`` by block.

    Labels share the forward pass; each has its own backward pass, which stops at the first block.

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
