import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.errors import ConfigError, DataError, OutputExistsError

SPEC = "scenes:12"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, its scores would be those of no one, and two files of scores."""
    folder = tmp_path_factory.mktemp("models")
    dataset = scenes(12)
    model = Classifier.create(
        "resnet10t", head=heads.LinearClassifier, labels=dataset.labels, pretrained=False, image_size=64
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
        *("--html", outputs["html"], "--scores", outputs["csv"]),
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
    assert "Pairs of labels that improved together: " in result.output
    assert "<title>strong.npz against weak.npz</title>" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_model_is_compared_with_a_file(folder):
    result = run("compare", SPEC, *models(folder / "tagger", folder / "strong.npz"), "--draws", "0", "--json")
    assert json.loads(result.stdout)["first"] == "tagger"


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
