"""Teachers in this process, in several and on Ray; what happens when some of them fail, die or are stopped."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

import manylabel
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, RunInterruptedError, TrainingError
from manylabel.recipes import Parts, SelfDistillation, self_distillation
from manylabel.recipes.self_distillation import executors
from manylabel.recipes.self_distillation import teachers as teachers_module
from manylabel.recipes.self_distillation.executors import OnRay, Processes, Sequential, make_executor
from manylabel.recipes.self_distillation.teachers import TeacherTraining
from manylabel.training import RunFolder

pytestmark = [pytest.mark.usefixtures("undrawn"), pytest.mark.slow]
NAMES = ["co-01", "co-02", "dis-01", "dis-02"]
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def teachers_of(run):
    return {name: Classifier.from_pretrained(run.path / "teachers" / name / "model").state_dict() for name in NAMES}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def forking(monkeypatch):
    """Processes that are forks, which need not wait for torch; what they share is what spawned ones would get.

    Each has one thread: threads that were there before a fork are not there after it, and waiting for them never ends.
    """
    fork, set_threads = multiprocessing.get_context("fork"), torch.set_num_threads
    monkeypatch.setattr(executors.multiprocessing, "get_context", lambda method: fork)
    monkeypatch.setattr(executors.torch, "set_num_threads", lambda _: set_threads(1))


@pytest.fixture
def whole(brief, sets, tmp_path):
    """A run that nothing happens to."""
    return self_distillation(SelfDistillation(**brief, out=tmp_path / "whole"), sets=sets)


def failing(monkeypatch, *names, times=99):
    """Let some teachers fail, the first times."""
    real, left = teachers_module.train_teacher, dict.fromkeys(names, times)

    def train(training, task):
        if left.get(task.name, 0):
            left[task.name] -= 1
            raise OSError("the disk is on fire")
        real(training, task)

    monkeypatch.setattr(teachers_module, "train_teacher", train)


def counting(monkeypatch):
    """Note which teachers are trained in this process."""
    real, trained = teachers_module.train_teacher, []
    monkeypatch.setattr(
        teachers_module, "train_teacher", lambda all_, task: trained.append(task.name) or real(all_, task)
    )
    return trained


def test_the_settings_choose_the_executor_and_share_out_the_machine(monkeypatch):
    monkeypatch.setattr(executors, "available_cores", lambda: 8)
    monkeypatch.setattr(executors, "_gpus", lambda settings: 0)

    def made(num_teachers=10, **settings):
        return make_executor(SelfDistillation(data="x", **settings), num_teachers=num_teachers)

    assert isinstance(made(executor="sequential"), Sequential)
    assert (made().num_processes, made().threads) == (8, 1)
    assert (made(processes=3).num_processes, made(processes=3).threads) == (3, 2)
    assert (made(2).num_processes, made(2).threads) == (2, 4)
    on_ray = made(executor="ray", processes=4, device="cuda", ray_address="auto")
    assert isinstance(on_ray, OnRay)
    assert (on_ray.cpus, on_ray.gpus, on_ray.address) == (2, 1, "auto")
    monkeypatch.setattr(executors, "_gpus", lambda settings: 2)
    assert (made().num_processes, made().num_gpus) == (2, 2)


def test_a_teacher_that_fails_is_named_and_the_others_are_kept(brief, sets, tmp_path, monkeypatch, whole):
    settings = SelfDistillation(**brief, out=tmp_path / "run")
    with monkeypatch.context() as patch:
        failing(patch, "co-02")
        with pytest.raises(TrainingError, match=r"1 of 4 teachers could not be trained(.|\n)*co-02: OSError: the disk"):
            self_distillation(settings, sets=sets)
    assert "the disk is on fire" in (tmp_path / "run/teachers/co-02/error.txt").read_text()
    trained = counting(monkeypatch)
    run = self_distillation(settings, sets=sets, resume=True)
    assert trained == ["co-02"]
    assert equal(
        Classifier.from_pretrained(run.model).state_dict(), Classifier.from_pretrained(whole.model).state_dict()
    )


def test_a_teacher_that_fails_once_is_tried_again(brief, sets, tmp_path, monkeypatch):
    failing(monkeypatch, "co-01", "dis-02", times=1)
    monkeypatch.setattr(executors, "RETRIES", 1)
    run = self_distillation(SelfDistillation(**brief, out=tmp_path / "run"), sets=sets)
    assert run.is_finished


@FORKS
def test_processes_train_the_same_teachers(brief, sets, tmp_path, forking, whole):
    settings = SelfDistillation(**{**brief, "executor": "processes", "processes": 2}, out=tmp_path / "run")
    run = self_distillation(settings, sets=sets)
    found, expected = teachers_of(run), teachers_of(whole)
    assert all(equal(found[name], expected[name]) for name in NAMES)
    assert equal(
        Classifier.from_pretrained(run.model).state_dict(), Classifier.from_pretrained(whole.model).state_dict()
    )


def kill_when(path, victim, number):
    """Send a signal to a process as soon as a file is there."""

    def wait():
        while not path.exists():
            time.sleep(0.005)
        os.kill(victim(), number)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def only_child():
    (child,) = multiprocessing.active_children()
    return child.pid


def slow(monkeypatch):
    """Make epochs last long enough to be interrupted."""
    from manylabel.training.task import ClassificationTask

    real = ClassificationTask.on_validation_epoch_end
    monkeypatch.setattr(ClassificationTask, "on_validation_epoch_end", lambda self: time.sleep(0.05) or real(self))


LONG = {"executor": "processes", "processes": 1, "teacher_epochs": 12, "checkpoint_minutes": 1e-9}


@FORKS
def test_kill_9_in_the_middle_of_a_teacher_and_resume(brief, sets, tmp_path, forking, monkeypatch):
    settings = {**brief, **LONG}
    expected = self_distillation(SelfDistillation(**settings, out=tmp_path / "whole"), sets=sets)
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        slow(patch)
        killer = kill_when(path / "teachers/co-02/metrics.csv", only_child, signal.SIGKILL)
        with pytest.raises(TrainingError, match="co-02: its process died with exit code -9"):
            self_distillation(SelfDistillation(**settings, out=path), sets=sets)
        killer.join()
    assert [name for name in NAMES if (path / "teachers" / name / "model").exists()] == ["co-01", "dis-01", "dis-02"]
    times = {name: (path / "teachers" / name / "model/config.json").stat().st_mtime_ns for name in ("co-01", "dis-02")}
    state = torch.load(path / "teachers/co-02/checkpoints/last.ckpt", weights_only=True)
    assert state["epoch"] < 12
    run = self_distillation(
        SelfDistillation(**{**settings, "executor": "sequential"}, out=path), sets=sets, resume=True
    )
    for name, time_before in times.items():
        assert (path / "teachers" / name / "model/config.json").stat().st_mtime_ns == time_before
    found, wanted = teachers_of(run), teachers_of(expected)
    assert all(equal(found[name], wanted[name]) for name in NAMES)
    assert equal(
        Classifier.from_pretrained(run.model).state_dict(), Classifier.from_pretrained(expected.model).state_dict()
    )


@FORKS
def test_a_process_that_dies_is_replaced_and_its_teacher_goes_on(brief, sets, tmp_path, forking, monkeypatch):
    slow(monkeypatch)
    monkeypatch.setattr(executors, "RETRIES", 1)
    settings = SelfDistillation(**{**brief, **LONG, "partition": "co"}, out=tmp_path / "run")
    killer = kill_when(tmp_path / "run/teachers/co-01/metrics.csv", only_child, signal.SIGKILL)
    run = self_distillation(settings, sets=sets)
    killer.join()
    assert run.is_finished
    assert len((run.path / "teachers/co-01/metrics.csv").read_text().splitlines()) == 13


@FORKS
def test_sigterm_saves_the_teachers_first(brief, sets, tmp_path, forking, monkeypatch):
    slow(monkeypatch)
    path = tmp_path / "run"
    settings = SelfDistillation(**{**brief, **LONG, "checkpoint_minutes": 5.0}, out=path)
    kill_when(path / "teachers/co-01/metrics.csv", os.getpid, signal.SIGTERM)
    with pytest.raises(RunInterruptedError, match="stopped by SIGTERM while training teachers") as stopped:
        self_distillation(settings, sets=sets)
    assert stopped.value.exit_code == 143
    assert (path / "teachers/co-01/checkpoints/last.ckpt").is_file()
    assert not multiprocessing.active_children()


def test_nothing_that_is_sent_to_other_processes_holds_images(brief, sets):
    import pickle

    from manylabel.recipes import Reporter
    from manylabel.recipes.loaders import cache_sets

    settings = SelfDistillation(**brief)
    cached = cache_sets(self_distillation.setup(settings, sets=sets), Reporter())
    training = TeacherTraining(settings, cached, Path("teachers"))
    sent = pickle.loads(pickle.dumps(training.portable()))
    assert len(pickle.dumps(training.portable())) < 100_000
    (here,), (there,) = cached.train.read([3, 1]), sent.sets.train.read([3, 1])
    assert torch.equal(here, there)


@pytest.fixture
def environment(tmp_path):
    """The surroundings of a command: our source, and a folder for Ray whose name tells its processes from others'."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a socket's path must be short
    yield os.environ | {
        "PYTHONPATH": str(Path(manylabel.__file__).parents[1]),
        "RAY_TMPDIR": folder,
        "COLUMNS": "300",
    }
    shutil.rmtree(folder, ignore_errors=True)


