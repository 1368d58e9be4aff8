import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import manylabel
from manylabel.cli.main import app
from manylabel.errors import RunInterruptedError
from manylabel.recipes import RECIPES

QUICK = ["--data", "scenes:30,size=64", "--backbone", "resnet10t", "--no-pretrained", "--image-size", "64"]
QUICK += ["--head", "linear", "--epochs", "2", "--batch-size", "8", "--workers", "0"]
QUICK += ["--device", "cpu", "--logger", "none"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))


def call(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_one_command_trains_and_config_yaml_repeats_it(tmp_path):
    first = call("linear_probe", *QUICK, "--out", tmp_path / "run", "--head.pooling", "max")
    assert first.exit_code == 0, first.output
    assert f"the model is in {tmp_path / 'run' / 'model'}" in first.stderr
    settings = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert settings["head_settings"] == {"pooling": "max"}
    again = call("linear_probe", "--config", tmp_path / "run/config.yaml", "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("run", "again")]
    assert weights[0] == weights[1]


def test_what_a_signal_ended_is_named_with_its_brackets(monkeypatch):
    def stop(*_, **__):
        raise RunInterruptedError("the run in runs/[a] was saved", 143)

    monkeypatch.setitem(RECIPES, "linear_probe", replace(RECIPES["linear_probe"], run=stop))
    result = call("linear_probe", *QUICK)
    assert result.exit_code == 143
    assert "runs/[a] was saved" in result.stderr


def test_dry_run_prints_the_plan_and_leaves_nothing(tmp_path):
    result = call("finetune", *QUICK, "--out", tmp_path / "run", "--preset", "q2l", "--image-size", "64", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "gamma_negative: 2" in result.stdout
    assert "in all      about" in result.stdout
    assert not (tmp_path / "run").exists()


def test_help_has_a_flag_for_every_setting():
    result = CliRunner().invoke(app, ["train", "finetune", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for flag in ("--learning-rate", "--backbone-scale", "--augment", "--resume", "--preset", "--dry-run"):
        assert flag in result.stdout
    assert "ml_decoder, hsq, q2l" in result.stdout


def test_mistakes_are_listed_at_once():
    result = call("linear_probe", "--epoch", "3", "--optimizer", "adamm", "--head", "lineal")
    message = str(result.exception)
    assert "no setting 'epoch'; did you mean 'epochs'" in message
    assert "optimizer cannot be 'adamm'" in message
    assert "head cannot be 'lineal'; did you mean 'linear'" in message
    assert "data is missing: The pictures to train on" in message


def test_an_unknown_recipe_is_told():
    assert "no recipe 'linear'; did you mean 'linear_probe'" in str(call("linear").exception)


def test_the_recipes_are_listed_without_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from manylabel.cli.main import app; "
        "result = CliRunner().invoke(app, ['train', '--help']); "
        "sys.exit('torch' in sys.modules or 'linear_probe' not in result.stdout)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(manylabel.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0


def test_sigterm_ends_with_143_and_resume_goes_on(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(manylabel.__file__).parents[1]), "COLUMNS": "300"}
    command = [sys.executable, "-m", "manylabel", "train", "linear_probe", *QUICK, "--out", tmp_path / "run"]
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
    wrong = call("linear_probe", *QUICK, "--out", tmp_path / "run", "--epochs", "3", "--resume")
    assert "epochs was 60, is 3" in str(wrong.exception)
    again = call("linear_probe", *QUICK, "--out", tmp_path / "run", "--epochs", "60", "--resume")
    assert again.exit_code == 0, again.output
    assert "epoch 60/60" in again.stderr
    assert "epoch 1/60" not in again.stderr
    assert len((tmp_path / "run/metrics.csv").read_text().splitlines()) == 1 + 60
    assert json.loads((tmp_path / "run/environment.json").read_text())["python"]
