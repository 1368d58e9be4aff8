import os
import socket
import tempfile
import time
from pathlib import Path

import pytest

from manylabel.errors import BusyError, CacheError
from manylabel.features import FeatureStore, StoreWriter, default_root, list_stores, remove_leftovers, remove_store
from tiny_features import make_spec, write


def test_lists_stores_the_last_used_first_and_removes_them(tmp_path):
    specs = [make_spec(view=view) for view in range(3)]
    for age, spec in enumerate(specs):
        write(tmp_path / spec.key, [1, 2], spec=spec)
        for path in (tmp_path / spec.key).iterdir():
            os.utime(path, (1000 - age, 1000 - age))
    assert [store.key for store in list_stores(tmp_path)] == [spec.key for spec in specs]
    FeatureStore(tmp_path / specs[2].key, specs[2])
    newest = list_stores(tmp_path)[0]
    assert (newest.spec, newest.num_images, newest.writer) == (specs[2], 2, "")
    assert newest.num_bytes == sum(path.stat().st_size for path in newest.folder.iterdir())
    remove_store(specs[0].key[:6], tmp_path)
    assert {store.key for store in list_stores(tmp_path)} == {spec.key for spec in specs[1:]}
    with pytest.raises(CacheError, match=f"available.*{specs[1].key}"):
        remove_store("no such key", tmp_path)


def test_does_not_remove_what_is_being_written(tmp_path):
    with StoreWriter(tmp_path / "a", make_spec()):
        with pytest.raises(BusyError):
            remove_store("a", tmp_path)
        assert list_stores(tmp_path)[0].writer.startswith(f"process {os.getpid()}")


def test_the_folder_of_all_stores_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    assert default_root() == tmp_path / "features"


def aged(path):
    os.utime(path, (time.time() - 7200, time.time() - 7200))
    return path


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    write(tmp_path / "a", [1, 2])
    for name in ("a/.spec.x1.json", "a/.journal.x2.jsonl", "models/.b2.x3.onnx", "models/b2.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        aged(write_file(tmp_path / name))
    fresh = write_file(tmp_path / "a" / ".spec.x4.json")  # somebody may be writing it now
    for name in ("never begun", "begun just now"):
        (tmp_path / name).mkdir()
    aged(tmp_path / "never begun")
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "begun just now", "models"]
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["b2.onnx"]
    assert [path for path in (tmp_path / "a").iterdir() if path.name.startswith(".")] == [fresh]
    write(tmp_path / "a", [3])  # who writes to a store is alone in it
    assert not fresh.exists()
    assert len(FeatureStore(tmp_path / "a", make_spec())) == 3


def write_file(path):
    path.write_text("half a fi")
    return path


@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="only Linux lists the sockets that are in use")
def test_sockets_of_dead_workers_are_removed_those_of_live_ones_are_not(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="s") as short:  # a socket's path may have 107 letters
        monkeypatch.setattr(tempfile, "tempdir", short)
        listeners = {name: socket.socket(socket.AF_UNIX) for name in ("pymp-dead", "pymp-live", "other-dead")}
        for name, listener in listeners.items():
            (Path(short) / name).mkdir()
            listener.bind(str(Path(short) / name / "listener-1"))
        listeners["pymp-dead"].close()
        listeners["other-dead"].close()
        (Path(short) / "pymp-empty").mkdir()  # its process may be about to use it
        remove_leftovers(Path(short) / "features")
        assert sorted(path.name for path in Path(short).iterdir()) == ["other-dead", "pymp-empty", "pymp-live"]
        listeners["pymp-live"].close()
