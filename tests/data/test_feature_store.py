import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from manylabel import lock as lock_module
from manylabel.data.feature_store import (
    FeatureKind,
    FeatureStore,
    StoreWriter,
    check_room,
    default_root,
    list_stores,
    picture_ids,
    remove_store,
)
from manylabel.data.scenes import scenes
from manylabel.data.sources import Files, JoinedSource, LazyBytes
from manylabel.errors import BusyError, CacheError
from manylabel.lock import WriterLock
from manylabel.types import BadImage

SHAPES = ((4, 2, 3), (8, 1, 1))


def make_kind(**changes):
    settings = {
        "dataset": "pets",
        "backbone": "resnet10t",
        "weights": "w",
        "transform": "Resize",
        "stages": (0, 3),
        "shapes": SHAPES,
        "pooling": "none",
        "view": 0,
        "seed": 0,
    }
    return FeatureKind(**settings | changes)


def rows_of(ids):
    """Features that tell their picture's number."""
    return [
        np.full((len(ids), *shape), 1, np.float16) * ids.astype(np.float16)[:, None, None, None] for shape in SHAPES
    ]


def write(folder, *batches, kind=None, repair=False):
    with StoreWriter(folder, kind or make_kind(), repair=repair) as writer:
        for batch in batches:
            ids = np.asarray(batch, dtype=np.uint64)
            writer.append(rows_of(ids), ids=ids)


def numbers_in(folder, ids):
    """Read the features of pictures and tell from them which pictures they are of."""
    store = FeatureStore(folder)
    rows = store.find(np.asarray(ids, dtype=np.uint64))
    assert (rows >= 0).all()
    first, second = store.read(rows)
    assert first.shape == (len(ids), 4, 2, 3)
    assert (first == first[:, :1, :1, :1]).all()
    assert (second[:, 0, 0, 0] == first[:, 0, 0, 0]).all()
    return first[:, 0, 0, 0].int().tolist()


def test_gives_back_what_was_written_in_any_order(tmp_path):
    write(tmp_path / "a", [5, 3, 9], [7])
    assert numbers_in(tmp_path / "a", [9, 7, 5, 9]) == [9, 7, 5, 9]
    assert FeatureStore(tmp_path / "a").find(np.array([1, 4, 2**63], np.uint64)).tolist() == [-1, -1, -1]


def test_grows_by_appending(tmp_path):
    write(tmp_path / "a", [5, 3])
    write(tmp_path / "a", [8])
    assert numbers_in(tmp_path / "a", [3, 8, 5]) == [3, 8, 5]


def test_a_reader_keeps_what_it_opened_while_a_writer_appends(tmp_path):
    write(tmp_path / "a", [5])
    with StoreWriter(tmp_path / "a", make_kind()) as writer:
        store = FeatureStore(tmp_path / "a")
        writer.append(rows_of(np.array([6])), ids=np.array([6], np.uint64))
        assert len(store) == 1
        assert store.read(np.array([0]))[0].unique().tolist() == [5]
        assert numbers_in(tmp_path / "a", [6, 5]) == [6, 5]


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
    assert make_kind(**change).key != make_kind().key
    assert FeatureKind.from_json(make_kind(**change).to_json()).key == make_kind(**change).key


