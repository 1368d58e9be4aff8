"""Image transforms for training and evaluation.

Letters in shape comments: H and W pixels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode, v2

from manylabel.errors import ConfigError
from manylabel.images import resize, resized_size
from manylabel.types import InputSpec


class ImageTransform:
    """Composition of steps that turn an image into a normalised tensor.

    All randomness comes from torch's CPU generator, so `torch.manual_seed` makes it reproducible.

    Args:
        steps: Steps, in order.
        at_least: Height and width that `decode` must preserve when it decodes at reduced scale.

    Examples:
        >>> transform = eval_transform(InputSpec(size=(2, 3), interpolation="bilinear"))
        >>> transform.at_least, transform(Image.new("RGB", (640, 480))).shape
        ((2, 3), torch.Size([3, 2, 3]))
        >>> transform
        ImageTransform(
            Resize(size=(2, 3), interpolation=bilinear, keep_proportions=False),
            PILToTensor(),
            ToDtype(scale=True),
            Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], inplace=True),
            at_least=(2, 3),
        )
    """

    def __init__(self, steps: Sequence[Callable[[Any], Any]], *, at_least: tuple[int, int]) -> None:
        self.steps = tuple(steps)
        self.at_least = at_least

    def __call__(self, image: Image.Image) -> Tensor:
        """Transform an RGB image."""
        result: Any = image
        for step in self.steps:
            result = step(result)
        return torch.as_tensor(result)

    def __repr__(self) -> str:
        steps = "".join(f"    {step},\n" for step in self.steps)
        return f"{type(self).__name__}(\n{steps}    at_least={self.at_least},\n)"


def eval_transform(spec: InputSpec) -> ImageTransform:
    """Return the transform for validation and testing: the pixels of `manylabel.images.prepare`, normalised.

    Args:
        spec: Input size and normalisation of the model.

    Returns:
        A transform from an image to ``[3, H, W]``.

    Examples:
        >>> eval_transform(InputSpec(size=(224, 224), resize="crop", crop_fraction=0.875)).at_least
        (256, 256)
    """
    cut = [v2.CenterCrop(spec.size)] if spec.resize == "crop" else []
    size = resized_size(spec)
    return ImageTransform([_resize(spec, size), v2.PILToTensor(), *cut, *_normalise(spec)], at_least=size)


def train_transform(
    spec: InputSpec,
    *,
    crop: float = 1.0,
    flip: bool = True,
    cutout: float = 0.5,
    randaugment: bool = True,
    num_operations: int = 2,
    magnitude: int = 9,
) -> ImageTransform:
    """Return the training recipe of the papers: square resize, flip, Cutout, RandAugment, normalise.

    Cutout comes before RandAugment, whose strength is torchvision's default (2 operations, magnitude 9). The flip is
    ours. With ``spec.resize == "crop"``, the crop position is random instead of central.

    Args:
        spec: Input size and normalisation of the model.
        crop: Smallest area of a random resized crop, as a fraction of the image; 1 disables cropping.
        flip: Whether to flip horizontally with probability 0.5.
        cutout: Side of the Cutout hole as a fraction of the image's side; 0 disables Cutout.
        randaugment: Whether to apply RandAugment (https://arxiv.org/abs/1909.13719).
        num_operations: Number of RandAugment operations per image (N in the paper).
        magnitude: RandAugment magnitude, 0 to 30 (M in the paper).

    Returns:
        A transform from an image to ``[3, H, W]``.

    Examples:
        >>> transform = train_transform(InputSpec(size=(64, 64)))
        >>> image = Image.new("RGB", (640, 480))
        >>> _ = torch.manual_seed(0)
        >>> first = transform(image)
        >>> _ = torch.manual_seed(0)
        >>> torch.equal(first, transform(image))
        True
    """
    if not 0 < crop <= 1:
        raise ConfigError(f"crop must be a fraction of the image's area, above 0 and at most 1, got {crop}")
    kept = crop**0.5 if crop < 1 else spec.crop_fraction if spec.resize == "crop" else 1.0
    size = (int(spec.size[0] / kept), int(spec.size[1] / kept))  # rounded down as in timm
    steps: list[nn.Module]
    if crop < 1:
        how = InterpolationMode(spec.interpolation)
        cut = v2.RandomResizedCrop(spec.size, (crop, 1.0), (0.75, 1.333), interpolation=how, antialias=True)
        steps = [v2.PILToTensor(), cut]
    else:
        steps = [_resize(spec, size), v2.PILToTensor()]
        if spec.resize == "crop":
            steps.append(v2.RandomCrop(spec.size))
    if flip:
        steps.append(v2.RandomHorizontalFlip())
    if cutout:
        steps.append(Cutout(cutout))
    if randaugment:
        # three times faster on PIL images than on tensors
        augment = v2.RandAugment(num_ops=num_operations, magnitude=magnitude)
        steps += [v2.ToPILImage(), augment, v2.PILToTensor()]
    return ImageTransform([*steps, *_normalise(spec)], at_least=size)


class Resize(nn.Module):
    """`manylabel.images.resize` as a step of a transform.

    Args:
        size: Height and width.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        keep_proportions: Whether to preserve the aspect ratio and cover `size`, instead of squashing the image to it.

    Examples:
        >>> Resize((256, 256), keep_proportions=True)(Image.new("RGB", (640, 480))).size
        (341, 256)
    """

    def __init__(
        self, size: tuple[int, int], *, interpolation: str = "bicubic", keep_proportions: bool = False
    ) -> None:
        super().__init__()
        self.size = size
        self.interpolation = interpolation
        self.keep_proportions = keep_proportions

    def forward(self, image: Image.Image) -> Image.Image:
        """Resize an RGB image."""
        return resize(image, self.size, interpolation=self.interpolation, keep_proportions=self.keep_proportions)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"size={self.size}, interpolation={self.interpolation}, keep_proportions={self.keep_proportions}"


class Cutout(nn.Module):
    """Cutout, as in https://arxiv.org/abs/1708.04552 and the code of ASL and ML-Decoder.

    The hole's centre is anywhere in the image, so part of the hole may lie outside. As in that code but not in the
    paper, it is filled with one random colour.

    Args:
        fraction: Side of the hole as a fraction of the image's side.

    Examples:
        >>> image = torch.zeros(3, 100, 100, dtype=torch.uint8)
        >>> holes = torch.stack([Cutout(0.5)(image) for _ in range(20)])
        >>> 25 * 25 <= (holes > 0).any(1).sum((1, 2)).max() <= 50 * 50
        tensor(True)
    """

    def __init__(self, fraction: float = 0.5) -> None:
        super().__init__()
        if not 0 < fraction <= 1:
            raise ConfigError(f"cutout must be a fraction of the side in 0..1, got {fraction}")
        self.fraction = fraction

    def forward(self, image: Tensor) -> Tensor:
        """Cut a hole into a uint8 image ``[3, H, W]``."""
        rows, columns = (self._span(side) for side in image.shape[-2:])
        holed = image.clone()
        holed[:, rows, columns] = torch.randint(256, (3, 1, 1), dtype=torch.uint8)
        return holed

    def _span(self, side: int) -> slice:
        hole = round(self.fraction * side)
        start = int(torch.randint(side, ())) - hole // 2
        return slice(max(start, 0), start + hole)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"fraction={self.fraction}"


def _resize(spec: InputSpec, size: tuple[int, int]) -> Resize:
    return Resize(size, interpolation=spec.interpolation, keep_proportions=spec.resize == "crop")


def _normalise(spec: InputSpec) -> list[nn.Module]:
    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(spec.mean, spec.std, inplace=True)]
