import stat

import pytest

from manylabel.errors import OutputExistsError
from manylabel.storage import replacing, replacing_folder, write_text


def test_refuses_to_overwrite_unless_asked(tmp_path):
    path = write_text(tmp_path / "a.txt", "old")
    with pytest.raises(OutputExistsError, match=r"a\.txt already exists.*--overwrite"):
        write_text(path, "new")
    assert path.read_text() == "old"
    write_text(path, "new", overwrite=True)
    assert path.read_text() == "new"


def test_an_error_while_writing_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = write_text(tmp_path / "a.txt", "old")

    def fail_half_way():
        with replacing(path, overwrite=True) as temporary:
            temporary.write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail_half_way()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_makes_parent_folders_and_a_file_that_others_can_read(tmp_path):
    path = write_text(tmp_path / "deep" / "er" / "a.txt", "text")
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRGRP


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    model = tmp_path / "model"
    with replacing_folder(model) as temporary:
        write_text(temporary / "old.txt", "old")
    with pytest.raises(OutputExistsError), replacing_folder(model):
        pass

    def fail_half_way():
        with replacing_folder(model, overwrite=True) as temporary:
            write_text(temporary / "new.txt", "half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail_half_way()
    assert [file.name for file in model.iterdir()] == ["old.txt"]
    with replacing_folder(model, overwrite=True) as temporary:
        write_text(temporary / "new.txt", "new")
    assert [file.name for file in model.iterdir()] == ["new.txt"]
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_an_empty_folder_may_be_filled_without_asking(tmp_path):
    (tmp_path / "model").mkdir()
    with replacing_folder(tmp_path / "model") as temporary:
        write_text(temporary / "a.txt", "text")
    assert (tmp_path / "model" / "a.txt").exists()


def test_others_can_read_every_file_of_a_folder(tmp_path):
    with replacing_folder(tmp_path / "model") as temporary:
        write_text(temporary / "deep" / "a.txt", "text").chmod(0o600)  # as safetensors leaves its files
    assert stat.S_IMODE((tmp_path / "model" / "deep" / "a.txt").stat().st_mode) & stat.S_IRGRP