def test_a_loss_that_cannot_be_sent_to_other_processes_is_one_sentence(sets):
    training = TeacherTraining(
        SelfDistillation(data="x"), sets, Path("teachers"), Parts(loss=lambda logits, targets: logits.sum())
    )
    with pytest.raises(ConfigError, match=r"cannot be sent to other processes .* or set executor to sequential"):
        Processes(num_processes=1, threads=1).run(training, [])


@pytest.mark.timeout(900)  # three times Python with torch, and Ray: on a busy machine that takes its time
@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_the_command_line_trains_the_same_teachers_elsewhere(executor, brief, whole, environment, tmp_path):
    flags = {**brief, "executor": executor, "processes": 2, "baseline": True, "out": tmp_path / "run"}
    command = [sys.executable, "-W", "error::UserWarning", "-m", "manylabel", "train", flags.pop("data")]
    command += ["--recipe", "self_distillation"]
    for name, value in flags.items():
        flag = name.replace("_", "-")
        command += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"teacher {name} (" in done.stderr for name in NAMES)
    assert " student " in done.stderr
    assert " baseline " in done.stderr
    assert f"the model is in {tmp_path / 'run' / 'model'}" in done.stderr
    assert "Traceback" not in done.stderr
    found, expected = teachers_of(RunFolder(tmp_path / "run")), teachers_of(whole)
    for name in NAMES:
        assert all(torch.allclose(value, expected[name][key], atol=1e-5) for key, value in found[name].items())
    assert not [each for each in psutil.process_iter(["cmdline"]) if environment["RAY_TMPDIR"] in str(each.info)]
