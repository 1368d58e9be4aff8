"""`manylabel vocabulary`: list, add and remove labels of a saved model."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.errors import ConfigError, LabelError, OutputExistsError
from manylabel.text import TextVocabulary


@pytest.fixture
def model(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.savez(tmp_path / "vectors.npz", labels=["cat", "dog", "tram", "fire truck"], vectors=vectors)
    text = {"text_vectors": torch.from_numpy(vectors[:2])}
    made = Classifier.create(
        "resnet10t", head=heads.TextMap, labels=["cat", "dog"], head_settings=text, pretrained=False
    )
    made.text = TextVocabulary(f"npz:{tmp_path / 'vectors.npz'}", ("{label}",), trained=("cat", "dog"))
    return made.save_pretrained(tmp_path / "model")


def run(*arguments):
    return CliRunner().invoke(app, ["vocabulary", *map(str, arguments)], catch_exceptions=False)


def listed(model):
    return {row["label"]: row["trained"] for row in json.loads(run("list", "--json", "--model", model).stdout)}


@pytest.mark.slow
def test_adds_lists_and_removes(model, tmp_path):
    assert "now has 4 labels (+2)" in run("add", "tram", "fire truck", "cat", "--model", model).stdout
    assert listed(model) == {"cat": True, "dog": True, "tram": False, "fire truck": False}
    assert "from text" in run("list", "--model", model).stdout
    assert "now has 2 labels (-2)" in run("remove", "tram", "cat", "--model", model).stdout
    assert listed(model) == {"dog": True, "fire truck": False}
    run("add", "cat", "--model", model)
    assert listed(model)["cat"]  # it was trained on, though it was gone for a while


def test_reads_labels_from_a_file_and_writes_elsewhere(model, tmp_path):
    (tmp_path / "new.txt").write_text("tram\n")
    run("add", tmp_path / "new.txt", "--out", tmp_path / "other", "--model", model)
    assert list(listed(tmp_path / "other")) == ["cat", "dog", "tram"]
    assert list(listed(model)) == ["cat", "dog"]


def test_a_model_that_is_changed_in_place_keeps_its_form_and_the_files_beside_it(model):
    loaded = Classifier.from_pretrained(model)
    loaded.save_pretrained(model, half=True, overwrite=True)
    (model / "README.md").write_text("my card")
    size = (model / "model.safetensors").stat().st_size
    run("add", "tram", "--model", model)
    assert (model / "README.md").read_text() == "my card"
    assert (model / "model.safetensors").stat().st_size < 1.1 * size


@pytest.mark.slow
def test_takes_the_folder_of_a_run_and_replaces_only_when_asked(model, tmp_path):
    model.rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    (tmp_path / "moved").rename(tmp_path / "run" / "model")
    run("add", "tram", "--out", tmp_path / "other", "--model", tmp_path / "run")
    with pytest.raises(OutputExistsError):
        run("remove", "cat", "--out", tmp_path / "other", "--model", tmp_path / "run")
    run("remove", "cat", "--out", tmp_path / "other", "--overwrite", "--model", tmp_path / "run")
    assert list(listed(tmp_path / "other")) == ["dog"]


@pytest.mark.slow
def test_refuses_what_makes_no_sense(model):
    assert run("add", "--model", model).exit_code == 2
    with pytest.raises(LabelError, match="the model has no label 'tarm'"):
        run("remove", "tarm", "--model", model)
    with pytest.raises(ConfigError, match="needs at least one"):
        run("remove", "cat", "dog", "--model", model)
    with pytest.raises(LabelError, match="no vector for 'boat'"):
        run("add", "boat", "--model", model)
    assert list(listed(model)) == ["cat", "dog"]


def test_says_which_recipe_to_use_where_labels_are_fixed(tmp_path):
    made = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
    folder = made.save_pretrained(tmp_path / "model")
    assert "was not trained with the recipe zero_shot" in run("list", "--model", folder).stdout
    with pytest.raises(ConfigError, match="use the recipe zero_shot"):
        run("add", "tram", "--model", folder)


def test_labels_in_brackets_are_shown(tmp_path):
    labels = ["cat [pet]", "dog[/]"]
    made = Classifier.create("test_resnet", head=heads.LinearClassifier, labels=labels, pretrained=False)
    shown = run("list", "--model", made.save_pretrained(tmp_path / "model")).stdout
    assert all(label in shown for label in labels)
