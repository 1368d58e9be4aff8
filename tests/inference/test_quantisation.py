"""8-bit files: their size, and how far they are from the file they were made of."""

import numpy as np
import onnx
import pytest

import manylabel.inference.export as export_module
from manylabel.builtin import sample_photos
from manylabel.errors import ConfigError
from manylabel.images import prepare
from manylabel.inference import open_engine
from manylabel.inference.export import quantise

pytestmark = pytest.mark.slow


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
