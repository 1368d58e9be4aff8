"""Folders of runs with hostile content: one sentence each, and none hides the others from a list."""

import json

import pytest
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.runs import Run, evaluate_run, find_runs
from tiny_runs import make_run

HOSTILE = {
    "config is a list": ("config.yaml", "- 1\n- 2\n"),
    "config is no YAML": ("config.yaml", "a: [1, 2\nb: }"),
    "config has numbers as names": ("config.yaml", "1: 2\n"),
    "config is not UTF-8": ("config.yaml", b"a: \xff\xfe"),
    "environment is a list": ("environment.json", "[1, 2]"),
    "environment is cut short": ("environment.json", '{"python": "3.1'),
    "environment is nested": ("environment.json", "[" * 100_000),
    "packages are a text": ("environment.json", '{"packages": "torch"}'),
    "metrics are text": ("metrics.csv", "epoch,val_mAP\n1,good\n"),
    "metrics are cut short": ("metrics.csv", "epoch,val_mAP,seconds\n1,0.5\n"),
    "metrics have too many columns": ("metrics.csv", "epoch,val_mAP\n1,0.5,7,8\n"),
    "metrics are not UTF-8": ("metrics.csv", b"epoch\n\xff\n"),
    "command is not UTF-8": ("command.txt", b"\xff\xfe"),
}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "runs" / "bad", finished=False)


def write(run, name, content):
    (run.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("case", HOSTILE)
def test_a_damaged_run_is_one_sentence(run, case):
    write(run, *HOSTILE[case])
    with pytest.raises(ConfigError) as caught:
        Run.read(run.path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.slow
def test_a_damaged_run_does_not_hide_the_others(run, caplog):
    make_run(run.path.parent / "good", finished=False)
    write(run, *HOSTILE["metrics are text"])
    assert [found.name for found in find_runs(run.path.parent)] == ["good"]
    assert "bad is damaged" in caplog.text
    listed = CliRunner().invoke(app, ["runs", "list", str(run.path.parent), "--json"], catch_exceptions=False)
    assert [entry["name"] for entry in json.loads(listed.stdout)] == ["good"]


def test_metrics_that_are_not_numbers_are_no_result(run):
    write(run, "metrics.csv", "epoch,val_mAP\n1,nan\n2,nan\n")
    found = Run.read(run.path)
    assert found.mean_average_precision is None
    assert found.best_mean_average_precision is None


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\x00" * 1000])
def test_saved_scores_that_are_damaged_are_computed_again(tmp_path, content):
    run = make_run(tmp_path / "run")
    (run.path / "scores.npz").write_bytes(content)
    assert evaluate_run(Run.read(run.path), draws=0).evaluation.num_images > 0


def test_a_report_of_a_damaged_run_is_one_sentence(run, tmp_path):
    write(run, *HOSTILE["environment is a list"])
    with pytest.raises(ManyLabelError):
        CliRunner().invoke(app, ["report", str(run.path), "--out", str(tmp_path / "a.html")], catch_exceptions=False)
