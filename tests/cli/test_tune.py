import json

import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads, tuning
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.errors import ConfigError
from manylabel.evaluation import score

SPEC = "scenes:40"
LABELS = scenes(1).labels


def make(labels=LABELS, **settings):
    torch.manual_seed(0)
    settings |= {"pretrained": False, "image_size": 32}
    return Classifier.create("test_resnet", head=heads.LinearClassifier, labels=labels, **settings).eval()


@pytest.fixture
def folder(tmp_path):
    return make().save_pretrained(tmp_path / "tagger")


def run(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)], env={"COLUMNS": "160"}, catch_exceptions=False)


def config(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_tuned_copy_keeps_all_but_thresholds_and_calibration(folder, tmp_path):
    (folder / "README.md").write_text("my model")
    result = run(SPEC, "--model", folder, "--out", tmp_path / "tuned", "--html", tmp_path / "page.html", "--folds", "2")
    assert result.exit_code == 0
    assert "40 images, 2-fold cross-validation; thresholds for F1" in result.output
    assert "calibration error" in result.output
    assert "fewer than 10 images" in result.output
    assert (tmp_path / "tuned" / "README.md").read_text() == "my model"
    assert "Tuning of tagger" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert config(folder)["thresholds"] is None
    tuned = config(tmp_path / "tuned")
    changed = {"thresholds", "calibration"}
    assert {key: value for key, value in tuned.items() if key not in changed} == {
        key: value for key, value in config(folder).items() if key not in changed
    }
    model = Classifier.from_pretrained(tmp_path / "tuned")
    assert model.calibration.method == "platt"
    assert model.thresholds == tuple(tuned["thresholds"])
    image = scenes(1).images[0]
    raw = torch.from_numpy(Classifier.from_pretrained(folder).predict(image).scores)
    torch.testing.assert_close(
        torch.from_numpy(model.predict(image).scores), model.calibration.apply(raw.logit()).sigmoid()
    )


@pytest.mark.slow
def test_the_model_itself_is_changed_unless_it_is_a_trial(folder):
    run(SPEC, "--model", folder, "--dry-run", "--folds", "2")
    assert config(folder)["thresholds"] is None
    run(SPEC, "--model", folder, "--calibrate", "none", "--objective", "recall=0.9", "--folds", "2")
    assert len(config(folder)["thresholds"]) == len(LABELS)
    assert config(folder)["calibration"] is None


@pytest.mark.slow
def test_a_copy_leaves_what_else_is_in_its_folder(folder, tmp_path):
    runs = tmp_path / "runs"
    other = make().save_pretrained(runs / "first" / "model")
    (runs / "notes.txt").write_text("do not delete")
    run(SPEC, "--model", folder, "--out", runs, "--overwrite", "--folds", "2")
    assert (runs / "notes.txt").read_text() == "do not delete"
    assert Classifier.from_pretrained(other).thresholds is None
    assert Classifier.from_pretrained(runs).thresholds is not None


@pytest.mark.slow
def test_a_copy_may_lie_inside_the_model(folder):
    for _ in range(2):
        run(SPEC, "--model", folder, "--out", folder / "tuned", "--overwrite", "--folds", "2")
    assert {path.name for path in (folder / "tuned").iterdir()} == {"config.json", "labels.json", "model.safetensors"}
    assert config(folder)["thresholds"] is None


@pytest.mark.slow
def test_a_single_label_model_is_calibrated_as_its_softmax_is_and_gets_no_thresholds(tmp_path):
    model = make(single_label=True)  # the data do not say so
    model.thresholds = (0.5,) * len(model.labels)
    folder = model.save_pretrained(tmp_path / "model")
    result = run(SPEC, "--model", folder, "--folds", "2")
    assert "2-fold cross-validation; calibration only" in result.output
    assert "no thresholds to tune" in result.output
    assert "Changed calibration in" in result.output
    tuned = Classifier.from_pretrained(folder)
    assert (tuned.thresholds, tuned.calibration.method, len(set(tuned.calibration.scale))) == (None, "temperature", 1)
    assert set(tuned.calibration.shift) == {0.0}


@pytest.mark.slow
def test_labels_in_another_order_are_put_into_the_models(tmp_path):
    model = make(labels=LABELS.names[::-1])
    run(SPEC, "--model", model.save_pretrained(tmp_path / "model"), "--calibrate", "none", "--folds", "2")
    scored = score(model, scenes(40).select_labels(model.labels.names))
    expected = tuning.tune(scored, method="none", num_folds=2).thresholds
    assert len(set(expected)) > 1
    assert Classifier.from_pretrained(tmp_path / "model").thresholds == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_labels_that_do_not_fit_are_told_before_images_are_scored(tmp_path, monkeypatch):
    monkeypatch.setattr("manylabel.evaluation.score", lambda *_, **__: pytest.fail("images were scored"))
    few, many = LABELS.names[:3], [*LABELS, "unheard-of"]
    for name, labels in (("few", few), ("many", many)):
        with pytest.raises(ConfigError, match=r"exactly the labels of the model.*add labels=FILE to the spec"):
            run(SPEC, "--model", make(labels=labels).save_pretrained(tmp_path / name))


def test_the_package_itself_is_never_changed():
    with pytest.raises(ConfigError, match="part of the package"):
        run(SPEC, "--model", "builtin:coco80")
    with pytest.raises(ConfigError, match="a changed copy of the hub model"):
        run(SPEC, "--model", "someone/street-tagger")
