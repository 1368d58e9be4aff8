"""Demo scenes: what is drawn, what is labelled, and that both agree."""

import pickle
from io import BytesIO

import numpy as np
import polars as pl
import pytest
from PIL import Image

from manylabel.data import load, scenes, write_scenes
from manylabel.data.readers.scenes import (
    COLOURS,
    COMPOSED,
    COMPOSITIONS,
    SHAPES,
    TEXTURES,
    THEMES,
    THINGS,
    Placement,
    _arrange,
    _draw,
    _encode,
    _turn,
    present_areas,
)
from manylabel.errors import ConfigError, OutputExistsError


@pytest.fixture(scope="module")
def many():
    return scenes(400, seed=11)


def square(label, x, y, size=0.4):
    return Placement(label, "red", x, y, size, 0)


def visible(placements, label):
    """The fraction of the only object of a label that is seen, by bisection of the limit."""
    limits = np.linspace(0.005, 1, 200)
    return max((limit for limit in limits if label in present_areas(placements, min_visible=limit)), default=0.0)


def test_draws_the_same_bytes_twice_and_others_for_another_seed():
    first, again, other = scenes(4, seed=5, size=64), scenes(4, seed=5, size=64), scenes(4, seed=6, size=64)
    assert [first.images[i] for i in range(4)] == [again.images[i] for i in range(4)]
    assert all(first.images[i] != other.images[i] for i in range(4))


@pytest.mark.parametrize("labels", ["things", "compositions"])
def test_an_image_does_not_depend_on_how_many_there_are(labels):
    few, many = (scenes(n, seed=11, labels=labels, size=64) for n in (3, 9))
    assert [few.images[i] for i in range(3)] == [many.images[i] for i in range(3)]
    assert few.images.name(2) == many.images.name(2)
    assert np.array_equal(few.targets.dense()[0], many.targets.dense(slice(3))[0])


def test_an_image_does_not_depend_on_process_or_machine():
    assert [placement.label for placement in _arrange(3, 9, "things")[1]] == ["cloud", "sun", "ball"]
    image = Image.open(BytesIO(scenes(10, seed=3).images[9]))
    assert np.asarray(image).mean(axis=(0, 1)) == pytest.approx([177, 198, 200], abs=1.5)


def test_decodes_to_rgb_of_the_right_size(many):
    for size, dataset in ((256, many), (96, scenes(1, size=96))):
        image = Image.open(BytesIO(dataset.images[0]))
        assert (image.mode, image.size) == ("RGB", (size, size))


def test_survives_being_sent_to_another_process():
    dataset = scenes(3, size=64)
    assert pickle.loads(pickle.dumps(dataset)).images[1] == dataset.images[1]


def test_every_label_occurs_and_every_image_has_one(many):
    assert len(many.labels) == 24
    assert many.targets.positives.min() >= 10
    assert many.targets.labels_per_image.min() >= 1


def test_splits_are_four_to_one_and_can_be_asked_for(many):
    assert {name: len(part) for name, part in many.splits.items()} == {"train": 320, "val": 80}
    part = scenes(10, split="val")
    assert [part.images.name(i) for i in range(len(part))] == ["scene-00004.jpg", "scene-00009.jpg"]


def test_objects_are_6_to_60_percent_as_wide_as_the_image():
    sides = [placement.side for index in range(300) for placement in _arrange(0, index, "things")[1]]
    assert 0.06 <= min(sides) < 0.08
    assert 0.55 < max(sides) <= 0.6


def test_labels_of_a_theme_come_together(many):
    present = many.targets.dense()[0]
    together = present.T @ present
    positives = np.diag(together)
    lift = together / (np.outer(positives, positives) / len(many))
    column = many.labels.index
    for labels in (theme.labels for theme in THEMES.values()):
        assert np.mean([lift[column(a), column(b)] for a in labels for b in labels if a < b]) > 1.3
    assert lift[column("moon"), column("cup")] < 0.5
    assert together[column("moon")].astype(bool).sum() > len(THEMES["night"].labels)  # sometimes an outsider
    assert {label for theme in THEMES.values() for label in theme.labels} == set(THINGS)


def test_a_hidden_object_is_not_labelled():
    cat, ball = square("cat", 0.5, 0.5, 0.2), square("ball", 0.5, 0.5, 0.5)
    assert set(present_areas([cat, ball], min_visible=0.3)) == {"ball"}
    assert set(present_areas([ball, cat], min_visible=0.3)) == {"ball", "cat"}


def test_a_half_hidden_object_is_labelled_up_to_the_fraction_that_is_seen():
    back, front = square("ball", 0.4, 0.5), square("book", 0.55, 0.5)
    seen = visible([back, front], "ball")
    assert 0.1 < seen < 0.9
    assert "ball" in present_areas([back, front], min_visible=seen)
    assert "ball" not in present_areas([back, front], min_visible=seen + 0.01)


def test_what_is_outside_the_image_is_not_seen():
    assert visible([square("ball", 0.0, 0.5)], "ball") == pytest.approx(0.5, abs=0.03)
    assert visible([square("ball", 1.0, 1.0)], "ball") == pytest.approx(0.25, abs=0.03)
    assert visible([square("ball", 5.0, -3.0)], "ball") == 0


def test_the_area_of_a_label_is_that_of_its_largest_object():
    small, large = square("ball", 0.2, 0.2, 0.1), square("ball", 0.6, 0.6, 0.5)
    area = present_areas([large, small], min_visible=0.3)["ball"]
    assert area == pytest.approx(np.pi * (0.48 * 0.5) ** 2, rel=0.04)