def test_a_picture_is_known_by_name_size_and_time_wherever_its_folder_is(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("1.jpg", "2.jpg"):
            (tmp_path / folder / name).write_bytes(b"x")
            os.utime(tmp_path / folder / name, ns=(1, 1))
    here = picture_ids(Files(tmp_path / "a", ["1.jpg", "2.jpg"]))
    assert (picture_ids(Files(tmp_path / "b", ["2.jpg", "1.jpg"])) == here[::-1]).all()
    assert (picture_ids(JoinedSource([Files(tmp_path / "b", [name]) for name in ("1.jpg", "2.jpg")])) == here).all()
    (tmp_path / "b" / "1.jpg").write_bytes(b"xy")
    os.utime(tmp_path / "b" / "2.jpg", ns=(2, 2))
    assert not (picture_ids(Files(tmp_path / "b", ["1.jpg", "2.jpg"])) == here).any()


def test_bytes_are_known_by_content_or_by_what_they_follow_from():
    first = picture_ids(LazyBytes(["a", "b"], load=lambda position: b"one"))
    assert first[0] != first[1]
    assert (picture_ids(LazyBytes(["a", "b"], load=lambda position: b"two")) != first).all()

    def never(position):
        raise AssertionError("this content was not to be asked for")

    drawn = LazyBytes(["a", "b"], load=never, identity="seed 1")
    assert (picture_ids(drawn)[[1]] == picture_ids(drawn.take([1]))).all()
    assert (picture_ids(LazyBytes(["a", "b"], load=never, identity="seed 2")) != picture_ids(drawn)).all()
    assert (picture_ids(scenes(3, seed=1).pictures) != picture_ids(scenes(3, seed=2).pictures)).all()


def test_a_missing_picture_gets_another_number_when_it_comes_back(tmp_path):
    missing = picture_ids(Files(tmp_path, ["a.jpg"]))
    (tmp_path / "a.jpg").write_bytes(b"x")
    assert picture_ids(Files(tmp_path, ["a.jpg"])) != missing


WRITER = """
import sys
import time
import numpy as np
sys.path[:0] = {paths!r}
from test_feature_store import make_kind, rows_of
from manylabel.data.feature_store import StoreWriter
from pathlib import Path
with StoreWriter(Path({folder!r}), make_kind()) as writer:
    for number in range(1000):
        ids = np.arange(number * 2, number * 2 + 2, dtype=np.uint64)
        writer.append(rows_of(ids), ids=ids)
        print(number, flush=True)
        time.sleep(0.001)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A store of which the writer was killed, and what a second writer was told before."""
    folder = tmp_path_factory.mktemp("killed") / "a"
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path.endswith("src"))]
    code = WRITER.format(paths=paths, folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while int(process.stdout.readline()) < 20:
        pass
    with pytest.raises(BusyError) as told:
        StoreWriter(folder, make_kind()).__enter__()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert f"written by process {process.pid} on" in str(told.value)
    return folder


@pytest.fixture
def killed_store(killed, tmp_path):
    return shutil.copytree(killed, tmp_path / "a")


def test_goes_on_behind_the_last_whole_batch_after_kill_9(killed_store):
    with (killed_store / "stage-0.f16").open("ab") as file:
        file.write(b"half a batch, of which the journal does not know")
    with (killed_store / "journal.jsonl").open("a") as file:
        file.write('0badc0de {"rows": 99')
    before = len(FeatureStore(killed_store))
    assert before >= 40
    write(killed_store, [2000, 2001])
    assert numbers_in(killed_store, [0, 39, 2000]) == [0, 39, 2000]
    assert len(FeatureStore(killed_store)) == before + 2


def test_rows_that_never_reached_the_disk_are_dropped(killed_store):
    """As after a power cut: the journal is there, the rows of its last batch are not."""
    before = len(FeatureStore(killed_store))
    row = 4 * 2 * 3 * 2
    with (killed_store / "stage-0.f16").open("r+b") as file:
        file.seek((before - 1) * row)
        file.write(bytes(row))
    write(killed_store, [2000])
    assert len(FeatureStore(killed_store)) == before - 2 + 1
    assert numbers_in(killed_store, [0, 37, 2000]) == [0, 37, 2000]


def test_a_lock_is_given_back_and_a_second_writer_told_who_has_it(tmp_path):
    with StoreWriter(tmp_path / "a", make_kind()), pytest.raises(BusyError, match=f"process {os.getpid()}"):
        StoreWriter(tmp_path / "a", make_kind()).__enter__()
    with StoreWriter(tmp_path / "a", make_kind()):
        pass
    assert not (tmp_path / "a" / "lock").exists()


def other_lock(path, *, machine, process=1, started="", age=0.0):
    holder = {"process": process, "machine": machine, "started": started, "token": "theirs"}
    path.write_text(json.dumps(holder))
    os.utime(path, (time.time() - age, time.time() - age))


def test_a_lock_of_another_machine_holds_until_it_shows_no_life(tmp_path):
    other_lock(tmp_path / "lock", machine="elsewhere", age=lock_module.STALE_AFTER - 60)
    assert str(WriterLock(tmp_path / "lock").acquire()) == "process 1 on elsewhere"
    other_lock(tmp_path / "lock", machine="elsewhere", age=lock_module.STALE_AFTER + 60)
    assert WriterLock(tmp_path / "lock").acquire() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process was started")
def test_a_lock_is_stale_if_its_process_is_gone_or_another_has_its_number(tmp_path):
    path, me = tmp_path / "lock", socket.gethostname()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = lock_module._start_of(process.pid)
    other_lock(path, machine=me, process=process.pid, started=started)
    assert WriterLock(path).holder().process == process.pid
    other_lock(path, machine=me, process=process.pid, started="12")
    assert WriterLock(path).holder() is None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but nobody took note yet
    other_lock(path, machine=me, process=process.pid, started=started)
    assert WriterLock(path).holder() is None
    process.communicate()
    assert WriterLock(path).acquire() is None


def test_a_half_made_lock_holds_for_a_moment_only(tmp_path):
    (tmp_path / "lock").touch()
    assert WriterLock(tmp_path / "lock").acquire() is not None
    os.utime(tmp_path / "lock", (time.time() - 120, time.time() - 120))
    assert WriterLock(tmp_path / "lock").acquire() is None


def test_a_writer_that_slept_does_not_write_into_what_another_took_over(tmp_path):
    with StoreWriter(tmp_path / "a", make_kind()) as writer:
        other_lock(tmp_path / "a" / "lock", machine="elsewhere")
        with pytest.raises(BusyError, match="another process took over"):
            writer.append(rows_of(np.array([1])), ids=np.array([1], np.uint64))
    assert (tmp_path / "a" / "lock").exists()  # it is theirs


class FullDisk:
    """A file that takes half of what it is given, then has no room."""

    def __init__(self, file):
        self.file = file

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_full_disk_is_told_and_what_was_written_is_kept(tmp_path, number):
    with StoreWriter(tmp_path / "a", make_kind()) as writer:
        writer.append(rows_of(np.array([1, 2])), ids=np.array([1, 2], np.uint64))
        writer._open[number] = FullDisk(writer._open[number])
        with pytest.raises(CacheError, match="is full; the features of 2 pictures are kept"):
            writer.append(rows_of(np.array([3, 4])), ids=np.array([3, 4], np.uint64))
    assert len(FeatureStore(tmp_path / "a")) == 2
    write(tmp_path / "a", [3, 4])
    assert numbers_in(tmp_path / "a", [1, 2, 3, 4]) == [1, 2, 3, 4]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 256 kB, where this user may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full_is_told_and_what_was_written_is_kept(small_disk):
    batches = np.arange(2**20).reshape(-1, 64)
    with pytest.raises(CacheError, match=r"is full; the features of \d,\d{3} pictures are kept"):
        write(small_disk / "a", *batches)
    kept = len(FeatureStore(small_disk / "a"))
    assert kept % 64 == 0
    assert numbers_in(small_disk / "a", [0, 1000]) == [0, 1000]
    with pytest.raises(CacheError, match="GB free"):
        check_room(small_disk / "b", num_bytes=1)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="set MANYLABEL_CACHE"), StoreWriter(tmp_path / "file" / "a", make_kind()):
        pass


