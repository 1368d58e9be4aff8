import os
import sys

import pytest

from manylabel.data.readers.layout import existing, picture_names
from manylabel.errors import DataError


def test_names_the_nearest_folder_that_exists(tmp_path):
    (tmp_path / "photos" / "old").mkdir(parents=True)
    with pytest.raises(DataError) as error:
        existing(tmp_path / "photos" / "odl" / "deep" / "a.jpg")
    assert f"did you mean 'old'? There is: old (in {tmp_path / 'photos'})" in str(error.value)


def test_names_what_is_beside_a_relative_path(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"photo does not exist; did you mean 'photos'\? There is: photos \(in \.\)"):
        existing("photo")


def test_follows_links_and_passes_over_hidden_files(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.jpg").touch()
    (tmp_path / "photos" / ".trash").mkdir(parents=True)
    (tmp_path / "photos" / ".trash" / "b.jpg").touch()
    (tmp_path / "photos" / "._c.jpg").touch()
    (tmp_path / "photos" / "link").symlink_to(tmp_path / "elsewhere")
    assert picture_names(tmp_path / "photos") == ["link/a.jpg"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a file name be any bytes")
def test_rejects_a_name_that_is_not_unicode(tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff.jpg", "wb"):  # noqa: PTH123 - a Path cannot hold these bytes
        pass
    with pytest.raises(DataError, match=r"not valid Unicode: '\\udcff\.jpg'"):
        picture_names(tmp_path)
