from pathlib import Path

import pytest

from conformance.reader_suite import Example, ReaderSuite, draw
from manylabel.data import files
from manylabel.errors import DataError


def names(dataset):
    return [dataset.pictures.name(index) for index in range(len(dataset))]


class TestFiles(ReaderSuite):
    format = "files"
    reader = staticmethod(files)

    def build(self, tmp_path):
        root = tmp_path / "photos"
        for name in ("b.jpg", "a, b.png", "old/c.webp", 'new\nline "x".gif'):
            draw(root / name)
        (root / "notes.txt").touch()
        listed = ["a, b.png", "b.jpg", 'new\nline "x".gif', "old/c.webp"]
        return Example(root, names=listed, labels=[], values=[[]] * 4, known=[[]] * 4)

    def spoil(self, dataset):
        dataset.pictures[0].write_text("not an image")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    for name in ("a.jpg", "b.png", "sub/c.jpg"):
        draw(tmp_path / "photos" / name)
    (tmp_path / "photos" / "raw.data").write_bytes((tmp_path / "photos" / "a.jpg").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("photos/a.jpg", ["photos/a.jpg"]),
        (Path("photos/raw.data"), ["photos/raw.data"]),
        ("photos/*", ["photos/a.jpg", "photos/b.png"]),
        ("photos/**/*.jpg", ["photos/a.jpg", "photos/sub/c.jpg"]),
        (["photos/sub", "photos/a.jpg"], ["photos/sub/c.jpg", "photos/a.jpg"]),
        (["photos/a.jpg", "photos/*.jpg"], ["photos/a.jpg"]),
        (["photos"], ["a.jpg", "b.png", "sub/c.jpg"]),
    ],
)
def test_takes_files_folders_patterns_and_lists(photos, paths, expected):
    dataset = files(paths)
    assert names(dataset) == expected
    assert all(dataset.pictures[index].is_file() for index in range(len(dataset)))


def test_takes_a_pattern_from_the_root(photos):
    assert names(files(f"{photos}/*.png")) == [str(photos / "b.png")]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(photos):
    draw(photos / "x[1].jpg")
    assert names(files("photos/x[1].jpg")) == ["photos/x[1].jpg"]


def test_keeps_a_missing_picture_of_a_list_for_whoever_opens_it(photos):
    assert names(files(["photos/a.jpg", "photos/gone.jpg"])) == ["photos/a.jpg", "photos/gone.jpg"]


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ("photos/gone.jpg", r"gone\.jpg does not exist; .*here is: a\.jpg, .* \(in photos\)"),
        (["photos/a.jpg", "photoz"], "did you mean 'photos'"),
        ("photos/*.tif", r"no images in photos/\*.tif"),
        ([], "the list of pictures is empty"),
    ],
)
def test_says_what_is_there_when_nothing_is_found(photos, paths, reason):
    with pytest.raises(DataError, match=reason):
        files(paths)


def test_says_what_is_there_in_a_folder_without_pictures(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match=r"no images in .*\.jpg.*there is: notes\.txt"):
        files(tmp_path)
