"""Demo scenes: what is drawn, what is labelled, and that both agree."""

import pickle
from io import BytesIO
from random import Random

import numpy as np
import polars as pl
import pytest
from PIL import Image

from manylabel.data import scenes, write_scenes
from manylabel.data.readers.scenes.backgrounds import BACKGROUNDS
from manylabel.data.readers.scenes.catalogue import KINDS, THEMES, outline
from manylabel.data.readers.scenes.layout import Placement, Scene, arrange
from manylabel.data.readers.scenes.painting import paint, stamp
from manylabel.data.readers.scenes.pen import Pen
from manylabel.data.readers.scenes.visibility import present_areas, views
from manylabel.errors import ConfigError, OutputExistsError

STYLES = [(label, style) for label, kind in KINDS.items() for style in range(kind.styles)]


@pytest.fixture(scope="module")
def many():
    return scenes(400, seed=11)


def square(label: str, x: float, y: float, size: float = 0.4) -> Placement:
    return Placement(label, 0, (200, 40, 40), x, y, (size, 0, 0, size))


def test_draws_the_same_bytes_twice_and_others_for_another_seed():
    first, again, other = scenes(4, seed=5, size=64), scenes(4, seed=5, size=64), scenes(4, seed=6, size=64)
    assert [first.pictures[i] for i in range(4)] == [again.pictures[i] for i in range(4)]
    assert all(first.pictures[i] != other.pictures[i] for i in range(4))


def test_a_picture_does_not_depend_on_how_many_there_are(many):
    few = scenes(3, seed=11)
    assert few.pictures[2] == many.pictures[2]
    assert few.pictures.name(2) == many.pictures.name(2)
    assert np.array_equal(few.targets.dense()[0], many.targets.dense(slice(3))[0])


def test_a_picture_does_not_depend_on_process_or_machine():
    scene = arrange(3, 9)
    assert scene.theme == "night"
    assert [placement.label for placement in scene.placements] == ["star", "rocket", "star", "moon", "tree", "house"]
    picture = Image.open(BytesIO(scenes(10, seed=3).pictures[9]))
    assert np.asarray(picture).mean(axis=(0, 1)) == pytest.approx([89, 92, 112], abs=1.5)


def test_decodes_to_rgb_of_the_right_size(many):
    for size, dataset in ((256, many), (96, scenes(1, size=96))):
        picture = Image.open(BytesIO(dataset.pictures[0]))
        assert (picture.mode, picture.size) == ("RGB", (size, size))


def test_survives_being_sent_to_another_process():
    dataset = scenes(3, size=64)
    assert pickle.loads(pickle.dumps(dataset)).pictures[1] == dataset.pictures[1]


def test_every_label_occurs_and_every_picture_has_one(many):
    assert len(many.labels) == 24
    assert many.targets.positives.min() >= 10
    assert many.targets.labels_per_picture.min() >= 1


def test_splits_are_four_to_one_and_can_be_asked_for(many):
    assert {name: len(part) for name, part in many.splits.items()} == {"train": 320, "val": 80}
    part = scenes(10, split="val")
    assert [part.pictures.name(i) for i in range(len(part))] == ["scene-00004.jpg", "scene-00009.jpg"]


def test_objects_are_5_to_60_percent_as_wide_as_the_picture():
    boxes = np.array([placement.box for index in range(300) for placement in arrange(0, index).placements])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert widths.min() >= 0.05 - 1e-9
    assert max(widths.max(), heights.max()) <= 0.6 + 1e-9
    assert widths.min() < 0.08
    assert widths.max() > 0.5


def test_labels_of_a_theme_come_together(many):
    present = many.targets.dense()[0]
    together = present.T @ present
    positives = np.diag(together)
    expected = np.outer(positives, positives) / len(many)
    lift = together / expected
    column = many.labels.index
    for labels in (theme.labels for theme in THEMES.values()):
        pairs = [lift[column(a), column(b)] for a in labels for b in labels if a < b]
        assert np.mean(pairs) > 1.3
    assert lift[column("moon"), column("cup")] < 0.5
    assert together[column("moon")].astype(bool).sum() > len(THEMES["night"].labels)  # sometimes an outsider


def test_a_hidden_object_is_not_labelled():
    cat, ball = square("cat", 0.5, 0.5, 0.2), square("ball", 0.5, 0.5, 0.5)
    assert set(present_areas([cat, ball], min_visible=0.3)) == {"ball"}
    assert set(present_areas([ball, cat], min_visible=0.3)) == {"ball", "cat"}


