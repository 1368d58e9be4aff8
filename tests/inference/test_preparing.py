import numpy as np
import pytest
import torch
from PIL import Image

from manylabel.builtin import sample_photos
from manylabel.data import eval_transform
from manylabel.decode import decode
from manylabel.errors import ImageError
from manylabel.inference.preparing import prepare, to_pixels
from manylabel.types import InputSpec

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
SPECS = [
    InputSpec(size=(64, 96), **PLAIN),
    InputSpec(size=(96, 64), interpolation="bilinear", **PLAIN),
    InputSpec(size=(60, 60), resize="crop", crop_fraction=0.875, **PLAIN),
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [(451, 300), (33, 500), (30, 400)], ids=["photo", "tall", "strip"])
def test_pixels_are_those_of_the_transform_to_within_two_levels(spec, size):
    image = decode(sample_photos()[1]).resize(size)
    expected = 255 * eval_transform(spec)(image).permute(1, 2, 0)
    found = torch.from_numpy(prepare(image, spec).copy()).float()
    assert found.shape == (*spec.size, 3)
    assert (found - expected).abs().max() <= 2.01


def test_every_kind_of_picture_gives_the_same_pixels(tmp_path):
    image = Image.effect_noise((40, 30), 60).convert("RGB")
    image.save(tmp_path / "noise.png")
    path = tmp_path / "noise.png"
    kinds = [str(path), path, path.read_bytes(), image, np.asarray(image)]
    first, *others = [to_pixels(kind, SPECS[0]) for kind in kinds]
    assert all(np.array_equal(first, other) for other in others)


def test_an_open_image_gives_the_pixels_of_its_file(tmp_path):
    path = tmp_path / "transparent.png"
    Image.new("RGBA", (40, 30), (255, 0, 0, 0)).save(path)
    assert np.array_equal(to_pixels(Image.open(path), SPECS[0]), to_pixels(path, SPECS[0]))


def test_a_wrong_array_is_a_bad_picture():
    with pytest.raises(ImageError, match=r"shape \[height, width, 3\], got uint8 \[4, 4\]"):
        to_pixels(np.zeros((4, 4), np.uint8), SPECS[0])