@pytest.mark.parametrize("labels", ["things", "compositions"])
@pytest.mark.parametrize("index", range(4))
def test_areas_agree_with_what_is_painted(labels, index):
    size, placements = 256, _arrange(4, index, labels)[1]
    owner = np.full((size, size), -1)
    for number, placement in enumerate(placements):
        stamp, corner = _turn(_draw(placement.label, placement.colour, 300), placement, size)
        canvas = Image.new("L", (size, size))
        canvas.paste(stamp.getchannel("A"), corner)
        owner[np.asarray(canvas) > 127] = number
    areas = present_areas(placements, min_visible=1e-6)
    for label in {placement.label for placement in placements}:
        painted = [np.mean(owner == number) for number, each in enumerate(placements) if each.label == label]
        assert areas.get(label, 0.0) == pytest.approx(max(painted), rel=0.12, abs=0.002)


@pytest.mark.parametrize("label", THINGS)
def test_an_outline_does_not_depend_on_the_colour_and_looks_like_no_other(label):
    outlines = {_draw(label, colour, 96).getchannel("A").tobytes() for colour in THINGS[label].colours}
    assert len(outlines) == 1
    drawn = _draw(label, THINGS[label].colours[0], 96).tobytes()
    assert not any(drawn == _draw(other, THINGS[other].colours[0], 96).tobytes() for other in THINGS if other != label)


@pytest.mark.parametrize("theme", THEMES)
def test_every_theme_has_a_background_that_is_not_flat(theme):
    indices = [index for index in range(60) if _arrange(0, index, "things")[0] is THEMES[theme]]
    image = np.asarray(Image.open(BytesIO(_encode(indices[0], seed=0, size=128, labels="things"))), dtype=float)
    assert image.mean(axis=1).std(axis=0).max() > 5
    assert image.std(axis=1).mean() > 1


@pytest.mark.parametrize("labels", ["things", "compositions"])
@pytest.mark.slow
def test_makes_the_asked_fraction_unknown(labels):
    plain, dataset = (scenes(300, seed=2, unknown=unknown, labels=labels) for unknown in (0.0, 0.25))
    values, known = dataset.targets.dense()
    assert (~known).mean() == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(values, plain.targets.dense()[0] * known)
    assert np.array_equal(dataset.areas.toarray() > 0, values > 0)
    assert plain.targets.unknown is None


def test_areas_are_filled_where_a_label_is_present(many):
    areas = many.areas.toarray()
    assert np.array_equal(areas > 0, many.targets.dense()[0] > 0)
    assert areas.max() <= 0.36


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"size": 8}, "size must be at least 32"),
        ({"unknown": 1.5}, "unknown must be a fraction"),
        ({"labels": "shapes"}, "labels cannot be 'shapes'"),
    ],
)
def test_rejects_numbers_out_of_range(values, message):
    with pytest.raises(ConfigError, match=message):
        scenes(**({"n": 2} | values))


@pytest.mark.slow
def test_there_is_a_label_for_each_composition():
    dataset = load("scenes:300,labels=compositions")
    assert len(dataset.labels) == len(COMPOSED) * len(TEXTURES) * len(SHAPES) == len(set(COMPOSITIONS)) == 256
    assert dataset.targets.labels_per_image.min() >= 1
    assert dataset.targets.labels_per_image.max() <= 6
    assert (dataset.targets.positives > 0).mean() > 0.9
    assert dataset.images.identity != scenes(300).images.identity


@pytest.mark.slow
def test_the_colours_of_the_labels_are_in_the_image():
    dataset = scenes(20, labels="compositions", size=224)
    for index in range(20):
        pixels = np.asarray(Image.open(BytesIO(dataset.images[index]))).reshape(-1, 3).astype(int)
        values = dataset.targets.dense([index])[0][0]
        present = {label.split()[0] for label, value in zip(dataset.labels, values, strict=True) if value}
        for name in COMPOSED:
            near = (np.abs(pixels - np.array(COLOURS[name])).max(1) < 14).mean()
            assert (near > 0.002) == (name in present), (index, name, near)


def test_no_two_compositions_look_the_same():
    assert len({_draw(label, label.split()[0], 96).tobytes() for label in COMPOSITIONS}) == 256


def test_areas_of_compositions_are_what_is_seen():
    areas = scenes(30, labels="compositions").areas.toarray()
    assert areas[areas > 0].min() > 0.005
    assert areas.max() < 0.1
    circle = present_areas([Placement("red plain circle", "red", 0.5, 0.5, 0.8, 0)], min_visible=0.5)
    assert circle["red plain circle"] == pytest.approx(np.pi * 0.48**2 * 0.8**2, rel=0.03)


def test_writes_images_and_a_table_of_their_labels(tmp_path):
    table = write_scenes(tmp_path / "demo", 5, seed=3, size=64, unknown=0.2)
    dataset = scenes(5, seed=3, size=64, unknown=0.2)
    frame = pl.read_csv(table)
    assert frame.columns == ["image", *dataset.labels]
    assert [(table.parent / name).read_bytes() for name in frame["image"]] == [dataset.images[i] for i in range(5)]
    values, known = dataset.targets.dense()
    expected = [[int(v) if k else None for v, k in zip(*row, strict=True)] for row in zip(values, known, strict=True)]
    assert [list(row[1:]) for row in frame.rows()] == expected


def test_writes_over_nothing_unless_asked(tmp_path):
    table = write_scenes(tmp_path, 1, size=32)
    before = table.read_text()
    with pytest.raises(OutputExistsError, match="already exists"):
        write_scenes(tmp_path, 2, size=32)
    assert table.read_text() == before
    assert len(pl.read_csv(write_scenes(tmp_path, 2, size=32, overwrite=True))) == 2
