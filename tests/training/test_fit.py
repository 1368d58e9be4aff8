import csv
import io
import multiprocessing
import os
import re
import socket
import sys
import time

import pytest
import torch
from lightning import Callback
from rich.console import Console
from sklearn.metrics import average_precision_score

from manylabel import progress
from manylabel.errors import ConfigError, MissingExtraError
from manylabel.settings import LoopSettings
from manylabel.training import RunProgress
from tiny_training import Die, tiny_loaders, tiny_run, tiny_settings, tiny_task


def test_metrics_are_written_for_every_epoch(tmp_path):
    _, rows = tiny_run(tmp_path / "run")
    with (tmp_path / "run/metrics.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in written] == [1, 2, 3]
    assert [float(row["val_mAP"]) for row in written] == [row["val_mAP"] for row in rows]
    assert list(written[0]) == ["epoch", "step", "train_loss", "val_loss", "val_mAP", "learning_rate", "seconds"]


def test_the_loss_is_the_mean_per_image_of_the_epoch_on_the_console_as_in_the_table(tmp_path):
    text = io.StringIO()
    settings = tiny_settings(ema_decay=0.0, learning_rate=1e-12)
    _, rows = tiny_run(
        tmp_path / "run",
        task=tiny_task(settings, dropout=0.0),
        callbacks=[RunProgress(Console(file=text))],
        ema_decay=0.0,
        learning_rate=1e-12,
    )
    task, train = tiny_task(settings, dropout=0.0), tiny_loaders(settings).train
    losses = [task.loss(task(batch), batch.targets, batch.known).item() for batch in train]  # each a sum over images
    assert rows[0]["train_loss"] == pytest.approx(sum(losses) / len(train.targets), rel=1e-5)
    assert [line.split()[3] for line in text.getvalue().splitlines()] == [f"{row['train_loss']:.4f}" for row in rows]


@pytest.mark.slow
def test_losses_compare_between_batch_sizes(tmp_path):
    rows = []
    for number, sizes in enumerate(({"batch_size": 4}, {"batch_size": 11}, {"batch_size": 4, "accumulate": 3})):
        changes = {"epochs": 1, "learning_rate": 1e-12, "ema_decay": 0.0, **sizes}
        task = tiny_task(tiny_settings(**changes), dropout=0.0)
        rows += tiny_run(tmp_path / str(number), task=task, **changes)[1]
    for name in ("train_loss", "val_loss"):
        assert [row[name] for row in rows] == pytest.approx([rows[0][name]] * 3, rel=1e-5)


class FakeMap(Callback):
    """Replaces the measured mAP, to see what is made of it."""

    def __init__(self, values):
        self.values = values
        self.weights = []

    def on_validation_epoch_end(self, trainer, pl_module):
        value = self.values[trainer.current_epoch]
        pl_module.mean_average_precision.compute = lambda: torch.tensor(value)

    def on_train_epoch_end(self, trainer, pl_module):
        self.weights.append({name: value.clone() for name, value in pl_module.state_dict().items()})


@pytest.mark.slow
def test_training_stops_when_map_does_not_rise(tmp_path):
    _, rows = tiny_run(tmp_path / "run", epochs=9, patience=2, callbacks=[FakeMap([0.1, 0.5, 0.4, 0.4] + [0.9] * 5)])
    assert [round(row["val_mAP"], 1) for row in rows] == [0.1, 0.5, 0.4, 0.4]


@pytest.mark.slow
def test_the_best_epoch_is_kept_where_asked_for(tmp_path):
    fake = FakeMap([0.1, 0.5, 0.4])
    task, _ = tiny_run(tmp_path / "run", keep="best", ema_decay=0.0, callbacks=[fake])
    assert all(torch.equal(value, fake.weights[1][name]) for name, value in task.state_dict().items())


@pytest.mark.slow
def test_progress_prints_a_line_per_epoch_where_there_is_no_terminal(tmp_path):
    text = io.StringIO()
    tiny_run(tmp_path / "run", callbacks=[RunProgress(Console(file=text))])
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("epoch 1/3  loss ")
    assert "mAP" in lines[0]


class SlowStep(Callback):
    """Makes one step, or one batch of the validation, longer than the time between two lines."""

    def __init__(self, hook):
        setattr(self, hook, lambda *_: time.sleep(0.3 * (not hasattr(self, "over"))) or setattr(self, "over", True))


@pytest.mark.parametrize("hook", ["on_before_optimizer_step", "on_validation_batch_start"])
def test_a_single_slow_step_is_not_silent(hook, tmp_path, monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.1)
    tiny_run(tmp_path / "run", callbacks=[RunProgress(Console(file=text, width=200)), SlowStep(hook)], epochs=1)
    assert len(re.findall(r"^epoch 1/1(, validation)?: \d/6", text.getvalue(), flags=re.MULTILINE)) >= 2


@pytest.mark.slow
def test_progress_shows_map_in_the_bar_on_a_terminal(tmp_path):
    text = io.StringIO()
    tiny_run(tmp_path / "run", callbacks=[RunProgress(Console(file=text, force_terminal=True, width=120))])
    assert "epoch 3/3" in text.getvalue()
    assert "mAP" in text.getvalue()


def test_a_device_that_is_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="no cuda device that torch can use; use auto or cpu"):
        tiny_run(tmp_path / "run", device="cuda")


