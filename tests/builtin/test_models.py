from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

import manylabel.builtin.models as models_module
from manylabel.builtin import DEFAULT_MODEL, builtin_models, find_model, local_model, sample_photos
from manylabel.classifier import Classifier
from manylabel.errors import ModelFormatError
from manylabel.images import image_size
from manylabel.inference import OnnxEngine, open_engine


def test_a_builtin_model_is_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "config.json").touch()
    monkeypatch.setattr(models_module, "FOLDER", tmp_path)
    assert builtin_models() == ["builtin:pets"]
    assert local_model("builtin:pets") == find_model("builtin:pets") == tmp_path / "pets"
    with pytest.raises(ModelFormatError, match=r"no model 'builtin:pet' .* did you mean 'builtin:pets'"):
        local_model("builtin:pet")


def test_a_name_cannot_leave_the_package(tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").touch()
    (tmp_path / "inside").mkdir()
    monkeypatch.setattr(models_module, "FOLDER", tmp_path / "inside")
    with pytest.raises(ModelFormatError, match="ships with this version"):
        local_model("builtin:../outside")


def test_a_run_stands_for_its_model(tmp_path):
    assert local_model(tmp_path) == tmp_path
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    assert local_model(str(tmp_path)) == tmp_path / "model"
    assert local_model(tmp_path / "no such") is None


def test_sample_photos_are_small_and_their_licence_lies_beside_them():
    photos = sample_photos()
    assert all(photo.stat().st_size < 100_000 for photo in photos)
    licence = (photos[0].parent / "LICENCE.md").read_text(encoding="utf-8")
    assert all(photo.name in licence for photo in photos)
    assert all(min(image_size(photo)) >= 300 for photo in photos)


def test_no_file_of_a_builtin_model_has_more_than_ten_megabytes():
    files = [file for name in builtin_models() for file in Path(local_model(name)).iterdir()]
    assert all(file.stat().st_size <= 10_000_000 for file in files)


@pytest.mark.slow
def test_the_default_model_names_what_is_in_the_sample_photos():
    model = Classifier.from_pretrained(DEFAULT_MODEL)
    scores = model.predict(sample_photos()).scores
    for image, label in enumerate(["person", "cat", "cup"]):
        assert scores[image].argmax() == model.labels.index(label)
        assert scores[image, model.labels.index(label)] > 0.9


@pytest.mark.slow
def test_torch_and_the_shipped_graph_give_the_same_scores():
    found = [open_engine(engine=engine, num_threads=1).predict(sample_photos()).scores for engine in ("onnx", "torch")]
    np.testing.assert_allclose(*found, atol=1e-3)


@pytest.mark.slow
def test_the_tool_that_made_a_builtin_model_makes_it_again(tmp_path):
    tags = ["person", "cat", "cup|dining table"]
    rows = [f"{photo},{row}" for photo, row in zip(sample_photos(), tags, strict=True)]
    table = tmp_path / "photos.csv"
    table.write_text("\n".join(["image,labels", *rows]), encoding="utf-8")
    tool = run_path(Path(__file__).parents[2] / "tools" / "make_builtin.py")
    card = tool["make"](
        local_model(DEFAULT_MODEL),
        "again",
        report=f"csv:{table}",
        trained_on="COCO",
        command=None,
        folder=tmp_path,
        overwrite=False,
    )
    assert "80 labels: MLDecoder" in card
    assert "| 3 other images" in card
    assert (tmp_path / "again" / "README.md").read_text(encoding="utf-8") == card
    assert Classifier.from_pretrained(tmp_path / "again").labels == Classifier.from_pretrained(DEFAULT_MODEL).labels
    scores = OnnxEngine(tmp_path / "again" / "model.onnx").predict(sample_photos()).scores
    np.testing.assert_allclose(scores, open_engine().predict(sample_photos()).scores, atol=1e-3)
