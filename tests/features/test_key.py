import os

import pytest

from manylabel.data.readers.scenes import scenes
from manylabel.data.sources import Files, JoinedSource, LazyBytes
from manylabel.errors import CacheError
from manylabel.features import FeatureSpec, image_ids
from tiny_features import make_spec


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "other"},
        {"weights": "x"},
        {"transform": "Crop"},
        {"stages": (1, 3)},
        {"pooling": "max"},
        {"view": 1},
        {"seed": 1},
    ],
)
def test_the_key_changes_with_everything_that_features_follow_from(change):
    assert make_spec(**change).key != make_spec().key
    assert FeatureSpec.from_json(make_spec(**change).to_json()).key == make_spec(**change).key


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dataset": "pets"}', make_spec(format=1).to_json()])
def test_rejects_what_describes_no_features(text):
    with pytest.raises(CacheError):
        FeatureSpec.from_json(text)


def write_images(folder, content=b"x"):
    folder.mkdir()
    for name in ("1.jpg", "2.jpg"):
        (folder / name).write_bytes(content)
    return folder


def test_an_image_is_known_by_its_name_and_content_wherever_its_folder_is_moved(tmp_path):
    folder = write_images(tmp_path / "a")
    here = image_ids(Files(folder, ["1.jpg", "2.jpg"]))
    moved = folder.rename(tmp_path / "b")
    assert (image_ids(Files(moved, ["2.jpg", "1.jpg"])) == here[::-1]).all()
    assert (image_ids(JoinedSource([Files(moved, [name]) for name in ("1.jpg", "2.jpg")])) == here).all()
    (moved / "1.jpg").write_bytes(b"xy")
    os.utime(moved / "2.jpg", ns=(2, 2))
    assert not (image_ids(Files(moved, ["1.jpg", "2.jpg"])) == here).any()


@pytest.mark.parametrize("position", [0, 30_000, 59_999])
def test_other_content_of_the_same_size_and_time_is_another_image(tmp_path, monkeypatch, position):
    content = bytearray(60_000)
    folder = write_images(tmp_path / "a", content)
    before, status = image_ids(Files(folder, ["1.jpg"])), (folder / "1.jpg").stat()
    content[position] = 1
    (folder / "1.jpg").write_bytes(content)
    os.utime(folder / "1.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert image_ids(Files(folder, ["1.jpg"])) != before
    # also where the file system has no ctime worth the name
    monkeypatch.setattr(os, "fstat", lambda _: status)
    assert image_ids(Files(folder, ["1.jpg"])) != before


def test_a_change_between_the_blocks_that_are_read_is_seen_by_its_ctime(tmp_path):
    content = bytearray(60_000)
    folder = write_images(tmp_path / "a", content)
    before, status = image_ids(Files(folder, ["1.jpg"])), (folder / "1.jpg").stat()
    content[10_000] = 1
    (folder / "1.jpg").write_bytes(content)
    os.utime(folder / "1.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert image_ids(Files(folder, ["1.jpg"])) != before


def test_bytes_are_known_by_content_or_by_what_they_follow_from():
    first = image_ids(LazyBytes(["a", "b"], load=lambda position: b"one"))
    assert first[0] != first[1]
    assert (image_ids(LazyBytes(["a", "b"], load=lambda position: b"two")) != first).all()

    def never(position):
        raise AssertionError("this content was not to be asked for")

    drawn = LazyBytes(["a", "b"], load=never, identity="seed 1")
    assert (image_ids(drawn)[[1]] == image_ids(drawn.take([1]))).all()
    assert (image_ids(LazyBytes(["a", "b"], load=never, identity="seed 2")) != image_ids(drawn)).all()
    assert (image_ids(scenes(3, seed=1).images) != image_ids(scenes(3, seed=2).images)).all()


def test_a_missing_image_gets_another_number_when_it_comes_back(tmp_path):
    missing = image_ids(Files(tmp_path, ["a.jpg"]))
    (tmp_path / "a.jpg").write_bytes(b"x")
    assert image_ids(Files(tmp_path, ["a.jpg"])) != missing
