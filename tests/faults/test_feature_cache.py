"""The cache of features under kills, full disks, damage and two writers."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from faults.disk import die_at_move, full_after
from manylabel.errors import BusyError, CacheError
from manylabel.features import StoreWriter, list_stores
from manylabel.features import store as store_module
from manylabel.features.store import check_room
from test_lock import other_lock
from tiny_features import (
    assert_close,
    cache,
    found_in,
    make_backbone,
    make_dataset,
    make_spec,
    open_store,
    rows_of,
    write,
    write_images,
)

FORKS = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the child only writes files


def start_writing(folder):
    """Start a process that writes batches of two images until it is killed; return its number once it has begun."""
    reader, told = os.pipe()
    process = os.fork()
    if process:
        os.close(told)
        assert os.read(reader, 1)
        os.close(reader)
        return process
    try:
        with StoreWriter(folder, make_spec()) as writer:
            for first in range(len(writer.store), 2000, 2):
                ids = np.arange(first, first + 2, dtype=np.uint64)
                writer.append(rows_of(ids), ids=ids)
                os.write(told, b".")
                time.sleep(0.0005)
    finally:
        os._exit(1)


def kill(process):
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.mark.slow
@FORKS
def test_kills_at_any_moment_leave_whole_batches_and_the_next_writer_goes_on(tmp_path):
    folder, chance = tmp_path / "a", random.Random(0)
    for _ in range(15):
        process = start_writing(folder)
        with pytest.raises(BusyError, match=f"written by process {process} on"):
            StoreWriter(folder, make_spec()).__enter__()
        time.sleep(chance.random() / 50)
        kill(process)
        assert not open_store(folder).damaged
        count = len(open_store(folder))
        assert count % 2 == 0
        assert found_in(folder, range(2000)) == list(range(count))
    write(folder, [2000])
    assert list_stores(tmp_path)[0].num_images == count + 1


@pytest.mark.slow
@FORKS
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("before", [True, False])
def test_a_kill_while_the_journal_is_written_anew_loses_nothing(tmp_path, number, before):
    write(tmp_path / "a", [0, 1], [2, 3], [4, 5])
    damage(tmp_path / "a" / "images.u64", 20)  # of the second batch, so that there is something to drop
    process = os.fork()
    if not process:
        try:
            die_at_move(pytest.MonkeyPatch(), number, before=before)  # of the description, then of the journal
            write(tmp_path / "a", [6])
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL
    assert found_in(tmp_path / "a", range(9)) == [0, 1, 4, 5]
    write(tmp_path / "a", [2, 3])
    assert found_in(tmp_path / "a", range(9)) == [0, 1, 2, 3, 4, 5]
    assert not list((tmp_path / "a").glob(".*"))


def test_goes_on_behind_half_a_batch(tmp_path):
    write(tmp_path / "a", [0, 1], [2, 3])
    with (tmp_path / "a" / "stage-0.f16").open("ab") as file:
        file.write(b"half a batch, of which the journal does not know")
    with (tmp_path / "a" / "journal.jsonl").open("a") as file:
        file.write('0badc0de {"start": 99')
    assert found_in(tmp_path / "a", [0, 1, 2, 3]) == [0, 1, 2, 3]
    write(tmp_path / "a", [4, 5])
    write(tmp_path / "a", [6])
    assert found_in(tmp_path / "a", range(9)) == [0, 1, 2, 3, 4, 5, 6]


def test_rows_that_never_reached_the_disk_are_dropped(tmp_path):
    """As after a power cut: the journal is there, the rows of its last batch are not."""
    write(tmp_path / "a", [0, 1], [2, 3])
    with (tmp_path / "a" / "stage-0.f16").open("r+b") as file:
        file.seek(3 * 48)
        file.write(bytes(48))
    store = open_store(tmp_path / "a")
    assert found_in(tmp_path / "a", range(4)) == [0, 1]
    write(tmp_path / "a", [3], damaged=store.damaged)
    assert found_in(tmp_path / "a", range(4)) == [0, 1, 3]


def test_a_lock_is_given_back_and_a_second_writer_told_who_has_it(tmp_path):
    with StoreWriter(tmp_path / "a", make_spec()), pytest.raises(BusyError, match=f"process {os.getpid()}"):
        StoreWriter(tmp_path / "a", make_spec()).__enter__()
    with StoreWriter(tmp_path / "a", make_spec()):
        pass
    assert not (tmp_path / "a" / "lock").exists()


def test_a_writer_that_slept_does_not_write_into_what_another_took_over(tmp_path):
    with StoreWriter(tmp_path / "a", make_spec()) as writer:
        other_lock(tmp_path / "a" / "lock", machine="elsewhere")
        with pytest.raises(BusyError, match="another process took over"):
            writer.append(rows_of(np.array([1])), ids=np.array([1], np.uint64))
    assert (tmp_path / "a" / "lock").exists()  # it is theirs


@pytest.mark.parametrize("number", range(4))
def test_a_full_disk_is_told_and_what_was_written_is_kept(tmp_path, monkeypatch, number):
    real, count = store_module.append, 0

    def append(path, content):
        nonlocal count
        count += 1
        with full_after(path.stat().st_size + len(content) // 2 if count == number + 1 else 2**30):
            real(path, content)

    with StoreWriter(tmp_path / "a", make_spec()) as writer:
        writer.append(rows_of(np.array([1, 2])), ids=np.array([1, 2], np.uint64))
        monkeypatch.setattr(store_module, "append", append)
        with pytest.raises(CacheError, match="is full; the features of 2 images are saved"):
            writer.append(rows_of(np.array([3, 4])), ids=np.array([3, 4], np.uint64))
        assert found_in(tmp_path / "a", range(9)) == [1, 2]
        writer.append(rows_of(np.array([5])), ids=np.array([5], np.uint64))  # there is room again
    write(tmp_path / "a", [3, 4])
    assert found_in(tmp_path / "a", [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]


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
    with pytest.raises(CacheError, match=r"is full; the features of \d,\d{3} images are saved"):
        write(small_disk / "a", *batches)
    kept = len(open_store(small_disk / "a"))
    assert kept % 64 == 0
    assert found_in(small_disk / "a", [0, 1000]) == [0, 1000]
    with pytest.raises(CacheError, match=r"the features take 1 byte, but .* kB free"):
        check_room(small_disk / "b", num_bytes=1)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="set MANYLABEL_CACHE"), StoreWriter(tmp_path / "file" / "a", make_spec()):
        pass


def damage(path, position, bits=0xFF):
    content = bytearray(path.read_bytes())
    content[position] ^= bits
    path.write_bytes(content)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "a"
    write(folder, *np.arange(40).reshape(-1, 4))
    return folder


@pytest.mark.parametrize("name", ["stage-0.f16", "stage-3.f16", "images.u64", "journal.jsonl"])
@pytest.mark.slow
def test_no_flipped_bit_is_missed_and_each_costs_its_own_batch(sound, tmp_path, name):
    folder, chance = shutil.copytree(sound, tmp_path / "a"), random.Random(name)
    path, content = folder / name, (sound / name).read_bytes()
    for _ in range(100):
        position, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
        damage(path, position, bit)
        found = found_in(folder, range(40))  # which compares all features with what they should be
        newline = name == "journal.jsonl" and content[position] == ord("\n")
        hexadecimal = name == "journal.jsonl" and bit == 32  # "a" is as good as "A"
        assert len(found) == (32 if newline else 36) or (hexadecimal and len(found) == 40)
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["stage-0.f16", "stage-3.f16", "images.u64"])
def test_damage_costs_only_the_batch_it_is_in(tmp_path, name):
    write(tmp_path / "a", [1, 2], [3, 4], [5, 6])
    path = tmp_path / "a" / name
    damage(path, path.stat().st_size // 2)
    store = open_store(tmp_path / "a")
    assert [(chunk.start, chunk.end) for chunk in store.damaged] == [(2, 4)]
    write(tmp_path / "a", [3, 7], damaged=store.damaged)
    assert found_in(tmp_path / "a", range(9)) == [1, 2, 3, 5, 6, 7]
    assert not open_store(tmp_path / "a").damaged
    assert len(open_store(tmp_path / "a")) == 6


def test_who_has_mapped_a_damaged_store_reads_what_it_read_before(tmp_path):
    write(tmp_path / "a", [1, 2], [3, 4])
    reader = open_store(tmp_path / "a")
    before = reader.read(np.arange(4))[0].clone()
    damage(tmp_path / "a" / "images.u64", -1)
    write(tmp_path / "a", [9, 8, 7])
    assert (reader.read(np.arange(4))[0] == before).all()
    assert found_in(tmp_path / "a", range(10)) == [1, 2, 7, 8, 9]


def test_a_file_that_was_cut_short_is_seen_and_never_filled_up_with_zeros(tmp_path):
    write(tmp_path / "a", [1, 2], [3, 4])
    path = tmp_path / "a" / "stage-3.f16"
    path.write_bytes(path.read_bytes()[:-1])
    assert found_in(tmp_path / "a", [1, 2, 3, 4]) == [1, 2]
    write(tmp_path / "a", [7])
    assert found_in(tmp_path / "a", range(9)) == [1, 2, 7]


@pytest.mark.parametrize("name", ["spec.json", "journal.jsonl", "images.u64", "stage-3.f16"])
def test_a_file_that_is_gone_is_made_again(tmp_path, name):
    write(tmp_path / "a", [1])
    (tmp_path / "a" / name).unlink()
    assert found_in(tmp_path / "a", [1]) == ([1] if name == "spec.json" else [])
    write(tmp_path / "a", [1])
    assert found_in(tmp_path / "a", [1]) == [1]
    assert (tmp_path / "a" / name).exists()


def test_a_damaged_line_of_the_journal_costs_only_its_batch(tmp_path):
    write(tmp_path / "a", [1], [2], [3])
    journal = tmp_path / "a" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1].replace('"end":2', '"end":3') + lines[2])
    assert found_in(tmp_path / "a", [1, 2, 3]) == [1, 3]


SCENARIO = """
import os, signal, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from manylabel.features import list_stores
from tiny_features import cache, make_backbone, make_dataset

