"""The one result of every way to explain: a heat map over a picture, for a label.

Letters in shape comments: H and W cells of a map.
"""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from manylabel.types import InputSpec

__all__ = ["COLOURS", "Explanation", "scale_heat", "seen_part"]

COLOURS = "inferno"
"""Matplotlib's name of the colours of heat: equal steps look equal, to colour-blind people and in print, too."""

_FAINTEST, _STRONGEST = 0.12, 0.75  # how much of the picture the coldest and the hottest place hide


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where a model looks for a label.

    Args:
        picture: The picture, as far as the model sees it.
        label: The label's name.
        score: How sure the model is that the label is there, a probability.
        heat: ``[H, W]``, 0 to 1, at the size of the map that it was read from.
        method: How it was found; one of `METHODS`.
        block: The stage of the backbone that it was read from, counted from 0.
        model: What to call the model where several are shown.
        source: What to call the picture where several are shown.

    Examples:
        >>> import torch
        >>> explanation = Explanation(Image.new("RGB", (60, 40)), "cat", 0.9, torch.eye(2), "cam")
        >>> explanation.overlay().size, explanation.hottest()
        ((60, 40), (0.25, 0.25))
    """

    picture: Image.Image
    label: str
    score: float
    heat: Tensor
    method: str
    block: int = -1
    model: str = ""
    source: str = ""

    def enlarged(self, width: int, height: int) -> NDArray[np.float32]:
        """Return the heat at a size in pixels, ``[height, width]``."""
        enlarged = F.interpolate(self.heat[None, None], (height, width), mode="bicubic", align_corners=False)
        return np.asarray(enlarged[0, 0].clamp(0, 1).numpy(), dtype=np.float32)

    def overlay(self, *, longest: int | None = None) -> Image.Image:
        """Return the picture with the heat over it; the colder a place, the more of the picture is seen.

        Args:
            longest: Makes the longer side this many pixels at most; as large as the picture when left out.
        """
        picture = self.picture.convert("RGB")
        if longest is not None:
            picture.thumbnail((longest, longest))
        heat = self.enlarged(*picture.size)[..., None]
        colour = np.asarray(picture, dtype=np.float32) / 255
        grey = colour.mean(axis=2, keepdims=True)
        quiet = 0.5 * colour + 0.5 * grey  # less colour, so that the colours of heat stand out
        share = _FAINTEST + (_STRONGEST - _FAINTEST) * heat
        mixed = (1 - share) * quiet + share * mpl.colormaps[COLOURS](heat[..., 0])[..., :3]
        return Image.fromarray(np.round(255 * mixed).astype(np.uint8))

    def hottest(self) -> tuple[float, float]:
        """Return the middle of the hottest cell as shares of the picture's width and height, (x, y)."""
        height, width = self.heat.shape
        row, column = divmod(int(self.heat.argmax()), width)
        return (column + 0.5) / width, (row + 0.5) / height


def scale_heat(maps: Tensor) -> Tensor:
    """Scale maps ``[..., H, W]`` so that each runs from 0 to 1; one without any difference is all 0.

    Examples:
        >>> import torch
        >>> scale_heat(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
        tensor([[0.0000, 0.2500],
                [0.5000, 1.0000]])
    """
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    span = high - low
    return ((maps - low) / span.clamp(min=1e-12)).where(span > 0, 0)


def seen_part(picture: Image.Image, spec: InputSpec) -> Image.Image:
    """Return the part of a picture that a model sees: all of it, or the centre where the model crops.

    Examples:
        >>> seen_part(Image.new("RGB", (200, 100)), InputSpec(size=(50, 50), resize="crop", crop_fraction=0.5)).size
        (50, 50)
        >>> seen_part(Image.new("RGB", (200, 100)), InputSpec(size=(50, 50))).size
        (200, 100)
    """
    if spec.resize != "crop":
        return picture
    height, width = spec.size
    scale = spec.crop_fraction * min(picture.width / width, picture.height / height)
    seen = round(scale * width), round(scale * height)
    left, top = (picture.width - seen[0]) // 2, (picture.height - seen[1]) // 2
    return picture.crop((left, top, left + seen[0], top + seen[1]))
