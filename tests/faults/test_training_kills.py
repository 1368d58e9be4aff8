"""Training that is killed at any moment, or meets a full disk: resumed, it ends bit for bit like an unbroken run."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from lightning import Callback, Trainer

import manylabel
from faults.disk import die_at_move, full_after
from manylabel.errors import DiskFullError
from tiny_training import tiny_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),  # it forks
]
SETTINGS = {"keep": "best", "patience": 5}  # so that best.safetensors is written, too


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A run that nothing happens to: its weights, and its rows without the seconds."""
    task, rows = tiny_run(tmp_path_factory.mktemp("unbroken") / "run", **SETTINGS)
    return task.state_dict(), without_seconds(rows)


def without_seconds(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def killed(folder, prepare):
    """Train in a process that `prepare` gets killed; return whether it was."""

    def train():
        torch.set_num_threads(1)
        with pytest.MonkeyPatch.context() as patch:
            prepare(patch)
            tiny_run(folder, **SETTINGS)

    child = multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join(120)
    return child.exitcode == -signal.SIGKILL


def ends_as(unbroken, folder):
    task, rows = tiny_run(folder, **SETTINGS)
    weights, expected = unbroken
    same = all(torch.equal(value, weights[name]) for name, value in task.state_dict().items())
    return same and without_seconds(rows) == expected


def hidden(folder):
    return sorted(path.name for path in folder.rglob(".*"))


@pytest.mark.parametrize("before", [True, False], ids=["before the move", "after it"])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 7])
def test_a_kill_at_any_move_of_a_file_into_place(tmp_path, unbroken, number, before):
    folder = tmp_path / "run"
    assert killed(folder, lambda patch: die_at_move(patch, number, before=before))
    assert bool(hidden(folder)) == before
    assert ends_as(unbroken, folder)
    assert hidden(folder) == []


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.999])
def test_a_kill_while_a_checkpoint_is_written(tmp_path, unbroken, fraction):
    def prepare(patch):
        real, count = Trainer.save_checkpoint, 0

        def save(self, path, *arguments, **named):
            nonlocal count
            real(self, path, *arguments, **named)
            count += 1
            if count == 2:
                os.truncate(path, int(fraction * Path(path).stat().st_size))
                os.kill(os.getpid(), signal.SIGKILL)

        patch.setattr(Trainer, "save_checkpoint", save)

    folder = tmp_path / "run"
    assert killed(folder, prepare)
    assert any(name.startswith(".last.") for name in hidden(folder))
    assert ends_as(unbroken, folder)
    assert hidden(folder) == []


class FullDisk(Callback):
    """Lets the disk be full from an epoch on."""

    def __init__(self, epoch):
        self.epoch, self.disk = epoch, full_after(20_000)

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch:
            self.disk.__enter__()

    def on_exception(self, trainer, pl_module, exception):
        self.disk.__exit__(None, None, None)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_disk_that_fills_up_while_training(tmp_path, unbroken, epoch):
    with pytest.raises(DiskFullError, match="the disk is full; free some space"):
        tiny_run(tmp_path / "run", callbacks=[FullDisk(epoch)], **SETTINGS)
    assert hidden(tmp_path / "run") == []
    assert ends_as(unbroken, tmp_path / "run")


COMMAND = [
    sys.executable,
    "-m",
    "manylabel",
    "train",
    "scenes:60,size=64",
    "--backbone",
    "resnet10t",
]
COMMAND += ["--no-pretrained", "--image-size", "64", "--head", "linear", "--epochs", "80", "--batch-size", "4"]
COMMAND += ["--workers", "2", "--device", "cpu", "--logger", "none"]


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_random_moments_of_a_whole_run(tmp_path, seed):
    source = str(Path(manylabel.__file__).parents[1])
    chance = random.Random(seed)
    weights = []
    for name in ("whole", "killed"):
        environment = os.environ | {"PYTHONPATH": source, "MANYLABEL_CACHE": str(tmp_path / f"cache {name}")}
        command = [*COMMAND, "--out", tmp_path / name, "--resume"]
        kills = 6 if name == "killed" else 0
        while True:
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
            if kills:
                kills -= 1
                time.sleep(chance.uniform(1, 20))
                process.kill()
            if process.wait(600) == 0:
                break
            assert process.returncode == -signal.SIGKILL
        weights.append((tmp_path / name / "model/model.safetensors").read_bytes())
        assert hidden(tmp_path / name) == []
    assert weights[0] == weights[1]
