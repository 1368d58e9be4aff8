"""What a replica computes, in this process and without Ray."""

import pickle
import sys
from functools import partial

import pytest
from PIL import Image

from manylabel.inference import open_engine
from manylabel.inference.pipeline import _Replica
from manylabel.predictions import TagChoice

ODD_NAME = "caf\udce9.png" if sys.platform == "linux" else "cafe.png"  # only Linux lets a file name be any bytes


@pytest.mark.slow
def test_a_replica_tags_as_one_machine_does(colour_file, tmp_path):
    names = [f"{number}.png" for number in range(5)] + [ODD_NAME, "gone.png"]
    for number, name in enumerate(names[:-1]):
        Image.new("RGB", (30 + number, 20), (40 * number, 200, 255 - 40 * number)).save(tmp_path / name)
    replica = _Replica(partial(open_engine, colour_file), TagChoice(top=2), batch_size=3)
    with replica.pool:
        found = replica(pickle.loads(pickle.dumps([(name, str(tmp_path / name)) for name in names])))
    expected = open_engine(colour_file).predict([tmp_path / name for name in names]).tagged(TagChoice(top=2))
    assert [image.name for image in found] == names
    assert not any(len(image.labels) for image in found)  # only names and tags travel
    assert [(image.tags, image.error) for image in found] == [(each.tags, each.error) for each in expected]
