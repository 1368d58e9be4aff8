"""Exports are slow: each test makes one, of a tiny untrained model, and every head and family has its turn."""

import json

import numpy as np
import onnx
import pytest
import torch

import manylabel.inference.export as export_module
from manylabel import Classifier, heads
from manylabel.builtin import sample_photos
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.images import prepare
from manylabel.inference import open_engine
from manylabel.inference.export import export_onnx, export_torch, quantise
from manylabel.predictions import METADATA_KEY, InferenceSpec

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
def test_heads_and_families_export_with_a_free_number_of_images(name, tmp_path):
    backbone, settings = COMBINATIONS[name]
    model = build(backbone, heads.HEADS[name], **settings)
    result = export_onnx(model, tmp_path / "model.onnx", any_size=False)
    assert result.difference < 1e-4
    engine = open_engine(result.path)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), dtype=np.uint8)
    spec = model.input_spec
    images = (
        torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - torch.tensor(spec.mean).view(3, 1, 1)
    ) / torch.tensor(spec.std).view(3, 1, 1)
    with torch.inference_mode():
        expected = model(images).sigmoid()
    np.testing.assert_allclose(engine.scores(pixels), expected, atol=1e-4)


def test_a_file_says_labels_thresholds_and_preparation(exported):
    model, result = exported
    assert open_engine(result.path).spec == InferenceSpec(model.labels, model.input_spec, model.thresholds)


def test_scores_are_calibrated_and_those_of_the_model(exported):
    model, result = exported
    found = open_engine(result.path).predict(sample_photos()).above(0.0)
    expected = model.predict(sample_photos()).scores
    for row, scores in zip(found, expected, strict=True):
        assert dict(row) == pytest.approx(dict(zip(LABELS, scores.tolist(), strict=True)), abs=1e-4)


def test_images_may_have_any_size_where_the_backbone_allows(exported):
    _, result = exported
    assert result.any_size
    scores = open_engine(result.path).scores(np.zeros((2, 96, 128, 3), np.uint8))
    assert scores.shape == (2, 3)


def test_a_backbone_that_pads_by_size_says_that_it_takes_one_size(tmp_path):
    model = build("tf_efficientnet_lite0", heads.LinearClassifier)
    result = export_onnx(model, tmp_path / "model.onnx")
    assert not result.any_size
    assert "pads depending on the image size" in result.note


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
    with pytest.raises(ConfigError, match="differ from the model's by nan"):
        export_onnx(build(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unless_asked(tmp_path):
    (tmp_path / "model.onnx").touch()
    with pytest.raises(OutputExistsError, match="--overwrite"):
        export_onnx(build(), tmp_path / "model.onnx")


def test_a_smaller_file_in_whole_numbers_says_what_it_costs(exported, tmp_path):
    _, source = exported
    pixels = np.stack([prepare(photo, open_engine(source.path).spec.input_spec) for photo in sample_photos()])
    result = quantise(source.path, tmp_path / "small.onnx", pixels)
    assert result.size_ratio > 1.5
    assert result.speed_ratio > 0
    differences = open_engine(result.path).scores(pixels) - open_engine(source.path).scores(pixels)
    assert 0 < np.abs(differences).max() < 0.1
    assert open_engine(result.path).spec == open_engine(source.path).spec
    with pytest.raises(ConfigError, match="needs at least one calibration image"):
        quantise(source.path, tmp_path / "none.onnx", pixels[:0])


def test_activations_stay_floats_where_8_bits_would_flip_tags(exported, tmp_path, monkeypatch):
    _, source = exported
    pixels = np.stack([prepare(photo, open_engine(source.path).spec.input_spec) for photo in sample_photos()])
    monkeypatch.setattr(export_module, "flipped_tags", lambda *_: (1, 10))
    result = quantise(source.path, tmp_path / "small.onnx", pixels)
    assert result.weights_only
    assert result.size_ratio > 1.5
    kinds = {node.op_type for node in onnx.load(result.path).graph.node}
    assert "Cast" in kinds
    assert "QuantizeLinear" not in kinds
    np.testing.assert_allclose(
        open_engine(result.path).scores(pixels), open_engine(source.path).scores(pixels), atol=0.02
    )


@pytest.mark.parametrize(("shape", "axis"), [((8, 4, 3, 3), 0), ((64, 16), 1)])
def test_8_bit_weights_are_within_half_a_step_of_each_channel(shape, axis):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    integers, scale = export_module._to_8_bits(values, axis)
    assert integers.dtype == np.int8
    assert scale.size == shape[axis]
    assert (np.abs(integers * scale - values) <= 0.5001 * scale).all()
