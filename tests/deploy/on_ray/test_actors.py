"""What actors and replicas compute, in this process and without Ray."""

import asyncio
import json
import os
import sys
from types import SimpleNamespace

import pyarrow
import pytest
from PIL import Image
from starlette.requests import Request

from colour_model import write_colour_model
from manylabel.deploy import Predictor, TagChoice
from manylabel.deploy.on_ray.actors import TaggingActor, join_names, table_to_pictures
from manylabel.deploy.on_ray.placed_model import PlacedModel
from manylabel.deploy.on_ray.replica import Replica
from picture_files import encode

RED = encode(Image.new("RGB", (40, 30), "red"), "PNG")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_colour_model(tmp_path_factory.mktemp("colours") / "colours.onnx")


@pytest.fixture
def replica(model, monkeypatch):
    """A replica whose batches hold one picture each."""

    def batch(**settings):
        def decorate(function):
            async def one(picture):
                return (await function([picture]))[0]

            return one

        return decorate

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "ray.serve", SimpleNamespace(batch=batch))
    return Replica(PlacedModel(model), "colours", batch_size=4, wait_seconds=0)


def ask(replica, body, kind="image/png", path="/v1/predict", query=b"", method="POST"):
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "server": ("here", 80)}
    scope |= {"headers": [(b"content-type", kind.encode())], "scheme": "http", "root_path": ""}
    answer = asyncio.run(replica(Request(scope, receive)))
    return answer.status_code, json.loads(answer.body)


def test_an_actor_tags_as_a_predictor_does(model, tmp_path):
    names = [f"{number}.png" for number in range(5)] + ["caf\udce9.png", "gone.png"]
    for number, name in enumerate(names[:-1]):
        Image.new("RGB", (30 + number, 20), (40 * number, 200, 255 - 40 * number)).save(tmp_path / name)
    actor = TaggingActor(PlacedModel(model), TagChoice(top=2), batch_size=3, folder=str(tmp_path))
    rows = pyarrow.table({"names": [join_names(names[:4]), join_names(names[4:])]})
    with actor.pool:
        tables = list(actor(rows))
    assert [len(table) for table in tables] == [3, 3, 1]
    found = [picture for table in tables for picture in table_to_pictures(table)]
    expected = Predictor.load(model).predict([tmp_path / name for name in names], top=2)
    assert [picture.name for picture in found] == names
    assert [(picture.tags, picture.error) for picture in found] == [(each.tags, each.error) for each in expected]


def test_a_replica_answers_a_form_in_its_order(replica):
    files = (("a.png", RED), ("b.png", b"no picture"))
    head = '--edge\r\nContent-Disposition: form-data; name="pictures"; filename="{}"\r\n\r\n'
    body = b"".join(head.format(name).encode() + content + b"\r\n" for name, content in files) + b"--edge--\r\n"
    status, answer = ask(replica, body, "multipart/form-data; boundary=edge")
    assert (status, answer["model"]) == (200, "colours")
    first, second = answer["pictures"]
    assert first == {"name": "a.png", "tags": [{"label": "red", "display_name": "red", "score": 1.0}], "error": None}
    assert (second["name"], second["tags"]) == ("b.png", [])
    assert "not a picture" in second["error"]


def test_pictures_of_several_callers_make_one_batch(replica):
    sent = [SimpleNamespace(name=str(place), content=content) for place, content in enumerate((RED, b"", RED))]
    first, bad, last = replica.score_batch(sent)
    assert first.tolist() == last.tolist() == [1.0, 0.0, 0.0]
    assert bad.reason == "it is empty (0 bytes)"


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(replica):
    huge = encode(Image.new("1", (10_000, 6_000)), "PNG")
    (refused,) = replica.score_batch([SimpleNamespace(name="huge.png", content=huge)])
    assert "60,000,000 pixels, 50,000,000 are allowed" in str(refused)


@pytest.mark.parametrize(
    ("status", "code", "asked"),
    [
        (404, "not_found", {"path": "/v1/elsewhere"}),
        (405, "method_not_allowed", {"method": "GET"}),
        (413, "too_large", {"body": bytes(20_000_001)}),
        (415, "unsupported_type", {"kind": "application/json"}),
        (422, "unreadable_picture", {"body": b"no picture"}),
        (422, "bad_request", {"query": b"top=0"}),
        (422, "bad_request", {"query": b"top=many"}),
        (422, "bad_request", {"query": b"top=1&threshold=0.5"}),
        (422, "bad_request", {"query": b"threshold=nan"}),
        (422, "bad_request", {"kind": "multipart/form-data; boundary=edge"}),
        (422, "bad_request", {"kind": "multipart/form-data"}),
    ],
)
def test_bad_input_is_told_in_a_sentence(replica, status, code, asked):
    found = ask(replica, **{"body": RED, **asked})
    assert (found[0], found[1]["code"]) == (status, code)
    assert len(found[1]["message"]) > 15


def test_a_path_is_made_absolute_for_other_processes(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    assert PlacedModel(model.name).model == str(model.resolve())
    assert PlacedModel("builtin:coco80").model == "builtin:coco80"
    assert os.fsdecode(join_names(["a", "b"])) == "a\0b"