def damage(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["stage-0.f16", "stage-3.f16", "pictures.u64"])
def test_damage_is_seen_on_opening_and_everything_in_front_of_it_is_kept(tmp_path, name):
    write(tmp_path / "a", [1, 2], [3, 4], [5, 6])
    path = tmp_path / "a" / name
    damage(path, path.stat().st_size // 2)
    with pytest.raises(CacheError, match="rows 2 to 4 are not what was written"):
        FeatureStore(tmp_path / "a")
    write(tmp_path / "a", [7], repair=True)
    assert numbers_in(tmp_path / "a", [1, 2, 7]) == [1, 2, 7]
    assert len(FeatureStore(tmp_path / "a")) == 3


def test_a_file_that_was_cut_short_is_seen_and_never_filled_up_with_zeros(tmp_path):
    write(tmp_path / "a", [1, 2], [3, 4])
    path = tmp_path / "a" / "stage-3.f16"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CacheError, match=r"stage-3.f16 has 63 bytes, but 64 were written"):
        FeatureStore(tmp_path / "a")
    write(tmp_path / "a", [7])
    assert numbers_in(tmp_path / "a", [1, 2, 7]) == [1, 2, 7]


@pytest.mark.parametrize("name", ["kind.json", "journal.jsonl", "pictures.u64", "stage-3.f16"])
def test_a_file_that_is_gone_is_seen_and_made_again(tmp_path, name):
    write(tmp_path / "a", [1])
    (tmp_path / "a" / name).unlink()
    with pytest.raises(CacheError, match="cannot be used"):
        FeatureStore(tmp_path / "a")
    write(tmp_path / "a", [1], repair=True)
    assert numbers_in(tmp_path / "a", [1]) == [1]