backbone, dataset, root = make_backbone(), make_dataset(Path({images!r})), Path({root!r})

def start():
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, os.fdopen(reader)
    with os.fdopen(writer, "w") as output:
        tell = lambda done, total: print(done, file=output, flush=True)
        cached = cache(backbone, dataset, root, batch_size=4, views=2, progress=tell)
        print("end", len(cached), file=output, flush=True)
    os._exit(0)

for kill_at in {kills}:
    process, output = start()
    while int(output.readline()) < kill_at:
        pass
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    print(sum(store.num_images for store in list_stores(root)))
for process, output in [start(), start()]:
    print(output.read().splitlines()[-1])
    os.waitpid(process, 0)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_two_at_once_share_the_work(tmp_path):
    folder, root, count = tmp_path / "images", tmp_path / "store", 80
    folder.mkdir()
    write_images(folder, count)
    paths = [str(Path(__file__).parents[1]), *(path for path in sys.path if path.endswith("src"))]
    kills = (4, count - 20, count + 8)  # two in the first view, one in the second
    code = SCENARIO.format(paths=paths, images=str(folder), root=str(root), kills=kills)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, check=True)
    *done, one, other = run.stdout.splitlines()
    assert all(kill_at <= int(found) < 2 * count for kill_at, found in zip(kills, done, strict=True))
    assert (one, other) == (f"end {count}",) * 2
    assert [store.num_images for store in list_stores(root)] == [count, count]  # none twice
    last = count - 1
    again = cache(make_backbone(), make_dataset(folder), root, views=2)
    fresh = cache(make_backbone(), make_dataset(folder).subset([0, last]), tmp_path / "fresh", views=2)
    for view in (0, 1):
        assert_close(again.read([0, last], view), fresh.read([0, 1], view))
