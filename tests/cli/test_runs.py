import json

import pytest
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.errors import ConfigError
from tiny_runs import make_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "a", head="linear", finished=False, epochs=2)
    make_run(root / "b", head="ml_decoder", finished=False, epochs=3)
    return root


def run(*arguments):
    arguments = ["runs", *map(str, arguments)]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}, catch_exceptions=False).stdout


def test_ls_lists_every_run_with_what_it_reached(root):
    lines = run("list", root).splitlines()
    assert lines[0].split()[:3] == ["run", "recipe", "head"]
    assert {line.split()[2] for line in lines[1:]} == {"linear", "ml_decoder"}
    assert any("3/3" in line and "30.00" in line and "not finished" in line for line in lines)


def test_ls_says_how_to_make_a_run_where_there_is_none(tmp_path):
    assert "No runs in" in run("list", tmp_path)


def test_ls_prints_json_for_programs(root):
    found = {entry["name"]: entry for entry in json.loads(run("list", root, "--json"))}
    assert found["b"]["mAP"] == 0.3
    assert found["b"]["num_epochs"] == 3
    assert not found["b"]["is_finished"]


def test_show_prints_epochs_and_settings(root):
    text = run("show", root / "a")
    assert "manylabel train DATA --head linear" in text
    assert "train_loss" in text
    assert any(line.split() == ["backbone", "resnet10t"] for line in text.splitlines())
    assert json.loads(run("show", root / "a", "--json"))["epochs"][1]["val_mAP"] == 0.2


def test_diff_shows_only_what_differs(root):
    rows = {line.split()[0]: line.split()[1:] for line in run("diff", root / "a", root / "b").splitlines()[1:]}
    assert rows["head"] == ["linear", "ml_decoder"]
    assert rows["mAP"] == ["20.00", "30.00"]
    assert "seed" not in rows
    assert json.loads(run("diff", root / "a", root / "b", "--json"))["settings"]["head"] == ["linear", "ml_decoder"]


def test_diff_of_one_run_is_refused(root):
    with pytest.raises(ConfigError, match="at least two runs, got 1"):
        run("diff", root / "a")
