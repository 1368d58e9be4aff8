"""What the tests of recipes share: few small pictures, a small backbone, features in a folder of their own."""

import pytest

from manylabel.data import scenes
from manylabel.recipes import TrainAndVal


@pytest.fixture(scope="session")
def sets():
    return TrainAndVal(scenes(40, split="train", size=64), scenes(40, split="val", size=64))


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def quick():
    """Settings that make any recipe run in a second."""
    return {
        "data": "scenes:40,size=64",
        "backbone": "resnet10t",
        "pretrained": False,
        "image_size": 64,
        "epochs": 2,
        "batch_size": 8,
        "workers": 0,
        "device": "cpu",
        "logger": "none",
    }
