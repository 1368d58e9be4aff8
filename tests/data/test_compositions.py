"""Compositions: what is drawn is what is labelled."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from manylabel.data import load, scenes
from manylabel.data.readers.scenes.compositions import COLOURS, COMPOSITIONS, SHAPES, TEXTURES, Shape, _add
from manylabel.errors import ConfigError


def drawn(label, size=200):
    picture = Image.new("RGB", (size, size), (200, 200, 200))
    _add(picture, Shape(label, 0.5, 0.5, 0.8, 0.0))
    return np.asarray(picture)


def test_there_is_a_label_for_each_composition():
    dataset = load("scenes:300,labels=compositions")
    assert len(dataset.labels) == len(COLOURS) * len(TEXTURES) * len(SHAPES) == 256
    assert dataset.targets.labels_per_picture.min() >= 1
    assert dataset.targets.labels_per_picture.max() <= 6
    assert (dataset.targets.positives > 0).mean() > 0.9


def test_draws_the_same_bytes_twice_whatever_their_number():
    few, many = (scenes(n, labels="compositions", size=64) for n in (3, 9))
    assert [few.pictures[i] for i in range(3)] == [many.pictures[i] for i in range(3)]
    assert few.pictures[0] != scenes(1, size=64).pictures[0]
    assert few.pictures.identity != scenes(1, size=64).pictures.identity


def test_the_colours_of_the_labels_are_in_the_picture():
    dataset = scenes(20, labels="compositions", size=160)
    for index in range(20):
        pixels = np.asarray(Image.open(BytesIO(dataset.pictures[index]))).reshape(-1, 3).astype(int)
        values = dataset.targets.dense([index])[0][0]
        present = {label.split()[0] for label, value in zip(dataset.labels, values, strict=True) if value}
        for name, colour in COLOURS.items():
            near = (np.abs(pixels - np.array(colour)).max(1) < 14).mean()
            assert (near > 0.002) == (name in present), (index, name, near)


def test_no_two_labels_look_the_same():
    pictures = {drawn(f"red {texture} {shape}").tobytes() for texture in TEXTURES for shape in SHAPES}
    assert len(pictures) == 32


def test_areas_are_what_is_seen():
    dataset = scenes(30, labels="compositions")
    areas = dataset.areas.toarray()
    assert areas[areas > 0].min() > 0.005
    assert areas.max() < 0.1
    circle = (drawn("red plain circle") != 200).any(2).mean()
    assert circle == pytest.approx(np.pi * 0.48**2 * 0.8**2, abs=0.01)


def test_unknown_entries_and_mistakes():
    _, known = scenes(20, labels="compositions", unknown=0.3).targets.dense()
    assert 0.2 < 1 - known.mean() < 0.4
    with pytest.raises(ConfigError, match="labels cannot be 'shapes'"):
        scenes(2, labels="shapes")
    assert len(COMPOSITIONS) == len(set(COMPOSITIONS))
