"""From a decoded picture to the bytes that an exported model takes; the same pixels as `eval_transform`, without torch.

torchvision's resize and Pillow's round differently: a pixel may be a level or two of 255 apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.decode import decode, picture_size, to_rgb
from manylabel.errors import ImageError
from manylabel.types import InputSpec

__all__ = ["MOST_PIXELS", "Picture", "Pixels", "prepare", "refuse_large", "to_pixels"]

Picture: TypeAlias = str | Path | bytes | Image.Image | NDArray[np.uint8]
Pixels: TypeAlias = NDArray[np.uint8]
"""RGB bytes: ``[height, width, 3]`` of one picture, ``[batch, height, width, 3]`` of several."""

MOST_PIXELS = 50_000_000
"""What servers decode at most, unless told otherwise."""

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_LONGEST = 8  # as `manylabel.data.transforms.Cover`: a longer strip loses its ends first


def to_pixels(picture: Picture, spec: InputSpec, *, name: str | None = None) -> Pixels:
    """Decode and resize any kind of picture.

    Args:
        picture: A path, encoded bytes, a PIL image, or an array ``[height, width, 3]`` of bytes.
        spec: How the model wants its pictures.
        name: What to call the picture in an error.

    Returns:
        Bytes ``[height, width, 3]`` of the size that the model wants.

    Raises:
        ImageError: The picture cannot be read.

    Examples:
        >>> to_pixels(Image.new("L", (640, 480), 255), InputSpec(size=(2, 4))).shape
        (2, 4, 3)
    """
    if isinstance(picture, Image.Image):
        return prepare(to_rgb(picture, name=name or "image"), spec)
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
            got = f"{picture.dtype} {list(picture.shape)}"
            raise ImageError(name or "array", f"an array must be bytes (uint8) of shape [height, width, 3], got {got}")
        return prepare(Image.fromarray(picture), spec)
    source = picture if isinstance(picture, bytes) else Path(picture)
    return prepare(decode(source, name=name, at_least=_resized(spec)), spec)


def refuse_large(content: bytes, *, name: str, max_pixels: int = MOST_PIXELS) -> None:
    """Look at the size of an encoded picture before it is decoded.

    Raises:
        ImageError: It has more pixels than are allowed, or is no picture.
    """
    height, width = picture_size(content, name=name)
    if height * width > max_pixels:
        raise ImageError(name, f"it has {height * width:,} pixels, {max_pixels:,} are allowed; make it smaller")


def prepare(image: Image.Image, spec: InputSpec) -> Pixels:
    """Resize an RGB picture as a model wants it.

    Args:
        image: The picture, of any size.
        spec: How the model wants its pictures.

    Returns:
        Bytes ``[height, width, 3]``.

    Examples:
        >>> prepare(Image.new("RGB", (640, 480), (1, 2, 3)), InputSpec(size=(8, 8), resize="crop"))[0, 0].tolist()
        [1, 2, 3]
    """
    height, width = spec.size
    if spec.resize == "squash":
        return np.asarray(image.resize((width, height), _FILTERS[spec.interpolation]))
    return np.asarray(_centre(_cover(image, _resized(spec), spec.interpolation), height, width))


def _resized(spec: InputSpec) -> tuple[int, int]:
    """Return the size that a picture is resized to, before a crop."""
    share = spec.crop_fraction if spec.resize == "crop" else 1.0
    return int(spec.size[0] / share), int(spec.size[1] / share)


def _cover(image: Image.Image, size: tuple[int, int], interpolation: str) -> Image.Image:
    """Resize to the smallest picture of the same proportions that covers a size."""
    width, height = image.size
    if max(height, width) > _LONGEST * min(height, width):
        height, width = min(height, _LONGEST * width), min(width, _LONGEST * height)
        image = _centre(image, height, width)
    rows, columns = size
    is_wider = rows * width >= columns * height
    wanted = (rows * width // height, rows) if is_wider else (columns, columns * height // width)
    return image.resize(wanted, _FILTERS[interpolation])


def _centre(image: Image.Image, height: int, width: int) -> Image.Image:
    """Cut out the centre, rounded as torchvision does."""
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
