import json

import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.errors import ConfigError

SPEC = "scenes:40"


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    labels = scenes(1).labels
    model = Classifier.create("test_resnet", head=heads.LinearHead, labels=labels, pretrained=False, image_size=32)
    return model.save(tmp_path / "model")


def run(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)], env={"COLUMNS": "160"}, catch_exceptions=False)


def config(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_a_tuned_copy_keeps_all_but_thresholds_and_calibration(folder, tmp_path):
    (folder / "README.md").write_text("my model")
    result = run(folder, "--data", SPEC, "--out", tmp_path / "tuned", "--html", tmp_path / "page.html", "--folds", "2")
    assert result.exit_code == 0
    assert "fitted without it (2 parts)" in result.output
    assert "calibration error" in result.output
    assert "fewer than 10 pictures" in result.output
    assert (tmp_path / "tuned" / "README.md").read_text() == "my model"
    assert "Tuning of model" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert config(folder)["thresholds"] is None
    tuned = config(tmp_path / "tuned")
    changed = {"thresholds", "calibration"}
    assert {key: value for key, value in tuned.items() if key not in changed} == {
        key: value for key, value in config(folder).items() if key not in changed
    }
    model = Classifier.load(tmp_path / "tuned")
    assert model.calibration.method == "platt"
    assert model.thresholds == tuple(tuned["thresholds"])
    picture = scenes(1).pictures[0]
    raw = Classifier.load(folder).predict(picture).scores
    torch.testing.assert_close(model.predict(picture).scores, model.calibration.apply(raw.logit()).sigmoid())


def test_the_model_itself_is_changed_unless_it_is_a_trial(folder):
    run(folder, "--data", SPEC, "--dry-run", "--folds", "2")
    assert config(folder)["thresholds"] is None
    run(folder, "--data", SPEC, "--calibrate", "none", "--thresholds", "recall=0.9", "--folds", "2")
    assert len(config(folder)["thresholds"]) == len(scenes(1).labels)
    assert config(folder)["calibration"] is None


def test_the_package_itself_is_never_changed():
    with pytest.raises(ConfigError, match="part of the package"):
        run("builtin:coco80", "--data", SPEC)
    with pytest.raises(ConfigError, match="a changed copy of the hub's model"):
        run("someone/street-tagger", "--data", SPEC)
