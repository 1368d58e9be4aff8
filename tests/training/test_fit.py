import csv
import io
import re
import sys
import time

import pytest
import torch
from lightning import Callback
from rich.console import Console

from manylabel import progress
from manylabel.errors import ConfigError, MissingExtraError
from manylabel.settings import LoopSettings
from manylabel.training import RunProgress
from tiny_training import tiny_loaders, tiny_run, tiny_settings, tiny_task


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
