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
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manylabel.backbone.blueprint import as_map, layout_like, module_outputs
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError
from manylabel.heads.traits import label_weights
from manylabel.system import require

__all__ = [
    "LIBRARY",
    "WITHOUT_GRADIENTS",
    "Tapped",
    "block_gradients",
    "class_activation",
    "library_maps",
    "tap_blocks",
]

LIBRARY = {"grad_cam": "GradCAM", "grad_cam_plus_plus": "GradCAMPlusPlus", "eigen_cam": "EigenCAM"}
"""Classes of the grad-cam library by method; another one is an entry here."""

WITHOUT_GRADIENTS = ("eigen_cam",)
"""Methods that read no gradients."""


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
                f"block {block} of {body.name} cannot be explained: no module returns its map; explain -1"
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
