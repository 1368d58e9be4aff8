"""Two replicas of a server on a real Ray."""

import json
import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from manylabel.deploy import Predictor
from manylabel.deploy.on_ray import serve_with_ray
from manylabel.deploy.on_ray.questions import MOST_BYTES
from manylabel.errors import ClusterError, ConfigError, ModelFormatError
from picture_files import encode

pytestmark = [
    pytest.mark.timeout(600),  # on a busy machine Ray needs more than one attempt to start
    pytest.mark.filterwarnings("default"),  # Ray warns of its own code
]

RED, BLUE = (encode(Image.new("RGB", (40, 30), colour), "PNG") for colour in ("red", "blue"))


@pytest.fixture(scope="module")
def url(local_ray, colour_file, free_port):
    with serve_with_ray(colour_file, port=free_port, replicas=2, batch_size=4) as address:
        yield address


def test_a_port_that_is_taken_is_an_error(local_ray, colour_file):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ClusterError, match=r"the server does not start: .*Failed to bind.*choose another port"):
            serve_with_ray(colour_file, port=taken.getsockname()[1]).__enter__()


def ask(url, content, kind="image/png", path="/v1/predict", method="POST"):
    request = urllib.request.Request(url + path, content, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def form(*files, field="pictures"):
    head = '--edge\r\nContent-Disposition: form-data; name="{}"; filename="{}"\r\n\r\n'
    parts = [head.format(field, name).encode() + content + b"\r\n" for name, content in files]
    return b"".join(parts) + b"--edge--\r\n", "multipart/form-data; boundary=edge"


def test_a_form_of_pictures_is_answered_in_its_order_and_a_bad_one_says_why(url, colour_file):
    status, answer = ask(url, *form(("a.png", RED), ("b.png", b"no picture"), ("c.png", BLUE)))
    assert status == 200
    assert answer["model"] == "colours"  # never where it lies
    first, bad, last = answer["pictures"]
    red = {"label": "red", "display_name": "red", "score": 1.0}
    assert first == {"name": "a.png", "tags": [red], "error": None}
    assert (bad["name"], bad["tags"], bad["error"][:18]) == ("b.png", [], "it is not a pictur")
    assert last["tags"][0]["label"] == "blue"


def test_a_picture_may_be_the_body_and_tags_equal_those_of_a_predictor(url, colour_file):
    status, answer = ask(url, RED, path="/v1/predict?top=3")
    assert status == 200
    (expected,) = Predictor.load(colour_file).predict([RED], top=3)
    assert [(tag["label"], tag["score"]) for tag in answer["pictures"][0]["tags"]] == list(expected.tags)
    assert ask(url, BLUE, path="/v1/predict?threshold=1")[1]["pictures"][0]["tags"][0]["label"] == "blue"


def test_many_callers_each_get_their_own_answer(url):
    sent = [RED, BLUE] * 16
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda content: ask(url, content), sent))
    found = [answer["pictures"][0]["tags"][0]["label"] for _, answer in answers]
    assert found == ["red", "blue"] * 16


@pytest.mark.parametrize(
    ("status", "code", "request_"),
    [
        (404, "not_found", {"content": RED, "path": "/v1/elsewhere"}),
        (405, "method_not_allowed", {"content": None, "method": "GET"}),
        (413, "too_large", {"content": bytes(MOST_BYTES + 1)}),
        (415, "unsupported_type", {"content": b"{}", "kind": "application/json"}),
        (422, "unreadable_picture", {"content": b"no picture"}),
        (422, "bad_request", {"content": RED, "path": "/v1/predict?top=0"}),
        (422, "bad_request", {"content": RED, "path": "/v1/predict?top=many"}),
        (422, "bad_request", {"content": RED, "path": "/v1/predict?top=1&threshold=0.5"}),
        (422, "bad_request", dict(zip(("content", "kind"), form(("a.png", RED), field="other"), strict=True))),
        (422, "bad_request", {"content": b"no form", "kind": "multipart/form-data; boundary=edge"}),
        (422, "bad_request", {"content": b"no form", "kind": "multipart/form-data"}),
    ],
)
def test_bad_input_is_told_in_a_sentence(url, status, code, request_):
    answer = ask(url, **request_)
    assert (answer[0], answer[1]["code"]) == (status, code)
    assert len(answer[1]["message"]) > 15


def test_mistakes_show_before_anything_starts(tmp_path):
    with pytest.raises(ModelFormatError, match="there is no file"):
        serve_with_ray(tmp_path / "gone.onnx").__enter__()
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        serve_with_ray(batch_size=0).__enter__()
