import io
import os
import stat
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from manylabel.builtin import sample_photos
from manylabel.data import eval_transform
from manylabel.errors import ImageError
from manylabel.images import FORMATS, decode, image_size, prepare, resize
from manylabel.types import InputSpec
from sample_files import ODD_NAMES, bad_files, encode, photo, png

GREY = np.array([[0, 1, 127, 254, 255]], np.uint8)


def difference(image, reference):
    return np.abs(np.asarray(image).astype(int) - np.asarray(reference).astype(int)).max()


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("form", FORMATS)
def test_decodes_every_format(form):
    reference = photo()
    content = encode(reference, form, quality=95) if form in ("JPEG", "WEBP", "AVIF") else encode(reference, form)
    image = decode(content)
    assert image.mode == "RGB"
    assert image_size(content) == (48, 64)
    assert difference(image, reference) <= (24 if form == "GIF" else 8)  # GIF has 256 colours


def test_decodes_cmyk_jpeg_in_its_true_colours():
    reference = photo()
    content = encode(reference.convert("CMYK"), "JPEG", quality=95)
    assert b"Adobe" in content  # so its values are stored inverted
    assert difference(decode(content), reference) <= 8


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_scales_16_bit_grey_and_does_not_clip(form):
    values = np.array([[0, 128, 129, 257, 30_000, 40_000, 65_406, 65_407, 65_535]], np.uint16)
    image = decode(encode(Image.fromarray(values), form))
    expected = [round(value / 65_535 * 255) for value in values[0].tolist()]
    assert np.asarray(image)[0].tolist() == [[value] * 3 for value in expected]


def test_decodes_16_bit_colour():
    content = png(2, 1, depth=16, color=2, rows=b"\0" + struct.pack(">6H", 0, 32_896, 65_535, 65_535, 257, 0))
    assert np.asarray(decode(content)).tolist() == [[[0, 128, 255], [255, 1, 0]]]


def test_decodes_one_bit_and_grey():
    bits = Image.fromarray(np.array([[0, 255, 255]], np.uint8)).convert("1")
    assert np.asarray(decode(encode(bits, "PNG")))[0, :, 1].tolist() == [0, 255, 255]
    assert (np.asarray(decode(encode(Image.fromarray(GREY), "PNG"))) == GREY[..., None]).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_lays_transparent_images_on_white(mode):
    rgba = np.dstack([np.tile(GREY, (3, 1))] * 3 + [np.repeat([[0], [100], [255]], 5, axis=1)]).astype(np.uint8)
    image = decode(encode(Image.fromarray(rgba).convert(mode), "PNG"))
    alpha = rgba[..., 3:] / 255
    assert difference(image, (rgba[..., :3] * alpha + 255 * (1 - alpha)).round()) <= 1


def test_lays_transparent_palettes_and_colours_on_white():
    palette = Image.new("P", (3, 1))
    palette.putdata([0, 1, 2])
    palette.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    for transparency, expected in (
        (b"\xff\x00\x80", [[255, 0, 0], [255, 255, 255], [127, 127, 255]]),
        (1, [[255, 0, 0], [255, 255, 255], [0, 0, 255]]),
    ):
        assert difference(decode(encode(palette, "PNG", transparency=transparency)), [expected]) <= 1
    plain = palette.convert("RGB")
    assert (
        difference(decode(encode(plain, "PNG", transparency=(0, 255, 0))), [[[255, 0, 0], [255] * 3, [0, 0, 255]]]) == 0
    )
    assert difference(decode(encode(palette, "PNG")), plain) == 0


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_takes_the_first_frame_of_an_animation(form):
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime", "blue")]
    content = encode(frames[0], form, save_all=True, append_images=frames[1:], duration=50)
    image = decode(content)
    assert image.size == (8, 6)
    assert difference(image, frames[0]) <= 4


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_puts_images_upright(form, orientation):
    stored = np.asarray(photo())
    upright = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.transpose(1, 0, 2),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(stored, 1),
    }[orientation]
    content = encode(photo(), form, exif=exif(orientation), **({} if form in ("PNG", "TIFF") else {"quality": 95}))
    assert difference(decode(content), upright) <= 8
    assert image_size(content) == upright.shape[:2]


