import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from manylabel.data.transforms import Cutout, Resize, eval_transform, train_transform
from manylabel.errors import ConfigError
from manylabel.types import InputSpec
from sample_files import photo

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
SPECS = [
    InputSpec(size=(32, 32)),
    InputSpec(size=(24, 40), interpolation="bilinear"),
    InputSpec(size=(32, 32), resize="crop", crop_fraction=0.875),
    InputSpec(size=(24, 40), resize="crop"),
]
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def textured(width=150, height=100):
    noise = np.random.default_rng(0).integers(-20, 20, (height, width, 3))
    return Image.fromarray((np.asarray(photo(width, height)) + noise).clip(0, 255).astype(np.uint8))


def pixels(tensor):
    """Undo the scaling to 0..1 of a tensor [..., 3, H, W] that was not normalised otherwise."""
    return (tensor * 255).round().to(torch.uint8)


def reference_resize(image, spec, enlarge=1.0):
    rows, columns = (int(side * enlarge) for side in spec.size)
    if spec.resize == "crop":
        scale = max(rows / image.height, columns / image.width)
        rows, columns = max(rows, int(image.height * scale)), max(columns, int(image.width * scale))
    return image.resize((columns, rows), FILTERS[spec.interpolation])


def tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [(150, 100), (100, 150), (20, 17)])
def test_evaluation_is_resize_and_normalise(spec, size):
    resized = reference_resize(textured(*size), spec, enlarge=1 / spec.crop_fraction)
    top, left = round((resized.height - spec.size[0]) / 2), round((resized.width - spec.size[1]) / 2)
    cut = tensor(resized)[:, top : top + spec.size[0], left : left + spec.size[1]]
    mean, std = torch.tensor(spec.mean)[:, None, None], torch.tensor(spec.std)[:, None, None]
    result = eval_transform(spec)(textured(*size))
    assert result.dtype == torch.float32
    assert result.shape == (3, *spec.size)
    assert ((result * std + mean) * 255 - cut).abs().max() < 1.51  # Pillow rounds each pass a little differently


@pytest.mark.parametrize("make", [eval_transform, train_transform])
@pytest.mark.parametrize("spec", SPECS)
def test_resizes_bytes_not_floats(make, spec):
    transform = make(spec)
    image = textured()
    for step in transform.steps[:2]:
        image = step(image)
    assert image.dtype == torch.uint8
    assert all(side >= wanted for side, wanted in zip(image.shape[-2:], transform.at_least, strict=True))
    assert any(side == wanted for side, wanted in zip(image.shape[-2:], transform.at_least, strict=True))


@pytest.mark.parametrize("make", [eval_transform, train_transform])
@pytest.mark.parametrize("spec", SPECS)
def test_survives_pickling_and_says_its_settings(make, spec):
    transform = make(spec)
    copy = pickle.loads(pickle.dumps(transform))
    assert repr(copy) == repr(transform)
    assert spec.interpolation in repr(transform).lower()
    assert str(transform.at_least) in repr(transform)
    torch.manual_seed(0)
    expected = transform(textured())
    torch.manual_seed(0)
    assert torch.equal(copy(textured()), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_training_depends_on_the_seed_alone(spec):
    transform = train_transform(spec)
    results = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        results.append(transform(textured()))
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])
    assert results[0].shape == (3, *spec.size)


def test_training_follows_the_papers():
    steps = [type(step).__name__ for step in train_transform(InputSpec()).steps]
    assert steps == [
        *("Resize", "PILToTensor", "RandomHorizontalFlip", "Cutout"),
        *("ToPILImage", "RandAugment", "PILToTensor", "ToDtype", "Normalize"),
    ]
    bare = train_transform(InputSpec(), flip=False, cutout=0, randaugment=False)
    assert torch.equal(bare(textured()), eval_transform(InputSpec())(textured()))


