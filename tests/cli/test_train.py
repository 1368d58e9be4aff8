import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

import manylabel
from manylabel.cli.main import app
from manylabel.data import class_aware_sampler
from manylabel.errors import RunInterruptedError
from manylabel.losses import positive_weights
from manylabel.recipes import RECIPES, recipe
from manylabel.schema import settings_fields
from manylabel.settings import RECIPE_SETTINGS

QUICK = ["scenes:30,size=64", "--backbone", "test_resnet", "--no-pretrained", "--image-size", "64"]
QUICK += ["--head", "linear", "--epochs", "2", "--batch-size", "8", "--workers", "0"]
QUICK += ["--device", "cpu", "--logger", "none"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))


def call(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


@pytest.mark.slow
def test_one_command_trains_and_config_yaml_repeats_it(tmp_path):
    first = call(*QUICK, "--out", tmp_path / "run", "--head.pooling", "max")
    assert first.exit_code == 0, first.output
    assert f"the model is in {tmp_path / 'run' / 'model'}" in first.stderr
    settings = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert settings["head_settings"] == {"pooling": "max"}
    again = call("--config", tmp_path / "run/config.yaml", "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("run", "again")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_the_flags_for_rare_labels_reach_the_training(tmp_path, monkeypatch):
    seen = []
    fit = recipe.fit
    monkeypatch.setattr(
        recipe, "fit", lambda task, loaders, **more: seen.append((task, loaders)) or fit(task, loaders, **more)
    )
    result = call(*QUICK, "--out", tmp_path / "run", "--positive-weights", "--sampler", "class_aware")
    assert result.exit_code == 0, result.output
    ((task, loaders),) = seen
    targets = loaders.train.dataset_targets
    torch.testing.assert_close(task.loss.positive_weights, positive_weights(targets))
    loaders.train.set_epoch(0)
    drawn = torch.cat([batch.indices for batch in loaders.train]).tolist()
    assert drawn == list(class_aware_sampler(targets, seed=0))
    refused = call(*QUICK, "--out", tmp_path / "other", "--positive-weights", "--loss", "large_loss")
    assert "takes no positive weights" in str(refused.exception)


def test_what_a_signal_ended_is_named_with_its_brackets(monkeypatch):
    def stop(*_, **__):
        raise RunInterruptedError("the run in runs/[a] was saved", 143)

    monkeypatch.setitem(RECIPES, "probe", stop)
    result = call(*QUICK)
    assert result.exit_code == 143
    assert "runs/[a] was saved" in result.stderr


@pytest.mark.slow
def test_dry_run_prints_the_plan_and_leaves_nothing(tmp_path):
    result = call(
        *QUICK, "--recipe", "finetune", "--out", tmp_path / "run", "--preset", "q2l", "--image-size", "64", "--dry-run"
    )
    assert result.exit_code == 0, result.output
    assert "gamma_negative: 2" in result.stdout
    assert "total       about" in result.stdout
    assert not (tmp_path / "run").exists()


def test_help_has_a_flag_for_every_setting():
    result = CliRunner().invoke(app, ["train", "--recipe", "finetune", "--help-all"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    fields = settings_fields(RECIPE_SETTINGS["finetune"]).values()
    flags = ["DATA" if each.name == "data" else f"--{each.name.replace('_', '-')}" for each in fields if each.is_flag]
    assert [flag for flag in flags if flag not in result.stdout] == []
    assert "--resume" in result.stdout
    assert "ml_decoder, hsq, q2l" in result.stdout


@pytest.mark.parametrize("recipe", RECIPE_SETTINGS)
def test_help_is_short_and_shows_what_is_required_first(recipe):
    result = CliRunner().invoke(app, ["train", "--recipe", recipe, "-h"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) <= 50
    flags = re.findall(r"^│ (DATA|--[a-z.-]+)", result.stdout, re.MULTILINE)
    assert flags[:2] == ["DATA", "--out"]
    assert "--recipe" in flags
    if recipe == "probe":
        assert len(flags) == 1 + 10 + 1  # DATA, ten options, and --help-all


def test_mistakes_are_listed_at_once():
    result = call("--epoch", "3", "--optimizer", "adamm", "--head", "lineal")
    message = str(result.exception)
    assert "no setting 'epoch'; did you mean 'epochs'" in message
    assert "optimizer cannot be 'adamm'" in message
    assert "data is missing: Training set" in message
    head = call("scenes:10", "--head", "lineal")
    assert "head cannot be 'lineal'; did you mean 'linear'" in str(head.exception)


def test_rejects_an_unknown_recipe():
    assert "no recipe 'prob'; did you mean 'probe'" in str(call("scenes:10", "--recipe", "prob").exception)


@pytest.mark.parametrize("arguments", [["scenes:10", "scenes:20"], ["--data", "scenes:10"], ["a", "--resume", "b"]])
def test_rejects_more_than_one_dataset(arguments):
    assert "use: manylabel train DATA --out RUN" in str(call(*arguments).exception)


def test_rare_settings_are_set_in_a_file():
    assert "freeze_epochs can only be set in a YAML file" in str(
        call("scenes:10", "--recipe", "finetune", "--freeze-epochs", "2").exception
    )


def test_a_bare_command_shows_the_help():
    assert call().stdout == call("--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--help"], ["--recipe", "zero_shot", "--help"], ["a.csv", "--epoch", "3"]], ids=" ".join
)
def test_help_and_mistakes_need_no_torch(arguments):
    code = (
        "import sys; from typer.testing import CliRunner; from manylabel.cli.main import app; "
        f"result = CliRunner().invoke(app, ['train', *{arguments}]); "
        "told = result.stdout + str(result.exception); "
        "sys.exit('torch' in sys.modules or ('probe' not in told and 'epochs' not in told))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(manylabel.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--device", "cuda"], "no cuda device"),
        (["--backbone", "resnet10"], "resnet10"),
        (["--head", "lineal"], "did you mean 'linear'"),
        (["--limit", "1", "--batch-size", "0"], "batch_size must be"),
        (["--loss", "cross_entropy"], "does not fit"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_a_run_that_fails_at_the_start_leaves_nothing_in_the_way_of_the_next(tmp_path, wrong, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = call(*QUICK, *wrong, "--out", tmp_path / "run")
    assert message in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_dataset_that_is_missing_leaves_nothing_either(tmp_path):
    assert "nowhere" in str(call("folder:nowhere", *QUICK[1:], "--out", tmp_path / "run").exception)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_that_fails_before_its_first_epoch_leaves_nothing_either(tmp_path, monkeypatch):
    from manylabel.training.task import ClassificationTask

    def fail(self, batch, batch_idx):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "training_step", fail)
        assert "memory ran out" in str(call(*QUICK, "--out", tmp_path / "run").exception)
    assert not (tmp_path / "run").exists()
    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "on_validation_epoch_end", lambda self: fail(self, None, 0))
        call(*QUICK, "--out", tmp_path / "run", "--resume")
    assert not (tmp_path / "run").exists()
    again = call(*QUICK, "--out", tmp_path / "run", "--resume")
    assert again.exit_code == 0, again.output
    assert f"no checkpoint in {tmp_path / 'run'}, starting from epoch 1" in again.stderr


@pytest.mark.slow
def test_sigterm_ends_with_143_and_resume_goes_on(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(manylabel.__file__).parents[1]), "COLUMNS": "300"}
    command = [sys.executable, "-m", "manylabel", "train", *QUICK, "--out", tmp_path / "run"]
    command += ["--epochs", "60"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    for line in process.stderr:
        if line.startswith("epoch 2/"):
            process.send_signal(signal.SIGTERM)
            break
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "stopped by SIGTERM in epoch" in errors
    assert "Traceback" not in errors
    wrong = call(*QUICK, "--out", tmp_path / "run", "--epochs", "3", "--resume")
    assert "epochs was 60, is 3" in str(wrong.exception)
    again = call(*QUICK, "--out", tmp_path / "run", "--epochs", "60", "--resume")
    assert again.exit_code == 0, again.output
    assert "epoch 60/60" in again.stderr
    assert "epoch 1/60" not in again.stderr
    assert len((tmp_path / "run/metrics.csv").read_text().splitlines()) == 1 + 60
    assert json.loads((tmp_path / "run/environment.json").read_text())["python"]
