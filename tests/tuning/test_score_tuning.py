import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from manylabel.classifier import ScoreCalibration
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.errors import ConfigError, DataError, LabelError
from manylabel.tuning import ScoreTuning, tune_scores


@pytest.fixture(scope="module")
def dataset():
    return scenes(120)


def similarities(dataset):
    """Scores as of CLIP: higher where a label is present, but nowhere near a probability."""
    values, _ = dataset.targets.dense()
    noise = np.random.default_rng(0).normal(0, 0.01, values.shape)
    return (0.2 + 0.05 * values + np.linspace(0, 0.05, values.shape[1]) + noise).astype(np.float32)


def write(path, dataset, scores):
    names = [dataset.images.name(index) for index in range(len(dataset))]
    lines = [",".join([name, *map(str, row)]) for name, row in zip(names, scores.tolist(), strict=True)]
    path.write_text("\n".join([",".join(["image", *dataset.labels]), *lines]) + "\n")
    return path


def test_every_label_needs_its_values():
    one = ScoreCalibration("platt", scale=(1.0,), shift=(0.0,))
    with pytest.raises(ConfigError, match="calibration must have a value for each of 2 labels, got 1"):
        ScoreTuning(("cat", "dog"), one, (0.5, 0.5))
    with pytest.raises(ConfigError, match="thresholds must have a value for each of 2 labels, got 0"):
        ScoreTuning(("cat", "dog"), None, ())
    with pytest.raises(ConfigError, match="as many scales as shifts, got 2 and 1"):
        ScoreCalibration("platt", scale=(1.0, 1.0), shift=(0.0,))


def test_extreme_raw_scores_do_not_overflow(dataset, tmp_path):
    scores = similarities(dataset)
    scores[0, 0] = -1e9
    _, tuning = tune_scores(write(tmp_path / "clip.csv", dataset, scores), dataset, raw=True, num_folds=2)
    assert len(tuning.labels) == len(dataset.labels)


@pytest.mark.parametrize("factor", [1, 100, 10_000])
def test_raw_scores_become_probabilities_whatever_their_unit(dataset, tmp_path, factor):
    scores = factor * similarities(dataset)
    file = write(tmp_path / "clip.csv", dataset, scores)
    result, tuning = tune_scores(file, dataset, raw=True, num_folds=2)
    assert result.after.metrics["OF1"] > 0.9 > result.before.metrics["OF1"]
    applied = tuning.apply_file(file)
    values, _ = dataset.targets.dense()
    tags = np.array([[label in [tag.label for tag in image.tags] for label in dataset.labels] for image in applied])
    assert (tags == values).mean() > 0.98
    expected = 1 / (1 + np.exp(-(scores * tuning.calibration.scale + tuning.calibration.shift)))
    np.testing.assert_allclose(applied.scores, expected, atol=2e-3)


def test_probabilities_are_calibrated_by_their_logits(dataset, tmp_path):
    scores = torch.from_numpy(40 * (similarities(dataset) - 0.25)).sigmoid()
    file = write(tmp_path / "scores.csv", dataset, scores.numpy())
    _, tuning = tune_scores(file, dataset, num_folds=2)
    again = ScoreTuning.read(tuning.write(tmp_path / "tuning.json"))
    assert again == tuning
    expected = tuning.calibration.apply(scores.logit()).sigmoid().numpy()
    np.testing.assert_allclose(again.apply_file(file).scores, expected, atol=1e-4)


def test_columns_are_matched_by_name(dataset, tmp_path):
    scores = similarities(dataset)
    _, tuning = tune_scores(write(tmp_path / "clip.csv", dataset, scores), dataset, raw=True, num_folds=2)
    labels = ["more", *reversed(tuning.labels)]
    shuffled = np.concatenate([scores[:, :1], scores[:, ::-1]], axis=1)
    names = [str(row) for row in range(len(scores))]
    ours = tuning.apply(shuffled, names=names, labels=labels).scores
    np.testing.assert_array_equal(ours, tuning.apply(scores, names=names).scores)
    with pytest.raises(LabelError, match="the scores lack label"):
        tuning.apply(scores[:, :1], names=names, labels=["more"])


def test_scores_that_do_not_fit_are_errors(dataset, tmp_path):
    logits = write(tmp_path / "logits.csv", dataset, 100 * similarities(dataset))
    with pytest.raises(ConfigError, match=r"must be probabilities in 0..1, got .*--raw"):
        tune_scores(logits, dataset)
    with pytest.raises(ConfigError, match="raw scores need a calibration"):
        tune_scores(logits, dataset, raw=True, method="none")
    with pytest.raises(ConfigError, match="must be probabilities"):
        ScoreTuning(("cat",), None, (0.5,)).apply([[7.0]], names=["a.jpg"])
    with pytest.raises(ConfigError, match="a value for each of 2 labels"):
        ScoreTuning(("cat", "dog"), None, (0.5,))
    (tmp_path / "odd.json").write_text('{"thresholds": 3}')
    with pytest.raises(DataError, match="is not a tuning"):
        ScoreTuning.read(tmp_path / "odd.json")
    with pytest.raises(DataError, match="does not exist"):
        ScoreTuning.read(tmp_path / "none.json")


def test_the_commands_tune_and_apply_scores(dataset, tmp_path, monkeypatch):
    file = write(tmp_path / "clip.csv", dataset, similarities(dataset))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return CliRunner().invoke(app, words, catch_exceptions=False)

    with pytest.raises(ConfigError, match="set either --model, or --scores"):
        run("tune", "scenes:120")
    with pytest.raises(ConfigError, match="needs a JSON file"):
        run("tune", "scenes:120", "--scores", str(file))
    with pytest.raises(ConfigError, match="need --scores"):
        run("tune", "scenes:120", "--model", "somewhere", "--raw")
    tuned = run("tune", "scenes:120", "--scores", "clip.csv", "--raw", "--out", "tuning.json", "--html", "page.html")
    assert "Wrote tuning.json" in tuned.output
    assert json.loads((tmp_path / "tuning.json").read_text())["raw"] is True
    applied = run("apply", "clip.csv", "--tuning", "tuning.json", "--out", "tags.csv")
    assert "120 images" in applied.output
    assert len((tmp_path / "tags.csv").read_text().splitlines()) == 121
    evaluated = run("evaluate", "scenes:120", "--scores", "clip.csv", "--draws", "0")
    assert "mAP" in evaluated.output