def test_a_damaged_line_of_the_journal_ends_what_is_believed(tmp_path):
    write(tmp_path / "a", [1], [2], [3])
    journal = tmp_path / "a" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1].replace('"rows": 2', '"rows": 3') + lines[2])
    assert len(FeatureStore(tmp_path / "a")) == 1


def test_bad_pictures_are_recorded_once(tmp_path):
    with StoreWriter(tmp_path / "a", make_kind()) as writer:
        for _ in range(2):
            nothing = [np.empty((0, *shape), np.float16) for shape in SHAPES]
            bad = [BadImage(7, "b.jpg", "it is empty")]
            writer.append(nothing, ids=np.empty(0, np.uint64), bad=bad)
    assert list_stores(tmp_path)[0].bad == {"b.jpg": "it is empty"}
    assert (tmp_path / "a" / "journal.jsonl").read_text().count("b.jpg") == 1
    assert len(FeatureStore(tmp_path / "a")) == 0


def test_lists_stores_the_last_used_first_and_removes_them(tmp_path):
    kinds = [make_kind(view=view) for view in range(3)]
    for age, kind in enumerate(kinds):
        write(tmp_path / kind.key, [1, 2], kind=kind)
        for path in (tmp_path / kind.key).iterdir():
            os.utime(path, (1000 - age, 1000 - age))
    assert [store.key for store in list_stores(tmp_path)] == [kind.key for kind in kinds]
    FeatureStore(tmp_path / kinds[2].key)
    newest = list_stores(tmp_path)[0]
    assert (newest.kind, newest.num_pictures, newest.writer) == (kinds[2], 2, "")
    assert newest.num_bytes == sum(path.stat().st_size for path in newest.folder.iterdir())
    remove_store(kinds[0].key[:6], tmp_path)
    assert {store.key for store in list_stores(tmp_path)} == {kind.key for kind in kinds[1:]}
    with pytest.raises(CacheError, match=f"there is.*{kinds[1].key}"):
        remove_store("no such key", tmp_path)


def test_does_not_remove_what_is_being_written(tmp_path):
    with StoreWriter(tmp_path / "a", make_kind()):
        with pytest.raises(BusyError):
            remove_store("a", tmp_path)
        assert list_stores(tmp_path)[0].writer.startswith(f"process {os.getpid()}")


def test_the_folder_of_all_stores_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    assert default_root() == tmp_path / "features"
