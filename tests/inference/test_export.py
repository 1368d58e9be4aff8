"""Exports are slow: each test makes one, of a tiny untrained model, and every head and family has its turn."""

import json
import logging

import numpy as np
import onnx
import pytest
import torch

import manylabel.inference.export as export_module
import manylabel.inference.quantisation as quantisation
from manylabel import Classifier, heads
from manylabel.builtin import sample_photos
from manylabel.classifier import ScoreCalibration, TorchEngine
from manylabel.errors import ConfigError, ModelFormatError, OutputExistsError
from manylabel.images import prepare
from manylabel.inference import Predictor, export_onnx, export_torch, quantise
from manylabel.inference.engine import FEW_IMAGES, OnnxEngine, export_path, open_engine
from manylabel.predictions import METADATA_KEY, InferenceSpec, Uncalibrated

pytestmark = pytest.mark.slow

LABELS = ["cat", "dog", "cow"]
SMALL = {"width": 16, "num_heads": 2, "feedforward": 16}
COMBINATIONS = {
    "conse": ("test_resnet", {"text_vectors": torch.eye(3)}),
    "hsq": ("test_resnet", {}),
    "linear": ("test_vit", {}),
    "ml_decoder": ("test_efficientnet", {**SMALL, "num_groups": 2}),
    "rm": ("test_convnext", {}),
    "csra": ("test_byobnet", {}),
    "text_map": ("test_resnet", {"text_vectors": torch.eye(3)}),
    "token_encoder": ("test_nfnet", {**SMALL, "num_layers": 1}),
    "q2l": ("test_mambaout", {**SMALL, "num_decoder_layers": 1}),
}


def build(backbone="test_resnet", head=heads.LinearClassifier, **settings):
    torch.manual_seed(0)
    return Classifier.create(
        backbone, head=head, labels=LABELS, head_settings=settings, pretrained=False, image_size=64
    ).eval()