def test_a_logger_that_is_not_installed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["manylabel.training.fit"], "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="wandb is not installed; run: pip install wandb"):
        tiny_run(tmp_path / "run", logger="wandb")


def test_mlflow_has_an_experiment_and_a_name_for_the_run(tmp_path, monkeypatch):
    fit, made = sys.modules["manylabel.training.fit"], []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(fit, "find_spec", lambda name: name == "mlflow")
    monkeypatch.setattr(fit, "MLFlowLogger", lambda **settings: made.append(settings) or "logger")
    assert fit._make_loggers("mlflow", tmp_path / "run") == ["logger"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    fit._make_loggers("mlflow", tmp_path / "run")
    run = {"experiment_name": "manylabel", "run_name": "run"}
    addresses = (f"sqlite:///{tmp_path.resolve() / 'run' / 'mlflow.db'}", "http://localhost:5000")
    assert made == [{**run, "tracking_uri": address} for address in addresses]


def test_settings_list_all_mistakes_at_once():
    with pytest.raises(ConfigError) as error:
        LoopSettings(epochs=0, optimizer="adamm", learning_rate="fast", betas=(0.9, 2.0))
    assert str(error.value).splitlines() == [
        "4 invalid settings:",
        "  epochs must be a whole number of at least 1 or none, got 0",
        "  learning_rate must be a number above 0 or none, got 'fast'",
        "  optimizer cannot be 'adamm'; did you mean 'adam' or 'adamw'? Available: adam, adamw, sgd",
        "  betas must be a list of two numbers from 0 to below 1, got (0.9, 2.0)",
    ]


FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def train_as(rank, port, folder, settings):
    torch.set_num_threads(1)
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0"}
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ.update(places | ranks)
    die = settings.pop("die", None)
    if die is not None:
        with pytest.raises(KeyError, match="killed"):
            tiny_run(folder, devices=2, callbacks=[Die(epoch=die[0], batch=die[1])], **settings)
        return
    task, rows = tiny_run(folder, devices=2, **settings)
    torch.save({"weights": task.state_dict(), "rows": rows}, folder / f"result-{rank}.pt")


def train_in_two_processes(folder, **settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=train_as, args=(rank, port, folder, settings)) for rank in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join(100)
    assert [child.exitcode for child in children] == [0, 0]
    if "die" in settings:
        return None
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.slow
@FORKS
def test_both_end_with_the_same_weights_and_numbers(tmp_path):
    first, second = train_in_two_processes(tmp_path / "run")
    assert all(torch.equal(value, second["weights"][name]) for name, value in first["weights"].items())
    measured = [
        [(row["train_loss"], row["val_loss"], row["val_mAP"]) for row in each["rows"]] for each in (first, second)
    ]
    assert measured[0] == measured[1]
    with (tmp_path / "run/metrics.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == [1, 2, 3]
    assert int(first["rows"][-1]["step"]) == 3 * 3  # 22 images, two processes, batches of 4


@pytest.mark.slow
@FORKS
def test_map_is_that_of_all_images_not_of_a_share(tmp_path):
    first, _ = train_in_two_processes(tmp_path / "run")
    settings = tiny_settings()
    task = tiny_task(settings)
    task.load_state_dict(first["weights"])
    val = tiny_loaders(settings).val
    with torch.no_grad():
        scores = torch.cat([task.eval()(batch).sigmoid() for batch in val])
    assert first["rows"][-1]["val_mAP"] == pytest.approx(average_precision_score(val.targets, scores), abs=1e-6)


@pytest.mark.slow
@FORKS
def test_it_resumes_bit_for_bit(tmp_path):
    whole, _ = train_in_two_processes(tmp_path / "whole", checkpoint_minutes=1e-9)
    train_in_two_processes(tmp_path / "run", checkpoint_minutes=1e-9, die=(1, 2))
    assert (tmp_path / "run/checkpoints/last.ckpt").is_file()
    again, _ = train_in_two_processes(tmp_path / "run", checkpoint_minutes=1e-9)
    assert all(torch.equal(value, again["weights"][name]) for name, value in whole["weights"].items())