@pytest.mark.parametrize(
    "content",
    [
        encode(photo(), "JPEG", exif=exif(6)),
        encode(photo(), "TIFF", exif=exif(6)),
        encode(Image.new("RGBA", (3, 2), (255, 0, 0, 100)), "PNG"),
        encode(Image.fromarray(np.array([[0, 30_000, 65_535]], np.uint16)), "PNG"),
    ],
    ids=["turned JPEG", "turned TIFF", "transparent", "16 bit"],
)
def test_an_open_image_becomes_what_its_file_does(content):
    expected = decode(content)
    assert np.array_equal(decode(Image.open(io.BytesIO(content))), expected)
    assert np.array_equal(decode(expected), expected)  # not turned twice


def test_an_open_image_that_is_cut_short_is_a_image_error():
    with pytest.raises(ImageError, match="'mine': it is damaged or truncated"):
        decode(Image.open(io.BytesIO(encode(photo(), "JPEG")[:-100])), name="mine")


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("at_least", [(10, 10), (60, 100), (100, 60), (120, 160), (160, 120), (121, 161), (900, 900)])
def test_reduced_scale_is_never_smaller_than_asked(orientation, at_least):
    content = encode(photo(640, 480), "JPEG", exif=exif(orientation), quality=95)
    full, reduced = decode(content), decode(content, at_least=at_least)
    factor = full.width // reduced.width
    assert (reduced.width * factor, reduced.height * factor) == full.size
    needed = [min(side, limit) for side, limit in zip(full.size[::-1], at_least, strict=True)]
    assert all(side >= limit for side, limit in zip(reduced.size[::-1], needed, strict=True))
    next_factor = 2 * factor  # the next smaller scale would be too small, or there is none
    assert factor == 8 or any(
        side // next_factor < limit for side, limit in zip(full.size[::-1], at_least, strict=True)
    )
    assert difference(reduced, full.resize(reduced.size, Image.Resampling.BOX)) <= 6


@pytest.mark.parametrize(("name", "content", "words"), [(name, *value) for name, value in bad_files().items()])
@pytest.mark.parametrize("at_least", [None, (8, 8)])
def test_says_why_a_image_is_bad(tmp_path, name, content, words, at_least):
    (tmp_path / name).write_bytes(content)
    for source in (content, tmp_path / name):
        with pytest.raises(ImageError) as caught:
            decode(source, name=name, at_least=at_least)
        assert caught.value.name == name
        assert words in caught.value.reason
        assert caught.value.reason.strip()


def test_refuses_a_bomb_before_its_pixels_are_allocated(monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load_prepare", lambda image: pytest.fail("pixels were allocated"))
    with pytest.raises(ImageError, match="more than 178,956,970 pixels"):
        decode(bad_files()["bomb.png"][0])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # what others do to Pillow does not disarm us
    with pytest.raises(ImageError, match="more than 178,956,970 pixels"):
        image_size(bad_files()["bomb.png"][0])


def test_a_image_for_which_pillow_only_warns_is_no_bomb():
    content = png(10_000, 9_000, depth=1, color=0)
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(content))
    assert image_size(content) == (9_000, 10_000)


def test_names_missing_files_and_folders(tmp_path):
    with pytest.raises(ImageError, match="no such file") as caught:
        decode(tmp_path / "missing.jpg")
    assert caught.value.name == str(tmp_path / "missing.jpg")
    with pytest.raises(ImageError, match="it is a folder"):
        image_size(tmp_path)
    with pytest.raises(ImageError, match="cannot read image"):
        decode(tmp_path / ("x" * 5000))
    with pytest.raises(ImageError, match="null"):
        decode(tmp_path / "zero\0byte.jpg")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="not a regular file"):
        decode(tmp_path / "pipe.jpg")


def test_names_files_without_read_permission(tmp_path, monkeypatch):
    path = tmp_path / "secret.jpg"
    path.write_bytes(encode(photo(), "JPEG"))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read anything, so what others meet is simulated

        def refuse(self, *arguments):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ImageError, match="no permission"):
        decode(path)
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_reads_files_of_any_name(tmp_path, name):
    (tmp_path / name).write_bytes(encode(photo(), "JPEG"))
    assert decode(tmp_path / name).size == (64, 48)
    (tmp_path / name).write_bytes(b"?")
    with pytest.raises(ImageError) as caught:
        decode(tmp_path / name)
    assert caught.value.name == str(tmp_path / name)


