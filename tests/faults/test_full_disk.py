import errno

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import save_file

from faults.disk import full_after
from manylabel.errors import DiskFullError, OutputExistsError, StorageError
from manylabel.lock import WriterLock
from manylabel.storage import append, replacing, replacing_folder, write_errors, write_text

LIBRARIES = {
    "text": lambda file: file.write_text("x" * 50_000),
    "safetensors": lambda file: save_file({"a": np.zeros(50_000, dtype=np.uint8)}, file),
    "parquet": lambda file: pl.DataFrame({"a": np.random.default_rng(0).random(20_000)}).write_parquet(file),
    "numpy": lambda file: np.zeros(50_000).tofile(file),
    "torch": lambda file: torch.save({"a": torch.zeros(50_000)}, file),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_whoever_writes_a_full_disk_is_a_sentence_and_the_old_file_stays(tmp_path, library):
    file = write_text(tmp_path / "a.bin", "old")
    is_full = pytest.raises(DiskFullError, match=r"a\.bin: the disk is full.*--resume")
    with full_after(4096), is_full, replacing(file, overwrite=True) as temporary:
        LIBRARIES[library](temporary)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_rows_are_added_whole_or_not_at_all(tmp_path):
    rows = [f"row {number}\n".encode() * 40 for number in range(8)]
    whole = b"".join(rows)

    def append_all(file):
        for row in rows:
            append(file, row)

    for limit in range(0, len(whole), 97):
        file = tmp_path / f"{limit}.txt"
        with full_after(limit), pytest.raises(DiskFullError, match="--resume"):
            append_all(file)
        written = file.read_bytes()
        assert whole.startswith(written)
        assert len(written) in np.cumsum([0, *map(len, rows)])
        assert limit - len(written) < len(rows[0])  # what fits is kept


def test_a_folder_on_a_full_disk_stays_as_it_was(tmp_path):
    with replacing_folder(tmp_path / "model") as temporary:
        write_text(temporary / "a.txt", "old")
    filling = replacing_folder(tmp_path / "model", overwrite=True)
    with full_after(4096), pytest.raises(DiskFullError), filling as temporary:
        save_file({"a": np.zeros(50_000)}, temporary / "weights.safetensors")
    assert (tmp_path / "model" / "a.txt").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


def test_a_place_that_cannot_be_written_to_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    for write in (lambda path: write_text(path, "x"), lambda path: append(path, b"x")):
        with pytest.raises(StorageError, match="choose a writable location"):
            write(tmp_path / "file" / "a.txt")
    with pytest.raises(StorageError), replacing_folder(tmp_path / "file" / "model"):
        pass


def test_other_errors_inside_the_block_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "a.txt"):
        (tmp_path / "no_such.txt").read_text()
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a.txt"):
        _ = 1 / 0
    with pytest.raises(OutputExistsError), write_errors("a"):
        raise OutputExistsError("a")
    with pytest.raises(StorageError, match="Read-only"), write_errors("a"):
        raise OSError(errno.EROFS, "Read-only file system")


def test_a_lock_that_could_not_be_written_is_not_held(tmp_path):
    lock = WriterLock(tmp_path / "lock")
    with full_after(0), pytest.raises(OSError, match="File too large"):
        lock.acquire()
    assert lock.acquire() is None
