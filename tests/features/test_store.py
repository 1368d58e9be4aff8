import pickle

import numpy as np
import pytest

from manylabel.errors import CacheError
from manylabel.features import FeatureStore, StoreWriter
from manylabel.features.store import check_room
from tiny_features import found_in, make_spec, open_store, rows_of, write


def test_gives_back_what_was_written_in_any_order(tmp_path):
    write(tmp_path / "a", [5, 3, 9], [7])
    assert found_in(tmp_path / "a", [9, 7, 5, 9]) == [9, 7, 5, 9]
    assert open_store(tmp_path / "a").find(np.array([1, 4, 2**63], np.uint64)).tolist() == [-1, -1, -1]


def test_grows_by_appending(tmp_path):
    write(tmp_path / "a", [5, 3])
    write(tmp_path / "a", [8])
    assert found_in(tmp_path / "a", [3, 8, 5]) == [3, 8, 5]


def test_a_reader_keeps_what_it_opened_while_a_writer_appends(tmp_path):
    write(tmp_path / "a", [5])
    with StoreWriter(tmp_path / "a", make_spec()) as writer:
        store = open_store(tmp_path / "a")
        writer.append(rows_of(np.array([6])), ids=np.array([6], np.uint64))
        assert len(store) == 1
        assert store.read(np.array([0]))[0].unique().tolist() == [5]
        assert found_in(tmp_path / "a", [6, 5]) == [6, 5]


def test_a_store_that_does_not_exist_is_empty(tmp_path):
    store = open_store(tmp_path / "nothing")
    assert len(store) == 0
    assert store.find(np.array([1], np.uint64)).tolist() == [-1]
    assert not (tmp_path / "nothing").exists()


def test_another_process_maps_the_files_itself(tmp_path):
    write(tmp_path / "a", range(1000))
    store = open_store(tmp_path / "a")
    store.read(np.arange(1000))
    content = pickle.dumps(store)
    assert len(content) < 2000
    again = pickle.loads(content)
    assert again.find(np.array([7], np.uint64)).tolist() == [7]
    assert again.read(np.array([7]))[1].unique().tolist() == [7]


def test_each_batch_is_compared_with_its_checksum_once_and_only_if_it_is_needed(tmp_path, monkeypatch):
    write(tmp_path / "a", [1, 2], [3, 4], [5, 6])
    store = FeatureStore(tmp_path / "a", make_spec())
    compared = []
    real = FeatureStore._is_intact
    monkeypatch.setattr(
        FeatureStore, "_is_intact", lambda self, chunk: compared.append(chunk.start) or real(self, chunk)
    )
    assert store.check(np.array([-1, 5, 2])) == 0
    assert sorted(compared) == [2, 4]
    assert store.check(np.arange(6)) == 0
    assert sorted(compared) == [0, 2, 4]


def test_room_is_told_in_units_that_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1234}))
    with pytest.raises(CacheError, match=r"take 5.6 MB, but the disk of .* has 1.2 kB free"):
        check_room(tmp_path, num_bytes=5_600_000)
