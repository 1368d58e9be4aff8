"""Duplicates: hashes that survive editing, pairs found without comparing all with all."""

import io

import numpy as np
import pytest
from PIL import Image

from manylabel.data import scenes
from manylabel.data.inspection.images import duplicate_groups, near_hashes, near_pairs, perceptual_hashes


def thumbnail(image):
    return np.asarray(image.convert("L").resize((16, 16), Image.Resampling.BOX))


@pytest.fixture(scope="module")
def images():
    images = scenes(40, seed=1).images
    return [Image.open(io.BytesIO(images[index])).convert("RGB") for index in range(len(images))]


def recompressed(image):
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=25)
    return Image.open(stream)


EDITS = {
    "recompressed": recompressed,
    "smaller": lambda image: image.resize((image.width // 2, image.height // 2)),
    "squashed": lambda image: image.resize((200, 150)),
    "brighter": lambda image: image.point(lambda value: min(255, round(1.1 * value))),
    "grey": lambda image: image.convert("L"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_copy_is_found_and_nothing_else_is(images, edit):
    copies = [EDITS[edit](image) for image in images[:20]]
    pairs = near_pairs(np.stack([thumbnail(image) for image in [*images, *copies]]))
    assert all(second - first == len(images) for first, second in pairs)
    assert len(pairs) >= 19


def test_a_mirrored_or_turned_image_is_another_one(images):
    others = [image.transpose(Image.Transpose.ROTATE_180) for image in images]
    pairs = near_pairs(np.stack([thumbnail(image) for image in [*images, *others]]))
    assert len(pairs) == 0


def test_flat_images_are_not_all_the_same():
    rng = np.random.default_rng(0)
    flat = np.clip(rng.normal(128, 1, (50, 16, 16)), 0, 255).astype(np.uint8)
    assert len(near_pairs(flat)) == 0


def test_equal_hashes_of_different_images_are_told_apart():
    ramp = np.tile(np.linspace(10, 240, 16), (16, 1))
    spike = ramp.copy()
    spike[3:6, 3:6] = 255
    thumbnails = np.stack([ramp, spike]).astype(np.uint8)
    assert near_pairs(thumbnails).tolist() == []


def hamming_pairs(hashes):
    """All with all, in Python."""
    numbers = hashes.tolist()
    return {(i, j) for i in range(len(numbers)) for j in range(i) if (numbers[i] ^ numbers[j]).bit_count() <= 6}


def test_every_pair_within_six_bits_is_found():
    rng = np.random.default_rng(2)
    hashes = rng.integers(0, 2**64, 300, dtype=np.uint64)
    for copy in range(100, 200):
        flipped = rng.choice(64, rng.integers(1, 9), replace=False)
        hashes[copy] = hashes[copy - 100] ^ np.bitwise_or.reduce(np.uint64(1) << flipped.astype(np.uint64))
    expected = hamming_pairs(hashes)
    assert 40 < len(expected) < 100
    assert {(int(j), int(i)) for i, j in near_hashes(hashes)} == expected


def test_equal_hashes_are_linked_without_a_pair_for_every_two():
    hashes = np.array([5, 9, 5, 5, 5], dtype=np.uint64) << np.uint64(40)
    pairs = near_hashes(hashes)
    assert len(pairs) == 4  # a chain of four equal ones, and their first with the other
    assert {0, 1, 2, 3, 4} == set(pairs.ravel().tolist())


def test_hashes_agree_with_one_computed_by_hand():
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (16, 16)).astype(np.uint8)
    angles = np.pi * (np.arange(16) + 0.5) / 16
    waves = [[(image * np.cos(u * angles)[:, None] * np.cos(v * angles)).sum() for v in range(8)] for u in range(8)]
    flat = np.ravel(waves)
    bits = flat > np.median(flat[1:])
    expected = np.packbits(bits).view(np.uint64)[0]
    assert perceptual_hashes(image[None])[0] == expected


def test_groups_join_exact_and_near_copies(images):
    first, second = thumbnail(images[0]), thumbnail(images[1])
    near = thumbnail(recompressed(images[0]))
    digests = np.array([1, 2, 1, 3, 2], dtype=np.uint64)
    groups = duplicate_groups(digests, np.stack([first, second, first, near, second]))
    assert [group.tolist() for group in groups] == [[0, 2, 3], [1, 4]]


@pytest.mark.parametrize("count", [0, 1])
def test_few_images_have_no_duplicates(count):
    assert duplicate_groups(np.zeros(count, dtype=np.uint64), np.zeros((count, 16, 16), dtype=np.uint8)) == []