def test_flips_about_half_of_the_images():
    spec = InputSpec(size=(8, 8), **PLAIN)
    transform = train_transform(spec, cutout=0, randaugment=False)
    plain = eval_transform(spec)(textured())
    torch.manual_seed(0)
    results = [transform(textured()) for _ in range(200)]
    flipped = sum(torch.equal(result, plain.flip(-1)) for result in results)
    assert flipped + sum(torch.equal(result, plain) for result in results) == 200
    assert 75 <= flipped <= 125


def test_randaugment_takes_its_strength():
    settings = repr(train_transform(InputSpec(), num_operations=3, magnitude=5))
    assert "num_ops=3" in settings
    assert "magnitude=5" in settings


def test_training_crops_at_a_random_place():
    spec = InputSpec(size=(16, 16), resize="crop", **PLAIN)
    transform = train_transform(spec, flip=False, cutout=0, randaugment=False)
    whole = tensor(reference_resize(textured(), spec)).float() / 255  # [3, 16, 24]
    torch.manual_seed(0)
    places = set()
    for _ in range(60):
        result = transform(textured())
        errors = [(whole[:, :, left : left + 16] - result).abs().max().item() for left in range(9)]
        assert min(errors) < 1.51 / 255
        places.add(int(np.argmin(errors)))
    assert places == set(range(9))


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_cutout_is_one_square_hole_of_one_colour(share):
    image = torch.full((3, 40, 60), 7, dtype=torch.uint8)
    torch.manual_seed(0)
    sizes = []
    for _ in range(100):
        holed = Cutout(share)(image)
        rows, columns = (holed != image).any(0).nonzero(as_tuple=True)
        hole = holed[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert len(hole.flatten(1).unique(dim=1).T) == 1
        sizes.append(hole.shape[1:])
    assert max(size[0] for size in sizes) == round(40 * share)
    assert max(size[1] for size in sizes) == round(60 * share)
    assert min(size[0] for size in sizes) < round(40 * share)  # the hole may hang over the edge
    assert (image == 7).all()


def test_cutout_covers_every_place():
    torch.manual_seed(0)
    image = torch.full((3, 6, 6), 7, dtype=torch.uint8)
    assert sum((Cutout(0.5)(image) != image).any(0) for _ in range(300)).min() > 0


def test_a_strip_does_not_grow_without_bounds():
    strip = Image.new("RGB", (50_000, 1))
    assert Resize((32, 32), keep_proportions=True)(strip).size == (256, 32)
    assert Resize((32, 32), keep_proportions=True)(strip.rotate(90, expand=True)).size == (32, 256)
    assert eval_transform(InputSpec(size=(32, 32), resize="crop"))(Image.new("RGB", (50_000, 1))).shape == (3, 32, 32)


def test_small_modules_say_their_settings():
    assert "(8, 8)" in repr(Resize((8, 8)))
    assert "0.25" in repr(Cutout(0.25))


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (train_transform, {"cutout": 1.5}, "got 1.5"),
        (train_transform, {"crop": 0.0}, "got 0.0"),
        (train_transform, {"crop": 1.1}, "got 1.1"),
        (train_transform, {"cutout": -0.1}, "got -0.1"),
    ],
)
def test_rejects_settings_out_of_range(make, options, words):
    with pytest.raises(ConfigError, match=words):
        make(InputSpec(), **options)


def test_random_crops_keep_detail_and_show_a_part_of_the_image():
    spec = InputSpec(size=(32, 32), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    transform = train_transform(spec, crop=0.25, flip=False, cutout=0, randaugment=False)
    assert transform.at_least == (64, 64)
    columns = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    torch.manual_seed(0)
    views = torch.stack([transform(Image.fromarray(columns)) for _ in range(50)])
    shown = (views[..., -1] - views[..., 0]).mean((1, 2))  # the share of the width that each view shows
    assert shown.min() < 0.6
    assert shown.max() > 0.8
