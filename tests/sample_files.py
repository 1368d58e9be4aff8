"""Images for tests, good and bad, made on the spot."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

ODD_NAMES = (
    "two words.jpg",
    'it\'s "quoted".jpg',
    "new\nline.jpg",
    "写真-élan-фото-صورة.jpg",
    "-dash.jpg",
    "no extension",
)


def encode(image, form, **options):
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def photo(width=64, height=48):
    """A smooth colour image, different in each corner, that survives JPEG almost unchanged."""
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    channels = [200 * columns + 20, 180 * rows + 40, 120 * (1 - rows) * columns + 60]
    return Image.fromarray(np.stack(channels, axis=-1).round().astype(np.uint8))


def png(width, height, *, depth, color, rows=b""):
    """A PNG file by hand: for what Pillow does not write."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def bad_files():
    """Content that is no image, and words of the reason that should be given."""
    jpeg, flat = encode(photo(), "JPEG"), encode(photo(), "PNG")
    return {
        "truncated.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "almost whole.jpg": (jpeg[:-2], "truncated"),
        "truncated progressive.jpg": (encode(photo(), "JPEG", progressive=True)[:-50], "truncated"),
        "truncated.png": (flat[: len(flat) // 2], "truncated"),
        "truncated.gif": (encode(photo(), "GIF")[:-200], "truncated"),
        "only a start.jpg": (jpeg[:40], ""),
        "empty.jpg": (b"", "empty (0 bytes)"),
        "text.jpg": (b"<html>404 not found</html>", "starts with b'<html>404 no'"),
        "noise.jpg": (np.random.default_rng(0).bytes(1000), "not an image"),
        "postscript.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", "not an image"),
        "bomb.png": (png(50_000, 50_000, depth=8, color=2), "more than 178,956,970 pixels"),
        "nothing.png": (png(0, 0, depth=8, color=2), ""),
        "float.tif": (encode(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "no fixed range"),
    }


def write_files(folder: Path, contents):
    for name, content in contents.items():
        (folder / name).write_bytes(content)