@pytest.mark.parametrize("error", [struct.error("x"), KeyError("x"), RecursionError(), SyntaxError("x"), MemoryError()])
def test_any_exception_of_a_decoder_becomes_a_image_error(monkeypatch, error):
    def fail(self):
        raise error

    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    with pytest.raises(ImageError) as caught:
        decode(encode(photo(), "BMP"))
    assert caught.value.__cause__ is error


def test_damaged_content_decodes_or_is_a_image_error():
    generator = np.random.default_rng(0)
    outcomes = set()
    for form in FORMATS:
        content = np.frombuffer(encode(photo(16, 12), form), np.uint8)
        for _ in range(40):
            damaged = content.copy()
            damaged[generator.integers(len(damaged), size=4)] = generator.integers(256, size=4)
            try:
                outcomes.add(decode(damaged.tobytes(), at_least=(4, 4)).mode)
            except ImageError:
                outcomes.add("bad")
    assert outcomes == {"RGB", "bad"}


def test_broken_exif_does_not_spoil_a_image():
    content = encode(photo(), "JPEG", exif=exif(6))
    broken = content.replace(b"Exif\0\0MM\0*\0\0\0\x08\0\x01", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert broken != content
    assert sorted(decode(broken).size) == [48, 64]
    assert decode(encode(photo(), "JPEG", exif=exif(9))).size == (64, 48)  # there is no orientation 9


def test_leaves_the_warning_filters_as_they_were():
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(decode, [encode(photo(), "JPEG")] * 40))
    assert list(warnings.filters) == before


PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
SPECS = [
    InputSpec(size=(64, 96), **PLAIN),
    InputSpec(size=(96, 64), interpolation="bilinear", **PLAIN),
    InputSpec(size=(60, 60), resize="crop", crop_fraction=0.875, **PLAIN),
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [(451, 300), (33, 500), (30, 400)], ids=["photo", "tall", "strip"])
def test_training_and_prediction_see_the_same_pixels(spec, size):
    image = decode(sample_photos()[1]).resize(size)
    pixels = prepare(image, spec)
    assert pixels.shape == (*spec.size, 3)
    expected = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
    torch.testing.assert_close(eval_transform(spec)(image), expected, atol=1e-6, rtol=0)


def test_every_kind_of_image_gives_the_same_pixels(tmp_path):
    image = Image.effect_noise((40, 30), 60).convert("RGB")
    image.save(tmp_path / "noise.png")
    path = tmp_path / "noise.png"
    kinds = [str(path), path, path.read_bytes(), image, np.asarray(image)]
    first, *others = [prepare(kind, SPECS[0]) for kind in kinds]
    assert all(np.array_equal(first, other) for other in others)


def test_an_open_image_gives_the_pixels_of_its_file(tmp_path):
    path = tmp_path / "transparent.png"
    Image.new("RGBA", (40, 30), (255, 0, 0, 0)).save(path)
    assert np.array_equal(prepare(Image.open(path), SPECS[0]), prepare(path, SPECS[0]))


def test_a_wrong_array_is_a_bad_image():
    with pytest.raises(ImageError, match=r"shape \[height, width, 3\], got uint8 \[4, 4\]"):
        prepare(np.zeros((4, 4), np.uint8), SPECS[0])


def test_what_is_no_image_at_all_is_an_unreadable_image():
    with pytest.raises(ImageError, match=r"an image must be a path, .* got NoneType"):
        prepare(None, SPECS[0])


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(8, 6, 3), r"shape \[3, height, width\].* got shape \[8, 6, 3\]"),
        (torch.zeros(3, 8, 6) - 0.5, "got -0.5 to -0.5; undo the normalisation"),
        (torch.full((3, 8, 6), float("nan")), "got nan"),
        (torch.zeros(3, 8, 6, dtype=torch.int64), "got int64"),
    ],
)
def test_a_tensor_of_another_kind_is_an_unreadable_image(tensor, words):
    with pytest.raises(ImageError, match=words):
        prepare(tensor, SPECS[0])


@pytest.mark.parametrize(
    ("size", "expected"), [((640, 480), (341, 256)), ((480, 640), (256, 341)), ((9, 9), (256, 256))]
)
def test_covers_with_the_proportions_kept(size, expected):
    assert resize(Image.new("RGB", size), (256, 256), keep_proportions=True).size == expected
