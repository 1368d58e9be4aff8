"""Faithfulness of heat maps: deletion and insertion curves, and the pointing game.

Petsiuk et al., "RISE", 2018 (deletion and insertion); Zhang et al., "Top-down Neural Attention by Excitation Backprop",
2016 (the pointing game). Deleted pixels are blurred, not blackened: models may see black patches as objects.

Letters in shape comments: S steps, H and W pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from manylabel.classifier import Classifier
from manylabel.data import eval_transform
from manylabel.errors import ConfigError
from manylabel.explain.explanation import Explanation

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, as fractions of the image's width and height."""


@dataclass(frozen=True)
class Faithfulness:
    """Scores of a label as the hottest positions are deleted and inserted.

    Args:
        deletion: Scores with 0 to 100 % of the image blurred, hottest first; a faster drop is better.
        insertion: Scores with 0 to 100 % of the image sharp, hottest first; a faster rise is better.

    Examples:
        >>> Faithfulness((1.0, 0.0, 0.0), (0.0, 1.0, 1.0)).deletion_area
        0.25
    """

    deletion: tuple[float, ...]
    insertion: tuple[float, ...]

    @property
    def deletion_area(self) -> float:
        """Area under the deletion curve; lower is better."""
        return _area(self.deletion)

    @property
    def insertion_area(self) -> float:
        """Area under the insertion curve; higher is better."""
        return _area(self.insertion)


@torch.no_grad()
def measure_faithfulness(model: Classifier, explanation: Explanation, *, steps: int = 10) -> Faithfulness:
    """Measure the score while an image is blurred, and sharpened, step by step in the order of a heat map.

    Args:
        model: The classifier, in eval mode.
        explanation: Its explanation of a label.
        steps: Number of steps; each costs two forward passes.

    Raises:
        ConfigError: There are fewer than two steps.

    Examples:
        >>> from PIL import Image
        >>> from manylabel import heads
        >>> from manylabel.explain import explain
        >>> model = Classifier.create(
        ...     "resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False, image_size=64
        ... )
        >>> [cat] = explain(model, Image.new("RGB", (64, 64)), labels="cat")
        >>> len(measure_faithfulness(model, cat, steps=4).deletion)
        5
    """
    if steps < 2:
        raise ConfigError(f"a curve needs at least 2 steps, got {steps}")
    column = model.labels.index(explanation.label)
    device = next(model.parameters()).device
    clear = eval_transform(model.input_spec.uncropped())(explanation.image).to(device)  # [3, H, W], cropped already
    height, width = clear.shape[1:]
    size = max(height, width) // 8 * 2 + 1
    blurred = functional.gaussian_blur(clear, [size, size], [size / 4, size / 4])
    heat = torch.from_numpy(explanation.enlarged(width, height)).to(device)
    hot = _hottest_first(heat, steps)[:, None]  # [S - 1, 1, H, W]
    between = torch.cat([torch.where(hot, blurred, clear), torch.where(hot, clear, blurred)])
    logits = model(torch.cat([clear[None], blurred[None], between]))
    first, last, *curve = model.scores(logits)[:, column].tolist()
    return Faithfulness((first, *curve[: steps - 1], last), (last, *curve[steps - 1 :], first))


def points_at(explanation: Explanation, boxes: Sequence[Box]) -> bool:
    """Return true if the hottest position lies in a box of the label: one round of the pointing game.

    Args:
        explanation: Explanation of a label.
        boxes: Boxes of the label's objects.

    Examples:
        >>> from PIL import Image
        >>> explanation = Explanation(Image.new("RGB", (60, 40)), "cat", 0.9, torch.eye(2), "cam")
        >>> points_at(explanation, [(0, 0, 0.5, 0.5)]), points_at(explanation, [(0.6, 0, 1, 1)])
        (True, False)
    """
    x, y = explanation.hottest()
    return any(left <= x <= right and top <= y <= bottom for left, top, right, bottom in boxes)


def _hottest_first(heat: Tensor, steps: int) -> Tensor:
    """Return masks ``[S - 1, H, W]`` of the hottest pixels: 1 / S of them, 2 / S, and so on."""
    order = heat.flatten().argsort(descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    limits = torch.arange(1, steps, device=order.device) * len(order) / steps
    return (ranks < limits[:, None]).reshape(-1, *heat.shape)


def _area(curve: Sequence[float]) -> float:
    return (sum(curve) - (curve[0] + curve[-1]) / 2) / (len(curve) - 1)
