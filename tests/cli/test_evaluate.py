import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from manylabel import heads, tuning
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.errors import ConfigError, DataError, LabelError, OutputExistsError
from manylabel.evaluation import score

SPEC = "scenes:12"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, its scores would be those of no one, and two files of scores."""
    folder = tmp_path_factory.mktemp("models")
    dataset = scenes(12)
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=dataset.labels, pretrained=False, image_size=64
    )
    model.save_pretrained(folder / "tagger")
    targets, _ = dataset.targets.dense()
    noise = np.random.default_rng(0).random(targets.shape)
    names = np.array([dataset.images.name(index) for index in range(12)])
    for name, weight in (("weak", 0.1), ("strong", 0.6)):
        scores = weight * targets + (1 - weight) * noise
        np.savez(folder / f"{name}.npz", scores=scores, images=names, labels=np.array(dataset.labels.names))
    return folder


def models(*paths):
    return [word for path in paths for word in ("--model", path)]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"}, catch_exceptions=False)


@pytest.mark.slow
def test_a_model_is_evaluated_and_its_scores_give_the_same_again(folder, tmp_path):
    outputs = {kind: tmp_path / f"out.{kind}" for kind in ("html", "csv")}
    result = run(
        *("evaluate", SPEC, "--model", folder / "tagger", "--draws", "30"),
        *("--html", outputs["html"], "--out", outputs["csv"]),
    )
    assert result.exit_code == 0
    assert result.stdout.startswith("tagger  12 images of scenes")
    assert "Worst labels by average precision: " in result.output
    assert all(f"Wrote {path}" in result.output for path in outputs.values())
    assert "<title>Evaluation of tagger</title>" in outputs["html"].read_text(encoding="utf-8")
    from_model, again = (
        json.loads(run("evaluate", SPEC, "--model", model, "--draws", "30", "--json").stdout)
        for model in (folder / "tagger", outputs["csv"])
    )
    assert again["metrics"] == from_model["metrics"]
    assert again["model"] == "out.csv"


@pytest.mark.slow
def test_two_files_of_scores_are_compared(folder, tmp_path):
    page = tmp_path / "page.html"
    result = run(
        *("compare", SPEC, "--model", folder / "weak.npz", "--model", folder / "strong.npz"),
        *("--draws", "50", "--html", page),
    )
    assert result.exit_code == 0
    first = next(line for line in result.output.splitlines() if line.startswith("mAP "))
    assert first.split()[-1] == "better"
    assert "significantly better: " in result.output
    assert "<title>strong.npz against weak.npz</title>" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_model_is_compared_with_a_file(folder):
    result = run("compare", SPEC, *models(folder / "tagger", folder / "strong.npz"), "--draws", "0", "--json")
    assert json.loads(result.stdout)["first"] == "tagger"


def test_models_of_different_labels_are_compared_on_those_that_both_have(folder, tmp_path):
    names = scenes(1).labels.names
    for file, columns in (("first", slice(0, 9)), ("second", slice(5, None)), ("other", slice(9, None))):
        arrays = dict(np.load(folder / "strong.npz"))
        columns_of = {"scores": arrays["scores"][:, columns], "labels": arrays["labels"][columns]}
        np.savez(tmp_path / f"{file}.npz", **arrays | columns_of)
    command = ["compare", SPEC, "--common-labels", "--draws", "0", "--json"]
    result = json.loads(run(*command, *models(tmp_path / "first.npz", tmp_path / "second.npz")).stdout)
    found = {label["name"] for label in result["labels"]} | set(result["without_positives"])
    assert found == set(names[5:9])
    with pytest.raises(LabelError, match="the two models have no label of scenes in common"):
        run(*command, *models(tmp_path / "first.npz", tmp_path / "other.npz"))


def test_compare_needs_two_models(folder):
    with pytest.raises(ConfigError, match="compare needs two models, got 1; pass --model A --model B"):
        run("compare", SPEC, "--model", folder / "strong.npz")


def test_models_of_the_same_name_are_told_apart_by_their_folders(folder, tmp_path):
    other = tmp_path / "strong.npz"
    other.write_bytes((folder / "strong.npz").read_bytes())
    result = run("compare", SPEC, *models(folder / "strong.npz", other), "--draws", "0", "--json")
    assert json.loads(result.stdout)["second"] == str(other)


@pytest.mark.slow
def test_nothing_is_overwritten_unless_asked(folder, tmp_path):
    output = tmp_path / "out.html"
    output.write_text("mine", encoding="utf-8")
    command = ["evaluate", SPEC, "--model", folder / "weak.npz", "--draws", "0", "--html", output]
    with pytest.raises(OutputExistsError):
        run(*command)
    assert output.read_text(encoding="utf-8") == "mine"
    assert run(*command, "--overwrite").exit_code == 0
    assert "<title>Evaluation of weak.npz</title>" in output.read_text(encoding="utf-8")


def test_scores_of_other_images_are_one_sentence(folder):
    with pytest.raises(DataError, match="no scores for 28 of the 40 images of scenes"):
        run("evaluate", "scenes:40", "--model", folder / "weak.npz")


@pytest.mark.slow
def test_help_does_not_wait_for_torch():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom manylabel.cli.main import app\n"
        "for name in ('evaluate', 'compare'):\n    assert CliRunner().invoke(app, [name, '--help']).exit_code == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_exported_file_is_evaluated_without_its_model(colour_file, tmp_path):
    for colour in ("red", "blue"):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{colour}.png")
    (tmp_path / "labels.csv").write_text("image,labels\nred.png,red\nblue.png,blue\n")
    data = f"csv:{tmp_path / 'labels.csv'},images={tmp_path}"
    result = run("evaluate", data, "--model", colour_file, "--json", "--draws", "0")
    assert json.loads(result.stdout)["metrics"]["mAP"]["value"] == 1


@pytest.mark.slow
def test_metrics_are_printed_on_request(folder):
    plain = run("evaluate", SPEC, "--model", folder / "strong.npz", "--draws", 0).stdout
    assert "Hamming loss" not in plain
    assert "one-error" in plain
    everything = run("evaluate", SPEC, "--model", folder / "strong.npz", "--draws", 0, "--metrics", "all").stdout
    assert "Hamming loss" in everything
    few = run("evaluate", SPEC, "--model", folder / "strong.npz", "--draws", 0, "--metrics", "coverage, OF1").stdout
    assert "coverage" in few
    assert "one-error" not in few
    with pytest.raises(ConfigError, match="no metric 'hamming'; did you mean 'hamming_loss'"):
        run("evaluate", SPEC, "--model", folder / "strong.npz", "--metrics", "hamming")


TUNE_SPEC = "scenes:40"
LABELS = scenes(1).labels


def make(labels=LABELS, **settings):
    torch.manual_seed(0)
    settings |= {"pretrained": False, "image_size": 32}
    return Classifier.create("test_resnet", head=heads.LinearClassifier, labels=labels, **settings).eval()


@pytest.fixture
def tune_folder(tmp_path):
    return make().save_pretrained(tmp_path / "tagger")


def run_tune(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)], env={"COLUMNS": "160"}, catch_exceptions=False)


def config(tune_folder):
    return json.loads((tune_folder / "config.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_tuned_copy_keeps_all_but_thresholds_and_calibration(tune_folder, tmp_path):
    (tune_folder / "README.md").write_text("my model")
    result = run_tune(
        TUNE_SPEC, "--model", tune_folder, "--out", tmp_path / "tuned", "--html", tmp_path / "page.html", "--folds", "2"
    )
    assert result.exit_code == 0
    assert "40 images, 2-fold cross-validation; thresholds for F1" in result.output
    assert "calibration error" in result.output
    assert "fewer than 10 images" in result.output
    assert (tmp_path / "tuned" / "README.md").read_text() == "my model"
    assert "Tuning of tagger" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert config(tune_folder)["thresholds"] is None
    tuned = config(tmp_path / "tuned")
    changed = {"thresholds", "calibration"}
    assert {key: value for key, value in tuned.items() if key not in changed} == {
        key: value for key, value in config(tune_folder).items() if key not in changed
    }
    model = Classifier.from_pretrained(tmp_path / "tuned")
    assert model.calibration.method == "platt"
    assert model.thresholds == tuple(tuned["thresholds"])
    image = scenes(1).images[0]
    raw = torch.from_numpy(Classifier.from_pretrained(tune_folder).predict(image).scores)
    torch.testing.assert_close(
        torch.from_numpy(model.predict(image).scores), model.calibration.apply(raw.logit()).sigmoid()
    )


@pytest.mark.slow
def test_the_model_itself_is_changed_unless_it_is_a_trial(tune_folder):
    run_tune(TUNE_SPEC, "--model", tune_folder, "--dry-run", "--folds", "2")
    assert config(tune_folder)["thresholds"] is None
    run_tune(TUNE_SPEC, "--model", tune_folder, "--calibrate", "none", "--objective", "recall=0.9", "--folds", "2")
    assert len(config(tune_folder)["thresholds"]) == len(LABELS)
    assert config(tune_folder)["calibration"] is None


@pytest.mark.slow
def test_a_copy_leaves_what_else_is_in_its_folder(tune_folder, tmp_path):
    runs = tmp_path / "runs"
    other = make().save_pretrained(runs / "first" / "model")
    (runs / "notes.txt").write_text("do not delete")
    run_tune(TUNE_SPEC, "--model", tune_folder, "--out", runs, "--overwrite", "--folds", "2")
    assert (runs / "notes.txt").read_text() == "do not delete"
    assert Classifier.from_pretrained(other).thresholds is None
    assert Classifier.from_pretrained(runs).thresholds is not None


@pytest.mark.slow
def test_a_copy_may_lie_inside_the_model(tune_folder):
    for _ in range(2):
        run_tune(TUNE_SPEC, "--model", tune_folder, "--out", tune_folder / "tuned", "--overwrite", "--folds", "2")
    assert {path.name for path in (tune_folder / "tuned").iterdir()} == {
        "config.json",
        "labels.json",
        "model.safetensors",
    }
    assert config(tune_folder)["thresholds"] is None


@pytest.mark.slow
def test_a_single_label_model_is_calibrated_as_its_softmax_is_and_gets_no_thresholds(tmp_path):
    model = make(single_label=True)  # the data do not say so
    model.thresholds = (0.5,) * len(model.labels)
    tune_folder = model.save_pretrained(tmp_path / "model")
    result = run_tune(TUNE_SPEC, "--model", tune_folder, "--folds", "2")
    assert "2-fold cross-validation; calibration only" in result.output
    assert "no thresholds to tune" in result.output
    assert "Changed calibration in" in result.output
    tuned = Classifier.from_pretrained(tune_folder)
    assert (tuned.thresholds, tuned.calibration.method, len(set(tuned.calibration.scale))) == (None, "temperature", 1)
    assert set(tuned.calibration.shift) == {0.0}


@pytest.mark.slow
def test_labels_in_another_order_are_put_into_the_models(tmp_path):
    model = make(labels=LABELS.names[::-1])
    run_tune(TUNE_SPEC, "--model", model.save_pretrained(tmp_path / "model"), "--calibrate", "none", "--folds", "2")
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
            run_tune(TUNE_SPEC, "--model", make(labels=labels).save_pretrained(tmp_path / name))


def test_the_package_itself_is_never_changed():
    with pytest.raises(ConfigError, match="part of the package"):
        run_tune(TUNE_SPEC, "--model", "builtin:everyday")
    with pytest.raises(ConfigError, match="is not a local model folder; write a changed copy"):
        run_tune(TUNE_SPEC, "--model", "someone/street-tagger")
