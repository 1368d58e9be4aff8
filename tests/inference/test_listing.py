import pytest

from manylabel.errors import ConfigError, DataError
from manylabel.inference.listing import list_pictures


@pytest.fixture
def folder(tmp_path):
    for name in ("b.jpg", "a.PNG", "notes.txt", ".hidden.jpg", "inner/c.webp", ".cache/d.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


def relative(folder, names):
    return [name.removeprefix(f"{folder}/") for name in names]


def test_a_folder_gives_all_below_it_in_order_of_names(folder):
    assert relative(folder, list_pictures([str(folder)])) == ["a.PNG", "b.jpg", "inner/c.webp"]


def test_patterns_and_files_are_taken_as_they_come(folder):
    given = [f"{folder}/**/*.*p*g*", f"{folder}/notes.txt", "gone.jpg"]
    found = relative(folder, list_pictures(given))
    assert found[-2:] == ["notes.txt", "gone.jpg"]
    assert set(found[:-2]) == {"b.jpg"} | ({"a.PNG"} & set(found))


def test_nothing_is_listed_before_it_is_asked_for(folder):
    def endless():
        while True:
            yield "a.jpg\n"

    names = list_pictures(["-"], listed=endless())
    assert [next(names) for _ in range(3)] == ["a.jpg"] * 3


def test_a_name_with_spaces_at_its_ends_stays_whole():
    assert list(list_pictures(["-"], listed=[" a.jpg \r\n", "\n"])) == [" a.jpg "]


def test_addresses_are_fetched_only_when_allowed():
    address = "https://example.org/a.jpg"
    assert list(list_pictures([address, "-"], listed=[address], allow_urls=True)) == [address, address]
    for paths in ([address], ["-"]):
        with pytest.raises(ConfigError, match="--allow-urls"):
            list(list_pictures(paths, listed=[address]))


def test_an_empty_folder_and_a_pattern_without_matches_are_errors(folder):
    for path in (f"{folder}/empty", f"{folder}/*.gif"):
        with pytest.raises(DataError, match=r"no pictures in .*\.jpg"):
            list(list_pictures([path]))
