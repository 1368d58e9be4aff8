"""Image decoding and preprocessing without torch: decode, apply the EXIF orientation, resize.

Training, evaluation, prediction and serving all use `prepare` and therefore see the same pixels. An unreadable image
raises an `ImageError` with the reason in words.

Letters in shape comments: H and W pixels.
"""

import re
import stat
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import Base as ExifTag

from manylabel.errors import ImageError
from manylabel.types import InputSpec

if TYPE_CHECKING:  # only to recognise tensors
    from torch import Tensor

ImageLike: TypeAlias = "str | Path | bytes | Image.Image | NDArray[np.uint8] | Tensor"
"""A path, encoded bytes, a PIL image, an array ``[H, W, 3]`` of bytes, or a tensor ``[3, H, W]``, bytes or 0..1."""

Pixels: TypeAlias = NDArray[np.uint8]
"""RGB bytes: ``[H, W, 3]`` of one image, ``[B, H, W, 3]`` of several."""

FORMATS: Final = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM")
"""Supported formats. Pillow's others start external programs (EPS) or are not meant for photos."""

IMAGE_ENDINGS: Final = frozenset(
    (".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
"""File name extensions of images in folders; a file given by name may have any extension."""

MAX_PIXELS: Final = 178_956_970
"""Larger images are refused before decoding: half a gigabyte of RGB, and Pillow's own hard limit."""

_FILTERS: Final = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_LONGEST: Final = 8  # aspect ratio; resized in full, a strip of 1 x 50,000 pixels would take gigabytes

_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # EXIF orientation -> transposition that makes the image upright; 5 and above swap height and width

_IGNORE_PILLOW: Final = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


def prepare(image: ImageLike, spec: InputSpec, *, name: str | None = None) -> Pixels:
    """Decode an image of any kind and resize it for a model.

    Args:
        image: The image.
        spec: Input size and resizing of the model.
        name: Name of the image in errors (default: its path).

    Returns:
        Bytes ``[H, W, 3]`` of the model's input size.

    Raises:
        ImageError: The image cannot be read.

    Examples:
        >>> prepare(Image.new("L", (640, 480), 255), InputSpec(size=(2, 4))).shape
        (2, 4, 3)
    """
    size = resized_size(spec)
    image = decode(image, name=name, at_least=size)
    resized = resize(image, size, interpolation=spec.interpolation, keep_proportions=spec.resize == "crop")
    return np.asarray(_centre(resized, *spec.size) if spec.resize == "crop" else resized)


def decode(image: ImageLike, *, name: str | None = None, at_least: tuple[int, int] | None = None) -> Image.Image:
    """Decode an image to 8-bit RGB, upright.

    The EXIF orientation is applied, transparency becomes white, 16-bit grey is scaled to 8 bit, the first frame of an
    animation is used, and colour profiles are ignored.

    Args:
        image: The image; an open PIL image gives the same result as its file, and is not modified.
        name: Name of the image in errors (default: its path).
        at_least: Smallest height and width to decode to: a JPEG file at least twice as large in both dimensions is
            decoded at 1/2, 1/4 or 1/8 of its size, never smaller than this, which is several times faster.

    Raises:
        ImageError: The image cannot be read, or is of an unsupported type; states the reason in words.

    Examples:
        >>> stream = BytesIO()
        >>> Image.new("CMYK", (640, 480)).save(stream, "JPEG")
        >>> decode(stream.getvalue()).size, decode(stream.getvalue(), at_least=(100, 100)).size
        ((640, 480), (160, 120))
        >>> decode(b"hello", name="letter.jpg")
        Traceback (most recent call last):
        manylabel.errors.ImageError: cannot read ...'letter.jpg': it is not an image in a supported format (JPEG, ...
    """
    if isinstance(image, str | Path | bytes):
        with _opened(Path(image) if isinstance(image, str) else image, name) as opened:
            if at_least is not None:
                height, width = at_least
                opened.draft(None, (height, width) if _is_on_its_side(opened) else (width, height))
            return _upright(opened)
    if isinstance(image, Image.Image):
        try:
            with _quiet():
                return _upright(image)
        except Exception as error:
            raise ImageError(name or "image", _in_words(error)) from error
    if isinstance(image, np.ndarray) or hasattr(image, "detach"):
        return Image.fromarray(_to_bytes(image, name))
    kinds = "a path, encoded bytes, a PIL image, an array [height, width, 3] or a tensor [3, height, width]"
    raise ImageError(name or "image", f"an image must be {kinds}, got {type(image).__name__}")


def _to_bytes(image: "NDArray[Any] | Tensor", name: str | None) -> Pixels:
    """Return an array or tensor as bytes ``[H, W, 3]``."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            got = f"{image.dtype} {list(image.shape)}"
            wanted = "an array must be uint8 of shape [height, width, 3]"
            raise ImageError(name or "array", f"{wanted}, got {got}; convert it to RGB, with values from 0 to 255")
        return image
    values = image.detach().cpu()
    wanted = "a tensor must have shape [3, height, width], with uint8 or values in 0..1"
    if values.ndim != 3 or values.shape[0] != 3 or not values.numel():
        raise ImageError(name or "tensor", f"{wanted}, got shape {list(values.shape)}")
    if values.is_floating_point():
        low, high = float(values.min()), float(values.max())
        if not 0 <= low <= high <= 1:
            raise ImageError(name or "tensor", f"{wanted}, got {low:.3g} to {high:.3g}; undo the normalisation")
        values = (values.float() * 255).round().byte()
    pixels: Pixels = values.permute(1, 2, 0).numpy()
    if pixels.dtype != np.uint8:
        raise ImageError(name or "tensor", f"{wanted}, got {pixels.dtype}")
    return np.ascontiguousarray(pixels)


def data_url(image: Image.Image, *, quality: int = 80) -> str:
    """Return an image as a JPEG in a data URL, for HTML without further files.

    Examples:
        >>> data_url(Image.new("RGB", (8, 8)))[:26]
        'data:image/jpeg;base64,/9j'
    """
    stream = BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return "data:image/jpeg;base64," + b64encode(stream.getvalue()).decode()


def resize(
    image: Image.Image, size: tuple[int, int], *, interpolation: str = "bicubic", keep_proportions: bool = False
) -> Image.Image:
    """Resize an RGB image.

    Args:
        image: The image, of any size.
        size: Height and width.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        keep_proportions: Whether to preserve the aspect ratio and return the smallest image that covers `size`, instead
            of one of exactly this size. The ends of an image more than eight times as long as wide are cropped first.

    Examples:
        >>> resize(Image.new("RGB", (640, 480)), (256, 256), keep_proportions=True).size
        (341, 256)
    """
    rows, columns = size
    if keep_proportions:
        width, height = image.size
        if max(height, width) > _LONGEST * min(height, width):
            height, width = min(height, _LONGEST * width), min(width, _LONGEST * height)
            image = _centre(image, height, width)
        is_wider = rows * width >= columns * height
        rows, columns = (rows, rows * width // height) if is_wider else (columns * height // width, columns)
    return image.resize((columns, rows), _FILTERS[interpolation])


def resized_size(spec: InputSpec) -> tuple[int, int]:
    """Return the height and width to resize images to, before the crop of ``resize="crop"``."""
    fraction = spec.crop_fraction if spec.resize == "crop" else 1.0
    return int(spec.size[0] / fraction), int(spec.size[1] / fraction)  # rounded down as in timm


def image_size(source: Path | bytes, *, name: str | None = None) -> tuple[int, int]:
    """Return the height and width after `decode`, from the file header alone.

    An orientation stored after the pixels of a PNG file, which is rare, is ignored.

    Args:
        source: A file, or its content.
        name: Name of the image in errors (default: its path).

    Raises:
        ImageError: The header cannot be read.

    Examples:
        >>> stream = BytesIO()
        >>> Image.new("L", (640, 480)).save(stream, "PNG")
        >>> image_size(stream.getvalue())
        (480, 640)
    """
    with _opened(source, name) as image:
        return image.size if _is_on_its_side(image) else image.size[::-1]


class _RefusedError(Exception):
    """The image is refused; the message is the reason."""


@contextmanager
def _opened(source: Path | bytes, name: str | None) -> Iterator[Image.Image]:
    """Open an image and read its header; any error inside the block becomes an `ImageError`."""
    try:
        with _quiet(), _stream(source) as stream, _read_header(stream) as image:
            yield image
    except Exception as error:
        called = name or (f"<{len(source)} bytes>" if isinstance(source, bytes) else str(source))
        raise ImageError(called, _in_words(error)) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Pillow's warnings: an image either decodes or raises an error.

    `warnings.catch_warnings` is not thread-safe, and makes Python repeat warnings already shown.
    """
    filters = cast("list[Any]", warnings.filters)
    filters.insert(0, _IGNORE_PILLOW)
    try:
        yield
    finally:
        with suppress(ValueError):
            filters.remove(_IGNORE_PILLOW)


@contextmanager
def _stream(source: Path | bytes) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield BytesIO(source)
        return
    kind = source.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError  # Windows would report a permission error
    if not stat.S_ISREG(kind):
        raise _RefusedError("it is not a regular file")  # opening a pipe would block forever
    with source.open("rb") as stream:
        yield stream


def _read_header(stream: BinaryIO) -> Image.Image:
    try:
        image = Image.open(stream, formats=_formats())
    except UnidentifiedImageError as error:
        stream.seek(0)
        start = stream.read(12)
        if not start:
            raise _RefusedError("it is empty (0 bytes)") from error
        formats = ", ".join(_formats())
        raise _RefusedError(
            f"it is not an image in a supported format ({formats}); it starts with {start!r}"
        ) from error
    if not image.width * image.height:
        raise _RefusedError(f"it has no pixels ({image.height} x {image.width})")
    if image.width * image.height > MAX_PIXELS:
        raise Image.DecompressionBombError
    return image


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)  # AVIF is not in every Pillow


def _in_words(error: Exception) -> str:
    match error:
        case _RefusedError():
            return str(error)
        case FileNotFoundError():
            return "there is no such file"
        case IsADirectoryError():
            return "it is a folder, not a file"
        case PermissionError():
            return "there is no permission to read it"
        case OSError(strerror=str(words)):
            return words
        case Image.DecompressionBombError():
            return f"it has more than {MAX_PIXELS:,} pixels; make it smaller"
        case MemoryError():
            return "there is not enough memory to decode it"
    return f"it is damaged or truncated: {str(error) or type(error).__name__}"


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTag.Orientation, 1))
    except Exception:  # noqa: BLE001 - broken EXIF fails in many ways, but the pixels are fine
        return 1


def _is_on_its_side(image: Image.Image) -> bool:
    """Return whether the EXIF orientation swaps height and width, from the header."""
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return False  # Pillow rotates TIFF itself; reading EXIF of a PNG may decode it
    return 5 <= _orientation(image) <= 8


def _upright(image: Image.Image) -> Image.Image:
    """Decode an open image to RGB and apply its EXIF orientation."""
    image.load()
    turn = _TURNS.get(_orientation(image))
    flat = _flatten(image)
    flat.info.clear()  # otherwise the orientation would be applied again if this image is decoded
    return flat if turn is None else flat.transpose(turn)


def _flatten(image: Image.Image) -> Image.Image:
    """Convert to RGB, with transparency on white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _from_16_bit(image).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    page = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(page, image.convert("RGBA")).convert("RGB")


def _from_16_bit(image: Image.Image) -> Image.Image:
    """Scale 0..65535 to 0..255, rounded; Pillow would clip."""
    values = np.asarray(image)
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > 0xFFFF:
        raise _RefusedError(f"its pixels ({values.dtype}) have no fixed range; save it with 8 or 16 bits per channel")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))


def _centre(image: Image.Image, height: int, width: int) -> Image.Image:
    """Crop the centre, rounded as in torchvision."""
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
