import numpy as np
import pytest
import torch
from benchmarks.explain import measure_faithfulness, points_at
from msgspec.structs import replace
from PIL import Image
from torch import nn

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError
from manylabel.explain import Explanation
from manylabel.types import InputSpec


class _Corner(nn.Module):
    """A model that sees contrast in the upper left corner only."""

    def forward(self, features):
        corner = features[-1][:, :, :32, :32]
        return (corner.flatten(1).std(1, keepdim=True) - 0.5) * 20


class _Through(nn.Module):
    def forward(self, images):
        return [images]


@pytest.fixture(scope="module")
def model():
    model = Classifier(
        Backbone("test_resnet", pretrained=False),
        _Corner(),
        ["stripes"],
        input_spec=InputSpec(size=(64, 64), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    ).eval()
    model.device_holder = nn.Parameter(torch.zeros(1))
    model.backbone = _Through()
    return model


@pytest.fixture(scope="module")
def image():
    stripes = np.tile(np.repeat([0, 255], 2), (64, 16)).astype(np.uint8)
    return Image.fromarray(np.stack([stripes] * 3, axis=2))


def explanation(image, place):
    heat = torch.zeros(2, 2)
    heat[place] = 1
    return Explanation(image, "stripes", 1.0, heat, "cam")


def test_heat_on_what_matters_beats_heat_elsewhere(model, image):
    right, wrong = (measure_faithfulness(model, explanation(image, place), steps=8) for place in ((0, 0), (1, 1)))
    assert right.deletion_area < wrong.deletion_area - 0.2
    assert right.insertion_area > wrong.insertion_area + 0.2


def test_curves_begin_and_end_at_the_whole_and_the_blurred_image(model, image):
    found = measure_faithfulness(model, explanation(image, (0, 0)), steps=4)
    assert len(found.deletion) == len(found.insertion) == 5
    assert found.deletion[0] == found.insertion[-1] == pytest.approx(1, abs=1e-3)
    assert found.deletion[-1] == found.insertion[0] < 0.1


def test_what_the_model_sees_is_not_cropped_again(model, image, monkeypatch):
    """An explanation's image is the crop already; its edge must count."""
    monkeypatch.setattr(model, "input_spec", replace(model.input_spec, resize="crop", crop_fraction=0.5))
    pixels = np.zeros((64, 64, 3), dtype=np.uint8)
    pixels[:16, :16] = np.asarray(image)[:16, :16]
    found = measure_faithfulness(model, explanation(Image.fromarray(pixels), (0, 0)), steps=4)
    assert found.deletion[0] > 0.9


def test_a_curve_of_one_step_is_refused(model, image):
    with pytest.raises(ConfigError, match="at least 2 steps, got 1"):
        measure_faithfulness(model, explanation(image, (0, 0)), steps=1)


def test_the_pointing_game_takes_any_box_of_the_label(image):
    found = explanation(image, (1, 0))  # its middle is at 25 % and 75 %
    assert points_at(found, [(0.9, 0.9, 1, 1), (0.2, 0.7, 0.3, 0.8)])
    assert not points_at(found, [(0.3, 0.7, 1, 0.8)])
    assert not points_at(found, [])
