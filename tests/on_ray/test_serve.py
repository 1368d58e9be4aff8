"""Two replicas of a server on a real Ray, as the example starts them."""

from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from manylabel.server import ServedModel, ServerSettings, create_app
from sample_files import encode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # on a busy machine Ray needs more than one attempt to start
    pytest.mark.filterwarnings("default"),  # Ray warns of its own code
]

RED, BLUE = (encode(Image.new("RGB", (40, 30), colour), "PNG") for colour in ("red", "blue"))


@pytest.fixture(scope="module")
def url(local_ray, colour_file, free_port):
    from examples.serve_on_ray import serving  # Ray Serve warns when it is imported

    with serving(str(colour_file), port=free_port, replicas=2) as address:
        yield address


def ask(url, *contents, **options):
    files = [("images", (f"{place}.png", content)) for place, content in enumerate(contents)]
    return httpx.post(f"{url}/v1/predict", files=files, params=options, timeout=60)


def test_answers_are_those_of_the_server_without_ray(url, colour_file):
    asked = {"files": [("images", (name, each)) for name, each in (("a", RED), ("b", b"no image"), ("c", BLUE))]}
    with TestClient(create_app(ServedModel.open(colour_file)), "http://localhost") as client:
        for question in (asked, {**asked, "params": {"top": 3}}, {"json": {"images": []}}, {"content": b"nothing"}):
            here, there = client.post("/v1/predict", **question), httpx.post(f"{url}/v1/predict", **question)
            assert (there.status_code, there.json()) == (here.status_code, here.json())
        for path in ("/v1/labels", "/elsewhere", "/v1/predict"):
            assert httpx.get(url + path).json() == client.get(path).json()


def test_the_page_is_there_too(url):
    assert "<title>manylabel</title>" in httpx.get(url).text


def test_many_callers_each_get_their_own_answer(url):
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda content: ask(url, content).json(), [RED, BLUE] * 16))
    found = [answer["images"][0]["tags"][0]["label"] for answer in answers]
    assert found == ["red", "blue"] * 16


def test_a_body_that_is_too_large_is_refused(url):
    answer = ask(url, bytes(ServerSettings().max_body_bytes))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
