"""Questions over HTTP: tags, explanations, labels, and every way to ask wrongly."""

import base64
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from colour_model import SPEC, write_colour_model
from manylabel.classifier import Classifier
from manylabel.explain import explain
from manylabel.server import ServedModel, ServerSettings, create_app
from manylabel.server.limits import OPEN_PATHS
from sample_files import bad_files, encode, photo
from server_apps import slow_app

RED = encode(Image.new("RGB", (20, 10), "red"), "PNG")
BLUE = encode(Image.new("RGB", (20, 10), "blue"), "PNG")


def files(*contents, field="images"):
    return [(field, (f"{number}.png", content, "image/png")) for number, content in enumerate(contents)]


def tags(answer):
    return [[tag["label"] for tag in image["tags"]] for image in answer.json()["images"]]


def test_a_form_of_several_images_is_tagged_in_order(colours):
    answer = colours.post("/v1/predict", files=files(RED, BLUE))
    assert answer.status_code == 200
    assert answer.json()["model"] == "colours"
    assert [image["name"] for image in answer.json()["images"]] == ["0.png", "1.png"]
    assert answer.json()["images"][0]["tags"] == [
        {"label": "red", "display_name": "red", "score": 1.0, "threshold": 0.5}
    ]
    assert tags(answer) == [["red"], ["blue"]]


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", None])
def test_one_image_may_be_the_body_as_it_is(colours, kind):
    headers = {} if kind is None else {"content-type": kind}
    answer = colours.post("/v1/predict", content=RED, headers=headers, params={"top": 1})
    assert tags(answer) == [["red"]]
    assert answer.json()["images"][0]["name"] == "image"


def test_options_choose_the_tags(colours):
    def chosen(**options):
        (found,) = tags(colours.post("/v1/predict", files=files(RED), params=options))
        return found

    assert chosen(top=2) == ["red", "green"]
    assert chosen(threshold=0) == ["red", "green", "blue"]
    assert chosen(labels=["blue", "green"], top=1) == ["blue"]
    assert chosen(labels=["blue", "red"], threshold=0) == ["red", "blue"]


def test_one_bad_image_says_why_and_the_others_are_tagged(colours):
    answer = colours.post("/v1/predict", files=files(RED, b"no image", BLUE))
    assert answer.status_code == 200
    assert tags(answer) == [["red"], [], ["blue"]]
    assert "not an image in a supported format" in answer.json()["images"][1]["error"]


@pytest.mark.parametrize("name", bad_files())
def test_a_bad_image_alone_is_the_callers_mistake(colours, name):
    content, reason = bad_files()[name]
    answer = colours.post("/v1/predict", files=files(content))
    assert answer.status_code == 422
    assert answer.json()["code"] == "unreadable_image"
    assert reason in answer.json()["message"] or "pixels" in answer.json()["message"]


