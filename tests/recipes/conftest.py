"""What the tests of recipes share: few small images and a small backbone."""

from dataclasses import replace

import pytest

from manylabel.data import LazyBytes, scenes
from manylabel.recipes import TrainAndVal


@pytest.fixture(scope="session")
def sets():
    """The images of the spec in `quick`, drawn once."""
    drawn = scenes(30, size=64)
    encoded = [drawn.images[index] for index in range(len(drawn))]
    names = [drawn.images.name(index) for index in range(len(drawn))]
    once = replace(drawn, images=LazyBytes(names, load=encoded.__getitem__))
    return TrainAndVal(once.split("train"), once.split("val"))


@pytest.fixture
def quick():
    """Settings that make any recipe run in a second."""
    return {
        "data": "scenes:30,size=64",
        "backbone": "resnet10t",
        "pretrained": False,
        "image_size": 64,
        "epochs": 2,
        "batch_size": 8,
        "workers": 0,
        "device": "cpu",
        "logger": "none",
    }
