"""Maps of any block of any backbone, still tied to the logits, so that gradients reach them.

A backbone hands out its maps in one layout, made of whatever its family computes with: channels last, tokens. Gradients
do not flow through such a copy. So the module whose output the map was made of is looked for, by its values: one way
for every family, with no list of layer names.

Letters in shape comments: B pictures, C channels, H and W cells of a map, L labels, N tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.backbone.blueprint import as_map
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError

__all__ = ["Tapped", "absolute_blocks", "block_gradients", "tap_blocks"]


@dataclass(frozen=True, eq=False)
class Tapped:
    """The output of a block, as its backbone computes it, and how to see it as a map.

    Args:
        output: What the block gives; the logits depend on it.
        to_map: Turns it, or a gradient of its shape, into ``[B, C, H, W]``.
    """

    output: Tensor
    to_map: Callable[[Tensor], Tensor]

    @property
    def map(self) -> Tensor:
        """The output as a map ``[B, C, H, W]``."""
        return self.to_map(self.output.detach())


def absolute_blocks(backbone: Backbone, blocks: Sequence[int]) -> tuple[int, ...]:
    """Number blocks from the front, each once, the first first.

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
    """Compute features and logits, and keep what some blocks gave on the way.

    Args:
        model: The classifier, in eval mode.
        images: ``[B, 3, H, W]``.
        blocks: Numbers of blocks from the front, rising.

    Returns:
        The maps that the head reads, logits ``[B, L]``, and by block its output.

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
    outputs: list[Tensor] = []
    handles = [module.register_forward_hook(_keeper(outputs)) for module in body.model.modules()]
    try:
        with torch.enable_grad():
            maps = dict(zip(body.stages, body(images.requires_grad_()), strict=True))
    finally:
        for handle in handles:
            handle.remove()
    features = [maps[stage] for stage in model.backbone.stages]
    with torch.enable_grad():
        logits = model.classify(features)
    final = body.num_stages - 1
    tapped = {
        block: Tapped(maps[block], nn.Identity()) if block == final else _find(outputs, maps[block], block, body.name)
        for block in blocks
    }
    return features, logits, tapped


def block_gradients(logits: Tensor, tapped: Mapping[int, Tapped], labels: Sequence[int]) -> dict[int, Tensor]:
    """Return the gradient of each label's logit at each block, of one picture, ``[L, C, H, W]`` by block.

    The pass forward is shared by all labels; each has its own pass backward, and only as far as the first block.

    Args:
        logits: ``[1, L]``.
        tapped: What `tap_blocks` kept.
        labels: Columns of the logits.
    """
    outputs = [each.output for each in tapped.values()]
    rows = [torch.autograd.grad(logits[0, label], outputs, retain_graph=True) for label in labels]
    return {
        block: torch.cat([each.to_map(gradient) for gradient in gradients])
        for (block, each), gradients in zip(tapped.items(), zip(*rows, strict=True), strict=True)
    }


def _keeper(outputs: list[Tensor]) -> Callable[[nn.Module, object, object], None]:
    def keep(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim in (3, 4):
            outputs.append(output)

    return keep


def _find(outputs: Sequence[Tensor], wanted: Tensor, block: int, name: str) -> Tapped:
    """Find the output that a map was made of: the last one that is the map, in whatever layout."""
    _, channels, height, width = wanted.shape
    layouts: dict[str, Callable[[Tensor], Tensor]] = {
        "NCHW": lambda tensor: tensor,
        "NHWC": lambda tensor: tensor.permute(0, 3, 1, 2),
        "tokens": lambda tensor: as_map(tensor, "tokens", like=wanted),
    }
    for output in reversed(outputs):
        for layout, to_map in layouts.items():
            if layout == "tokens":
                fits = output.ndim == 3 and output.shape[2] == channels and output.shape[1] >= height * width
            else:
                fits = output.ndim == 4 and tuple(to_map(output).shape) == tuple(wanted.shape)
            if fits and output.requires_grad and torch.equal(to_map(output), wanted):
                return Tapped(output, to_map)
    raise ConfigError(f"block {block} of {name} cannot be explained: no module gives its map; explain block -1 instead")