def test_a_half_hidden_object_is_labelled_up_to_the_share_that_is_seen():
    back, front = square("ball", 0.4, 0.5), square("book", 0.55, 0.5)
    visible = views([back, front])[0].visible
    assert 0.1 < visible < 0.9
    assert "ball" in present_areas([back, front], min_visible=visible)
    assert "ball" not in present_areas([back, front], min_visible=visible + 0.01)


def test_what_is_outside_the_picture_is_not_seen():
    assert views([square("ball", 0.0, 0.5)])[0].visible == pytest.approx(0.5, abs=0.02)
    assert views([square("ball", 1.0, 1.0)])[0].visible == pytest.approx(0.25, abs=0.02)
    assert views([square("ball", 5.0, -3.0)])[0].visible == 0


def test_the_area_of_a_label_is_that_of_its_largest_object():
    small, large = square("ball", 0.2, 0.2, 0.1), square("ball", 0.6, 0.6, 0.5)
    area = present_areas([large, small], min_visible=0.3)["ball"]
    assert area == pytest.approx(np.pi * (0.48 * 0.5) ** 2, rel=0.03)


@pytest.mark.parametrize("index", range(6))
def test_areas_agree_with_what_is_painted(index):
    size, placements = 256, arrange(4, index).placements
    owner = np.full((size, size), -1)
    for number, placement in enumerate(placements):
        patch, left, top = stamp(placement, size=size)
        canvas = Image.new("L", (size, size))
        canvas.paste(patch.getchannel("A"), (left, top))
        owner[np.asarray(canvas) > 127] = number
    for number, view in enumerate(views(placements)):
        assert view.area == pytest.approx(np.mean(owner == number), rel=0.12, abs=0.001)


@pytest.mark.parametrize(("label", "style"), STYLES)
def test_an_outline_fits_its_margin_and_does_not_depend_on_the_colour(label, style):
    mask = np.asarray(outline(label, style))
    assert not np.r_[mask[0], mask[-1], mask[:, 0], mask[:, -1]].any()
    canvas = Image.new("RGBA", mask.shape)
    KINDS[label].draw(Pen(canvas, (128, 0, 16, 0, 128, 16)), (1, 2, 3), style)
    assert np.array_equal(np.asarray(canvas.getchannel("A")), mask)


def test_styles_of_a_kind_look_different():
    for label, kind in KINDS.items():
        pictures = set()
        for style in range(kind.styles):
            patch, _, _ = stamp(Placement(label, style, kind.colours[0], 0.5, 0.5, (0.5, 0, 0, 0.5)), size=128)
            pictures.add(patch.tobytes())
        assert len(pictures) == kind.styles, label


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_every_theme_has_a_textured_background(theme):
    picture = np.asarray(paint(Scene(theme, 0.5, ()), size=128, chance=Random(1)), dtype=float)
    rows_differ = picture.mean(axis=1).std(axis=0).max()
    noise = picture.std(axis=1).mean()
    assert rows_differ > 5
    assert noise > 1


def test_themes_and_backgrounds_have_the_same_names():
    assert list(BACKGROUNDS) == list(THEMES)
    assert {label for theme in THEMES.values() for label in theme.labels} == set(KINDS)


def test_makes_the_asked_share_unknown():
    plain, dataset = scenes(300, seed=2), scenes(300, seed=2, unknown=0.25)
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
        ({"unknown": 1.5}, "unknown must be a share"),
        ({"min_visible": 0}, "min_visible must be a share"),
    ],
)
def test_rejects_numbers_out_of_range(values, message):
    with pytest.raises(ConfigError, match=message):
        scenes(**({"n": 2} | values))


def test_writes_pictures_and_a_table_of_their_labels(tmp_path):
    table = write_scenes(tmp_path / "demo", 5, seed=3, size=64, unknown=0.2)
    dataset = scenes(5, seed=3, size=64, unknown=0.2)
    frame = pl.read_csv(table)
    assert frame.columns == ["image", *dataset.labels]
    assert [(table.parent / name).read_bytes() for name in frame["image"]] == [dataset.pictures[i] for i in range(5)]
    values, known = dataset.targets.dense()
    expected = [[int(v) if k else None for v, k in zip(*row, strict=True)] for row in zip(values, known, strict=True)]
    assert [list(row[1:]) for row in frame.rows()] == expected


def test_writes_over_nothing_unless_asked(tmp_path):
    table = write_scenes(tmp_path, 1, size=32)
    before = table.read_text()
    with pytest.raises(OutputExistsError, match="exists already"):
        write_scenes(tmp_path, 2, size=32)
    assert table.read_text() == before
    assert len(pl.read_csv(write_scenes(tmp_path, 2, size=32, overwrite=True))) == 2
