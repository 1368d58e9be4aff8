"""What the tests of deployment share."""

import pytest

from colour_model import write_colour_model
from manylabel import Classifier, heads


@pytest.fixture(scope="session")
def colour_file(tmp_path_factory):
    return write_colour_model(tmp_path_factory.mktemp("colours") / "colours.onnx")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """The folder of a tiny model with two labels."""
    model = Classifier.create(
        "test_resnet", head=heads.LinearHead, labels=["cat", "dog"], pretrained=False, image_size=64
    )
    model.thresholds = (0.4, 0.6)
    return model.save(tmp_path_factory.mktemp("tiny") / "model")
