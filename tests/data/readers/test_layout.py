import os
import sys

import pytest

from manylabel.data.readers.layout import existing, list_images, read_label_list
from manylabel.errors import DataError


def test_names_the_nearest_folder_that_exists(tmp_path):
    (tmp_path / "photos" / "old").mkdir(parents=True)
    with pytest.raises(DataError) as error:
        existing(tmp_path / "photos" / "odl" / "deep" / "a.jpg")
    assert f"did you mean 'old'? Available: old (in {tmp_path / 'photos'})" in str(error.value)


def test_names_what_is_beside_a_relative_path(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"photo does not exist; did you mean 'photos'\? Available: photos \(in \.\)"):
        existing("photo")


def test_follows_links_and_passes_over_hidden_files(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.jpg").touch()
    (tmp_path / "photos" / ".trash").mkdir(parents=True)
    (tmp_path / "photos" / ".trash" / "b.jpg").touch()
    (tmp_path / "photos" / "._c.jpg").touch()
    (tmp_path / "photos" / "link").symlink_to(tmp_path / "elsewhere")
    assert list_images(tmp_path / "photos") == ["link/a.jpg"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a file name be any bytes")
def test_rejects_a_name_that_is_not_unicode(tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff.jpg", "wb"):  # noqa: PTH123 - a Path cannot hold these bytes
        pass
    with pytest.raises(DataError, match=r"not valid Unicode: '\\udcff\.jpg'"):
        list_images(tmp_path)


@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_a_file_that_is_not_utf_8_is_told(tmp_path, ending):
    file = tmp_path / f"labels.{ending}"
    file.write_bytes("Hündin\nKater\n".encode("latin-1"))
    with pytest.raises(DataError, match=rf"labels\.{ending}: it is not UTF-8 text; save it again as UTF-8"):
        read_label_list(file)


@pytest.mark.parametrize("ending", ["txt", "csv"])
@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_a_file_without_labels_is_told(tmp_path, ending, text):
    file = tmp_path / f"labels.{ending}"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="the list of labels is empty"):
        read_label_list(file)


def test_the_first_column_of_a_table_counts(tmp_path):
    (tmp_path / "labels.csv").write_text('cat,1\n"dog, big",2\n', encoding="utf-8-sig")
    assert read_label_list("labels.csv", folder=tmp_path) == ["cat", "dog, big"]
