import pytest

from manylabel.data.readers.layout import read_label_list
from manylabel.errors import DataError


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