FORM = "multipart/form-data; boundary=a"
WRONG = {
    "nothing": ({}, 422, "it is empty (0 bytes)"),
    "text": ({"content": b"hello", "headers": {"content-type": "text/plain"}}, 415, "content type text/plain; send"),
    "json": ({"json": {"images": []}}, 415, "content type application/json; send"),
    "a form without files": ({"data": {"images": "hello"}}, 415, "content type application/x-www-form-urlencoded"),
    "too many images": ({"files": files(*[b"a"] * 65)}, 422, "images: List should have at most 64"),
    "unknown option": ({"files": files(RED), "params": {"tpo": 3}}, 422, "tpo: Extra inputs"),
    "option in the form": ({"files": files(RED), "data": {"top": "3"}}, 422, "top: Extra inputs"),
    "top and threshold": ({"files": files(RED), "params": {"top": 1, "threshold": 0.5}}, 422, "not both"),
    "threshold": ({"files": files(RED), "params": {"threshold": 1.5}}, 422, "threshold: Input should be less than"),
    "text for a number": ({"files": files(RED), "params": {"top": "three"}}, 422, "top: Input should be a valid int"),
    "unknown label": ({"files": files(RED), "params": {"labels": "gren"}}, 422, "did you mean 'green'"),
    "blank label": ({"files": files(RED), "params": {"labels": "  "}}, 422, "at least 1 character"),
    "long label": ({"files": files(RED), "params": {"labels": "x" * 101}}, 422, "at most 100 characters"),
    "too many labels": ({"files": files(RED), "params": {"labels": ["x"] * 101}}, 422, "at most 100 items"),
    "file in another field": ({"files": files(RED, field="image")}, 422, "image: Extra inputs"),
    "text instead of a file": ({"files": {"images": (None, "hello")}}, 422, "images.0: "),
    "a form of nothing": (
        {"content": b"--a--\r\n", "headers": {"content-type": FORM}},
        422,
        "in the form field 'images'",
    ),
    "no boundary": ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary"),
    "another form": ({"content": b"x", "headers": {"content-type": FORM}}, 400, ""),
    "a codec that is none of text": (
        {
            "content": b'--a\r\nContent-Disposition: form-data; name="top"\r\n\r\nxn--\xff\r\n--a--\r\n',
            "headers": {"content-type": f"{FORM}; charset=idna"},
        },
        422,
        "",
    ),
    "halves of characters in a form": (
        {
            "content": b'--a\r\nContent-Disposition: form-data; name="images"; filename="\\ud800"\r\n'
            b"\r\nx\r\n--a--\r\n",
            "headers": {"content-type": f"{FORM}; charset=raw_unicode_escape"},
        },
        422,
        "cannot read",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_question_gets_words_that_help(colours, case):
    request, status, words = WRONG[case]
    answer = colours.post("/v1/predict", **request)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["message"]
    assert answer.json()["code"]


def test_labels_say_what_the_model_can_do(colours, tiny):
    answer = colours.get("/v1/labels").json()
    assert [(each["label"], each["threshold"]) for each in answer["labels"]] == [
        ("red", 0.5),
        ("green", 0.5),
        ("blue", 0.9),
    ]
    assert (answer["explains"], answer["new_labels"], answer["single_label"]) == (False, False, False)
    assert answer["limits"]["body_bytes"] == ServerSettings().max_body_bytes
    assert tiny.get("/v1/labels").json()["explains"]


def test_a_model_of_one_label_an_image_has_no_thresholds_to_list(tmp_path):
    path = write_colour_model(tmp_path / "colours.onnx", replace(SPEC, thresholds=None, single_label=True))
    with TestClient(create_app(ServedModel.open(path)), "http://localhost") as client:
        answer = client.get("/v1/labels").json()
    assert answer["single_label"]
    assert [each["threshold"] for each in answer["labels"]] == [None] * 3


def test_an_explanation_has_the_heat_that_explain_finds_and_an_overlay(tiny, tiny_model):
    content = encode(photo(80, 60), "JPEG")
    answer = tiny.post("/v1/explain", files=files(content), params={"labels": ["dog", "cat"]})
    assert answer.status_code == 200, answer.text
    dog, cat = answer.json()["explanations"]
    assert (dog["label"], cat["label"], dog["method"]) == ("dog", "cat", "cam")
    expected = explain(Classifier.from_pretrained(tiny_model), content, labels=["dog", "cat"])
    for found, own in zip((dog, cat), expected, strict=True):
        assert found["heat"] == [pytest.approx(row, abs=1e-3) for row in own.heat.tolist()]
        assert found["score"] == pytest.approx(own.score, abs=1e-5)
        assert (found["x"], found["y"]) == own.hottest()
    kind, _, data = dog["overlay"].partition(",")
    assert kind == "data:image/jpeg;base64"
    assert base64.b64decode(data).startswith(b"\xff\xd8")
    raw = tiny.post("/v1/explain", content=content, headers={"content-type": "image/jpeg"})
    assert len(raw.json()["explanations"]) >= 1


def test_what_cannot_be_explained_says_why(colours, tiny):
    for client, images, options, words in (
        (colours, [RED], {}, "need torch and the folder of a trained model"),
        (tiny, [RED], {"labels": "cow"}, "no label 'cow'"),
        (tiny, [RED], {"labels": ["cat"] * 11}, "at most 10"),
        (tiny, [RED, BLUE], {}, "at most 1 item"),
    ):
        answer = client.post("/v1/explain", files=files(*images), params=options)
        assert answer.status_code == 422
        assert words in answer.json()["message"]
    assert tiny.post("/v1/explain", files=files(b"x")).json()["code"] == "unreadable_image"


def test_pixels_of_all_images_together_are_limited_before_they_are_decoded(tiny_model):
    app = create_app(ServedModel.open(tiny_model, engine="torch"), ServerSettings(max_pixels=2000))
    image = encode(photo(40, 30), "PNG")
    with TestClient(app, "http://localhost") as client:
        assert client.post("/v1/predict", files=files(image)).status_code == 200
        answer = client.post("/v1/predict", files=files(image, image))
        assert (answer.status_code, answer.json()["code"]) == (413, "too_many_pixels")
        assert "may have at most 2,000 pixels, this one has 2,400" in answer.json()["message"]
        large = client.post("/v1/explain", files=files(encode(photo(50, 50), "PNG")))
        assert (large.status_code, large.json()["code"]) == (413, "too_many_pixels")


def test_health_readiness_and_numbers(colours):
    assert colours.get("/healthz").json() == {"status": "ok"}
    assert colours.get("/readyz").json() == {"status": "ready"}
    colours.post("/v1/predict", files=files(RED, b"x"))
    colours.get("/no/such/address")
    numbers = colours.get("/metrics").text
    assert 'manylabel_requests_total{path="/v1/predict",status="200"}' in numbers
    assert 'manylabel_requests_total{path="other",status="404"}' in numbers
    assert 'manylabel_images_total{outcome="unreadable"}' in numbers
    assert "manylabel_batch_images_bucket" in numbers
    assert "/no/such/address" not in numbers


def test_not_ready_before_the_start_and_after_the_end(tmp_path):
    _, app = slow_app()
    client = TestClient(app, "http://localhost")
    assert client.get("/readyz").status_code == 503
    with client:
        assert client.get("/readyz").status_code == 200
    assert client.get("/readyz").status_code == 503


def test_addresses_and_methods_that_are_not_there_are_answered_in_words(colours):
    assert colours.get("/nowhere").json()["code"] == "not_found"
    answer = colours.get("/v1/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_key_is_asked_for_where_there_is_one():
    _, app = slow_app(api_key="secret")
    with TestClient(app, "http://localhost") as client:
        for path in ("/v1/labels", "/metrics"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer s\xe9cret".encode("latin-1")}).status_code == 401
            assert client.get(path, headers={"Authorization": "Basic secret"}).status_code == 401
            for scheme in ("Bearer", "bearer"):
                assert client.get(path, headers={"Authorization": f"{scheme} secret"}).status_code == 200
        assert client.post("/v1/predict", files=files(RED)).status_code == 401
        assert {client.get(path).status_code for path in OPEN_PATHS} == {200}


HOSTS = ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "192.168.1.5", "app.localhost", "box.example"]


@pytest.mark.parametrize("host", HOSTS)
def test_addresses_localhost_and_named_hosts_are_answered(host):
    _, app = slow_app(allow_hosts=("box.example",))
    with TestClient(app, "http://localhost") as client:
        assert client.get("/v1/labels", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "["]
)
def test_names_that_somebody_else_resolves_to_this_machine_are_refused(colours, host):
    for path in ("/", "/v1/labels", "/healthz"):
        answer = colours.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host")


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/v1/labels", "/metrics", "/healthz", "/openapi.json", "/nowhere", "/v1/predict"]
)
def test_no_answer_is_sniffed_for_another_type(colours, path):
    assert colours.get(path).headers["x-content-type-options"] == "nosniff"
    assert colours.get(path, headers={"Host": "evil.example"}).headers["x-content-type-options"] == "nosniff"


def test_other_origins_may_ask_only_when_they_are_named(colours):
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in colours.get("/v1/labels", headers=origin).headers
    _, app = slow_app(allow_origins=("https://example.org",))
    with TestClient(app, "http://localhost") as client:
        assert client.get("/v1/labels", headers=origin).headers["access-control-allow-origin"] == origin["Origin"]
        other = client.get("/v1/labels", headers={"Origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers


def test_a_failure_of_the_model_tells_nothing_of_the_inside(caplog):
    engine, app = slow_app()
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        engine.scores = lambda pixels: (_ for _ in ()).throw(RuntimeError("/home/me/secret"))
        answer = client.post("/v1/predict", files=files(RED))
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "RuntimeError" not in answer.text
        assert "/home/me/secret" in caplog.text
        del engine.scores
        assert client.post("/v1/predict", files=files(RED)).status_code == 200
