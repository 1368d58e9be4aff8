"""From a model's name to what runs it; exports are slow."""

import logging

import numpy as np
import pytest
import torch
from PIL import Image

import manylabel.inference.export as export_module
from colour_model import SPEC, write_colour_model
from manylabel import Classifier, heads
from manylabel.builtin import sample_photos
from manylabel.classifier import TorchEngine
from manylabel.engine import Uncalibrated
from manylabel.errors import ConfigError, ModelFormatError
from manylabel.images import prepare
from manylabel.inference.engine import FEW_IMAGES, OnnxEngine, export_path, open_engine
from sample_files import encode

LABELS = ["cat", "dog", "cow"]


def build(backbone="test_resnet", head=heads.LinearClassifier, **settings):
    torch.manual_seed(0)
    return Classifier.create(
        backbone, head=head, labels=LABELS, head_settings=settings, pretrained=False, image_size=64
    ).eval()


@pytest.mark.slow
def test_a_model_is_exported_once_and_found_again_in_the_cache(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    first = open_engine(tiny_model, num_threads=1)
    assert list((tmp_path / "models").iterdir()) == [export_path(tiny_model)]
    monkeypatch.setattr(export_module, "export_onnx", None)
    again, in_torch = open_engine(tiny_model), open_engine(tiny_model, engine="torch")
    for engine in (again, in_torch):
        assert engine.spec == first.spec
        pixels = np.stack([prepare(photo, engine.spec.input_spec) for photo in sample_photos()])
        np.testing.assert_allclose(engine.scores(pixels), first.scores(pixels), atol=1e-4)


@pytest.mark.slow
def test_torch_runs_what_cannot_be_exported(tiny_model, tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise ConfigError("no such operator")

    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    monkeypatch.setattr(export_module, "export_onnx", fail)
    with caplog.at_level(logging.WARNING):
        engine = open_engine(tiny_model)
    assert "torch runs the model: no such operator" in caplog.text
    assert len(engine.predict(sample_photos())) == 3
    with pytest.raises(ConfigError, match="no such operator"):
        open_engine(tiny_model, engine="onnx")


@pytest.mark.slow
def test_few_images_run_in_torch_at_once_unless_an_export_exists(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    said = []
    few = open_engine(tiny_model, num_images=FEW_IMAGES - 1, notify=said.append)
    assert isinstance(few, TorchEngine)
    assert [text.startswith("Running the model in torch") for text in said] == [True]
    many = open_engine(tiny_model, num_images=FEW_IMAGES, notify=said.append)
    assert isinstance(many, OnnxEngine)
    assert said[1:] == ["Exporting the model to onnxruntime (once, about half a minute)."]
    assert isinstance(open_engine(tiny_model, num_images=1, notify=said.append), OnnxEngine)
    assert len(said) == 2
    pixels = np.stack([prepare(photo, few.spec.input_spec) for photo in sample_photos()])
    np.testing.assert_allclose(few.logits(pixels), many.logits(pixels), atol=1e-4)
    np.testing.assert_allclose(Uncalibrated(many).scores(pixels), few.scores(pixels), atol=1e-5)


@pytest.mark.slow
def test_another_model_has_another_export(tiny_model, tmp_path):
    other = build().save_pretrained(tmp_path / "model")
    paths = {export_path(tiny_model), export_path(other), export_path(other, ["cat"])}
    assert len(paths) == 3
    with pytest.raises(ModelFormatError, match=r"config\.json missing"):
        export_path(tmp_path)


@pytest.mark.slow
def test_a_device_and_an_engine_must_fit(tiny_model):
    with pytest.raises(ConfigError, match="on the CPU only, got device cuda"):
        open_engine(tiny_model, engine="onnx", device="cuda")


RED = Image.new("RGB", (40, 30), (255, 51, 0))


def test_names_what_is_in_images_of_every_kind(colour_file, tmp_path):
    RED.save(tmp_path / "red.png")
    engine = open_engine(colour_file)
    images = [RED, encode(RED, "PNG"), np.asarray(RED), tmp_path / "red.png", str(tmp_path / "red.png")]
    results = engine.predict(images, batch_size=2)
    assert [result.tags for result in results] == [(("red", 1.0),)] * 5
    assert [result.name for result in results[:3]] == ["image 0", "image 1", "image 2"]
    assert engine.predict(RED).top(2) == [(("red", 1.0), ("green", 0.2))]


def test_a_bad_image_keeps_its_place_and_says_why(colour_file):
    first, bad, last = open_engine(colour_file).predict([RED, b"", RED])
    assert (first.error, bad.error, last.error) == (None, "it is empty (0 bytes)", None)
    assert first.tags == last.tags != bad.tags
    assert open_engine(colour_file).predict([b""])[0].tags == ()


def test_files_that_are_not_ours_are_refused(tmp_path):
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    write_colour_model(tmp_path / "strange.onnx", spec=None)
    for name, words in (("gone", "there is no file"), ("noise", "cannot be opened"), ("strange", "has no labels")):
        with pytest.raises(ModelFormatError, match=words):
            open_engine(tmp_path / f"{name}.onnx")


def test_an_exported_model_keeps_its_labels_and_engine(colour_file):
    assert open_engine(colour_file).spec.labels == SPEC.labels
    for settings in ({"labels": ["cat"]}, {"engine": "torch"}):
        with pytest.raises(ConfigError, match="runs in onnxruntime on the CPU, with its own labels"):
            open_engine(colour_file, **settings)
