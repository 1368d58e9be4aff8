"""Encoded pictures to 8-bit RGB: every picture that can be shown is, and every other one says in words why not."""

import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import Base as ExifTag

from manylabel.errors import ImageError

__all__ = ["FORMATS", "MAX_PIXELS", "PICTURE_ENDINGS", "decode", "picture_size", "to_rgb"]

FORMATS: Final = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM")
"""What is read. Pillow knows more, but some of it starts other programs (EPS) or is not made for photos."""

PICTURE_ENDINGS: Final = frozenset(
    (".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
"""By these a picture is known in a folder; a file given by its own name may end as it likes."""

MAX_PIXELS: Final = 178_956_970
"""Pictures with more pixels are refused before any is decoded: half a gigabyte of RGB, and Pillow's own last limit."""

_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # EXIF orientation -> what puts the picture upright; 5 and above exchange height and width

_IGNORE_PILLOW: Final = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


def decode(source: Path | bytes, *, name: str | None = None, at_least: tuple[int, int] | None = None) -> Image.Image:
    """Return a picture as 8-bit RGB, upright.

    The EXIF orientation is applied. What is transparent becomes white. 16-bit grey is scaled to 8 bit. Of an animation
    the first frame is taken. Colour profiles are ignored.

    Args:
        source: A file, or its content.
        name: What to call the picture in an error; the path when left out.
        at_least: Height and width below which detail is not needed: a JPEG that is at least twice as large each way
            is decoded at 1/2, 1/4 or 1/8 of its size, never smaller than this, which is several times faster.

    Raises:
        ImageError: The picture cannot be read; the reason is in words, whatever the decoder raised.

    Examples:
        >>> stream = BytesIO()
        >>> Image.new("CMYK", (640, 480)).save(stream, "JPEG")
        >>> decode(stream.getvalue()).size, decode(stream.getvalue(), at_least=(100, 100)).size
        ((640, 480), (160, 120))
        >>> decode(b"hello", name="letter.jpg")
        Traceback (most recent call last):
        manylabel.errors.ImageError: cannot read picture 'letter.jpg': it is not a picture in a format that is read...
    """
    with _opened(source, name) as image:
        if at_least is not None:
            height, width = at_least
            image.draft(None, (height, width) if _is_on_its_side(image) else (width, height))
        return _upright(image)


def to_rgb(image: Image.Image, *, name: str = "image") -> Image.Image:
    """Return a picture that is already open as `decode` returns its file: as 8-bit RGB, upright, on white.

    Args:
        image: A Pillow image of any mode; it is not changed.
        name: What to call the picture in an error.

    Raises:
        ImageError: Its pixels cannot be read, or have no fixed range.

    Examples:
        >>> to_rgb(Image.new("RGBA", (4, 4), (255, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    try:
        with _quiet():
            return _upright(image)
    except Exception as error:
        raise ImageError(name, _in_words(error)) from error


def picture_size(source: Path | bytes, *, name: str | None = None) -> tuple[int, int]:
    """Return the height and width that `decode` would give, from the file's header alone.

    An orientation that a PNG file tells only after its pixels, which is rare, is not seen.

    Args:
        source: A file, or its content.
        name: What to call the picture in an error; the path when left out.

    Raises:
        ImageError: The header cannot be read.

    Examples:
        >>> stream = BytesIO()
        >>> Image.new("L", (640, 480)).save(stream, "PNG")
        >>> picture_size(stream.getvalue())
        (480, 640)
    """
    with _opened(source, name) as image:
        return image.size if _is_on_its_side(image) else image.size[::-1]


class _RefusedError(Exception):
    """The picture is not read, for a reason that is already in words."""


@contextmanager
def _opened(source: Path | bytes, name: str | None) -> Iterator[Image.Image]:
    """Open a picture and read its header; whatever goes wrong inside becomes a `ImageError`."""
    try:
        with _quiet(), _stream(source) as stream, _read_header(stream) as image:
            yield image
    except Exception as error:
        called = name or (f"<{len(source)} bytes>" if isinstance(source, bytes) else str(source))
        raise ImageError(called, _in_words(error)) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Pillow's warnings: a picture either decodes or becomes an error, there is nothing in between.

    `warnings.catch_warnings` would not do: it is not made for threads, and makes Python repeat everybody's warnings.
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
        raise IsADirectoryError  # Windows would say that there is no permission
    if not stat.S_ISREG(kind):
        raise _RefusedError("it is not a regular file")  # opening a pipe would wait for ever
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
            f"it is not a picture in a format that is read ({formats}); it starts with {start!r}"
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
    return f"it is damaged or cut short: {str(error) or type(error).__name__}"


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTag.Orientation, 1))
    except Exception:  # noqa: BLE001 - broken EXIF fails in many ways, and none of them spoils the pixels
        return 1


def _is_on_its_side(image: Image.Image) -> bool:
    """Tell from the header whether height and width are to be exchanged."""
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return False  # Pillow turns TIFF by itself; asking a PNG for EXIF that did not come yet decodes it
    return 5 <= _orientation(image) <= 8


def _upright(image: Image.Image) -> Image.Image:
    """Decode what is open, to RGB, and turn it as its EXIF orientation says."""
    image.load()
    turn = _TURNS.get(_orientation(image))
    flat = _flatten(image)
    flat.info.clear()  # or its orientation would be applied again when it comes back as an open picture
    return flat if turn is None else flat.transpose(turn)


def _flatten(image: Image.Image) -> Image.Image:
    """Return RGB, with white behind what is transparent."""
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
