"""What actors and replicas compute, in this process and without Ray."""

import os
import sys

import pyarrow
import pytest
from PIL import Image

from colour_model import write_colour_model
from manylabel.inference import Predictor
from manylabel.inference.on_ray.actors import TaggingActor, join_names, table_to_pictures
from manylabel.inference.on_ray.placed_model import PlacedModel
from manylabel.predictions import TagChoice

ODD_NAME = "caf\udce9.png" if sys.platform == "linux" else "cafe.png"  # only Linux lets a file name be any bytes


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_colour_model(tmp_path_factory.mktemp("colours") / "colours.onnx")


def test_an_actor_tags_as_a_predictor_does(model, tmp_path):
    names = [f"{number}.png" for number in range(5)] + [ODD_NAME, "gone.png"]
    for number, name in enumerate(names[:-1]):
        Image.new("RGB", (30 + number, 20), (40 * number, 200, 255 - 40 * number)).save(tmp_path / name)
    actor = TaggingActor(PlacedModel(model), TagChoice(top=2), batch_size=3, folder=str(tmp_path))
    rows = pyarrow.table({"names": [join_names(names[:4]), join_names(names[4:])]})
    with actor.pool:
        tables = list(actor(rows))
    assert [len(table) for table in tables] == [3, 3, 1]
    found = [picture for table in tables for picture in table_to_pictures(table)]
    expected = Predictor.load(model).predict([tmp_path / name for name in names]).tagged(TagChoice(top=2))
    assert [picture.name for picture in found] == names
    assert [(picture.tags, picture.error) for picture in found] == [(each.tags, each.error) for each in expected]


def test_a_path_is_made_absolute_for_other_processes(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    assert PlacedModel(model.name).model == str(model.resolve())
    assert PlacedModel("builtin:coco80").model == "builtin:coco80"
    assert os.fsdecode(join_names(["a", "b"])) == "a\0b"