def test_every_head_has_its_turn():
    assert set(COMBINATIONS) == set(heads.HEADS)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_heads_and_families_export_with_a_free_number_of_pictures(name, tmp_path):
    backbone, settings = COMBINATIONS[name]
    model = build(backbone, heads.HEADS[name], **settings)
    result = export_onnx(model, tmp_path / "model.onnx", any_size=False)
    assert result.difference < 1e-4
    predictor = Predictor.load(result.path)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), dtype=np.uint8)
    spec = model.input_spec
    images = (
        torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - torch.tensor(spec.mean).view(3, 1, 1)
    ) / torch.tensor(spec.std).view(3, 1, 1)
    with torch.inference_mode():
        expected = model(images).sigmoid()
    np.testing.assert_allclose(predictor.scores(pixels), expected, atol=1e-4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A calibrated model with thresholds, and its file for any size of pictures."""
    model = build()
    model.thresholds = (0.1, 0.2, 0.3)
    model.calibration = ScoreCalibration("platt", scale=(2.0, 0.5, 1.0), shift=(0.1, -1.0, 0.0))
    return model, export_onnx(model, tmp_path_factory.mktemp("exported") / "model.onnx")


def test_a_file_says_labels_thresholds_and_preparation(exported):
    model, result = exported
    assert Predictor.load(result.path).spec == InferenceSpec(model.labels, model.input_spec, model.thresholds)


def test_scores_are_calibrated_and_those_of_the_model(exported):
    model, result = exported
    found = Predictor.load(result.path).predict(sample_photos()).above(0.0)
    expected = model.predict(sample_photos()).scores
    for row, scores in zip(found, expected, strict=True):
        assert dict(row) == pytest.approx(dict(zip(LABELS, scores.tolist(), strict=True)), abs=1e-4)


def test_pictures_may_have_any_size_where_the_backbone_allows(exported):
    _, result = exported
    assert result.any_size
    scores = Predictor.load(result.path).scores(np.zeros((2, 96, 128, 3), np.uint8))
    assert scores.shape == (2, 3)


def test_a_backbone_that_pads_by_size_says_that_it_takes_one_size(tmp_path):
    model = build("tf_efficientnet_lite0", heads.LinearClassifier)
    result = export_onnx(model, tmp_path / "model.onnx")
    assert not result.any_size
    assert "pads images by their size" in result.note


def test_a_smaller_file_in_whole_numbers_says_what_it_costs(exported, tmp_path):
    _, source = exported
    pixels = np.stack([prepare(photo, Predictor.load(source.path).spec.input_spec) for photo in sample_photos()])
    result = quantise(source.path, tmp_path / "small.onnx", pixels)
    assert result.size_ratio > 1.5
    assert result.speed_ratio > 0
    differences = Predictor.load(result.path).scores(pixels) - Predictor.load(source.path).scores(pixels)
    assert 0 < np.abs(differences).max() < 0.1
    assert Predictor.load(result.path).spec == Predictor.load(source.path).spec
    with pytest.raises(ConfigError, match="give images to calibrate with"):
        quantise(source.path, tmp_path / "none.onnx", pixels[:0])


def test_activations_stay_floats_where_8_bits_would_flip_tags(exported, tmp_path, monkeypatch):
    _, source = exported
    pixels = np.stack([prepare(photo, Predictor.load(source.path).spec.input_spec) for photo in sample_photos()])
    monkeypatch.setattr(quantisation, "flipped_tags", lambda *_: (1, 10))
    result = quantise(source.path, tmp_path / "small.onnx", pixels)
    assert result.weights_only
    assert result.size_ratio > 1.5
    kinds = {node.op_type for node in onnx.load(result.path).graph.node}
    assert "Cast" in kinds
    assert "QuantizeLinear" not in kinds
    np.testing.assert_allclose(
        Predictor.load(result.path).scores(pixels), Predictor.load(source.path).scores(pixels), atol=0.02
    )


@pytest.mark.parametrize(("shape", "axis"), [((8, 4, 3, 3), 0), ((64, 16), 1)])
def test_8_bit_weights_are_within_half_a_step_of_each_channel(shape, axis):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    integers, scale = quantisation._to_8_bits(values, axis)
    assert integers.dtype == np.int8
    assert scale.size == shape[axis]
    assert (np.abs(integers * scale - values) <= 0.5001 * scale).all()


def test_a_program_of_torch_gives_the_same_scores(tmp_path):
    model = build()
    result = export_torch(model, tmp_path / "model.pt2", any_size=False)
    said = {METADATA_KEY: ""}
    program = torch.export.load(result.path, extra_files=said).module()
    assert json.loads(said[METADATA_KEY])["labels"]["names"] == LABELS
    scores, logits = program(torch.zeros(3, 64, 64, 3, dtype=torch.uint8))
    torch.testing.assert_close(scores, logits.sigmoid())


def test_a_file_that_disagrees_is_not_written(tmp_path, monkeypatch):
    def wrong(module, images, path, **settings):
        path.write_bytes(b"anything")

    class Session:
        def run(self, names, inputs):
            return [np.full((len(inputs["images"]), 3), np.nan, np.float32)]

    monkeypatch.setattr(export_module, "write_onnx", wrong)
    monkeypatch.setattr(export_module, "open_session", lambda path: Session())
    with pytest.raises(ConfigError, match="disagrees with the model: scores differ by nan"):
        export_onnx(build(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unless_asked(tmp_path):
    (tmp_path / "model.onnx").touch()
    with pytest.raises(OutputExistsError, match="--overwrite"):
        export_onnx(build(), tmp_path / "model.onnx")


def test_a_model_is_exported_once_and_found_again_in_the_cache(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    first = Predictor.load(tiny_model, num_threads=1)
    assert list((tmp_path / "models").iterdir()) == [export_path(tiny_model)]
    monkeypatch.setattr(export_module, "export_onnx", None)
    again, in_torch = Predictor.load(tiny_model), Predictor.load(tiny_model, engine="torch")
    for predictor in (again, in_torch):
        assert predictor.spec == first.spec
        pixels = np.stack([prepare(photo, predictor.spec.input_spec) for photo in sample_photos()])
        np.testing.assert_allclose(predictor.scores(pixels), first.scores(pixels), atol=1e-4)


def test_torch_runs_what_cannot_be_exported(tiny_model, tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise ConfigError("no such operator")

    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    monkeypatch.setattr(export_module, "export_onnx", fail)
    with caplog.at_level(logging.WARNING):
        predictor = Predictor.load(tiny_model)
    assert "torch runs the model: no such operator" in caplog.text
    assert len(predictor.predict(sample_photos())) == 3
    with pytest.raises(ConfigError, match="no such operator"):
        Predictor.load(tiny_model, engine="onnx")


def test_few_images_run_in_torch_at_once_unless_an_export_exists(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    said = []
    few = open_engine(tiny_model, num_images=FEW_IMAGES - 1, notify=said.append)
    assert isinstance(few, TorchEngine)
    assert [text.startswith("Running the model in torch") for text in said] == [True]
    many = open_engine(tiny_model, num_images=FEW_IMAGES, notify=said.append)
    assert isinstance(many, OnnxEngine)
    assert said[1:] == ["Exporting the model to onnxruntime, once; this takes about half a minute."]
    assert isinstance(open_engine(tiny_model, num_images=1, notify=said.append), OnnxEngine)
    assert len(said) == 2
    pixels = np.stack([prepare(photo, few.spec.input_spec) for photo in sample_photos()])
    np.testing.assert_allclose(few.logits(pixels), many.logits(pixels), atol=1e-4)
    np.testing.assert_allclose(Uncalibrated(many).scores(pixels), few.scores(pixels), atol=1e-5)


def test_another_model_has_another_export(tiny_model, tmp_path):
    other = build().save(tmp_path / "model")
    paths = {export_path(tiny_model), export_path(other), export_path(other, ["cat"])}
    assert len(paths) == 3
    with pytest.raises(ModelFormatError, match=r"config\.json missing"):
        export_path(tmp_path)


def test_a_device_and_an_engine_must_fit(tiny_model):
    with pytest.raises(ConfigError, match="on the CPU here, not on cuda"):
        Predictor.load(tiny_model, engine="onnx", device="cuda")
