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
from picture_files import bad_files, encode, photo
from server_apps import slow_app

RED = encode(Image.new("RGB", (20, 10), "red"), "PNG")
BLUE = encode(Image.new("RGB", (20, 10), "blue"), "PNG")


def files(*contents, field="pictures"):
    return [(field, (f"{number}.png", content, "image/png")) for number, content in enumerate(contents)]


def as_json(*contents, **options):
    return {"pictures": [{"name": "a.png", "data": base64.b64encode(each).decode()} for each in contents], **options}


def tags(answer):
    return [[tag["label"] for tag in picture["tags"]] for picture in answer.json()["pictures"]]


def test_a_form_of_several_pictures_is_tagged_in_order(colours):
    answer = colours.post("/v1/predict", files=files(RED, BLUE))
    assert answer.status_code == 200
    assert answer.json()["model"] == "colours"
    assert [picture["name"] for picture in answer.json()["pictures"]] == ["0.png", "1.png"]
    assert answer.json()["pictures"][0]["tags"] == [{"label": "red", "display_name": "red", "score": 1.0}]
    assert tags(answer) == [["red"], ["blue"]]


def test_json_gives_the_same_answer_as_a_form(colours):
    url = "data:image/png;base64," + base64.b64encode(RED).decode()
    for picture in ({"name": "0.png", "data": url}, {"name": "0.png", "data": url.partition(",")[2]}):
        answer = colours.post("/v1/predict", json={"pictures": [picture]})
        assert answer.json() == colours.post("/v1/predict", files=files(RED)).json()


def test_options_choose_the_tags(colours):
    assert tags(colours.post("/v1/predict", files=files(RED), data={"top": "2"})) == [["red", "green"]]
    assert tags(colours.post("/v1/predict", json=as_json(RED, threshold=0))) == [["red", "green", "blue"]]
    assert tags(colours.post("/v1/predict", json=as_json(RED, labels=["blue", "green"], top=1))) == [["blue"]]
    answer = colours.post("/v1/predict", files=files(RED), data={"labels": ["blue", "red"], "threshold": "0"})
    assert tags(answer) == [["red", "blue"]]


def test_one_bad_picture_says_why_and_the_others_are_tagged(colours):
    answer = colours.post("/v1/predict", files=files(RED, b"no picture", BLUE))
    assert answer.status_code == 200
    assert tags(answer) == [["red"], [], ["blue"]]
    assert "not an image in a supported format" in answer.json()["pictures"][1]["error"]


@pytest.mark.parametrize("name", bad_files())
def test_a_bad_picture_alone_is_the_callers_mistake(colours, name):
    content, reason = bad_files()[name]
    answer = colours.post("/v1/predict", files=files(content))
    assert answer.status_code == 422
    assert answer.json()["code"] == "unreadable_picture"
    assert reason in answer.json()["message"] or "pixels" in answer.json()["message"]


WRONG = {
    "nothing": ({}, 415, "application/json or multipart/form-data"),
    "text": ({"content": b"hello", "headers": {"content-type": "text/plain"}}, 415, "got text/plain"),
    "broken json": ({"content": b"{", "headers": {"content-type": "application/json"}}, 422, "Invalid JSON"),
    "deep json": ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 422, "JSON"),
    "half a character": (
        {"content": b'{"pictures": [{"data": "\\ud800"}]}', "headers": {"content-type": "application/json"}},
        422,
        "JSON",
    ),
    "no picture": ({"json": {"pictures": []}}, 422, "pictures: List should have at least 1"),
    "too many pictures": ({"json": as_json(*[b"a"] * 65)}, 422, "at most 64"),
    "unknown field": ({"json": as_json(RED, tpo=3)}, 422, "tpo: Extra inputs"),
    "not base64": ({"json": {"pictures": [{"data": "§"}]}}, 422, "is not base64"),
    "top and threshold": ({"json": as_json(RED, top=1, threshold=0.5)}, 422, "not both"),
    "threshold": ({"json": as_json(RED, threshold=1.5)}, 422, "threshold: Input should be less than or equal to 1"),
    "text for a number": ({"json": as_json(RED, top="3")}, 422, "top"),
    "unknown label": ({"json": as_json(RED, labels=["gren"])}, 422, "did you mean 'green'"),
    "blank label": ({"json": as_json(RED, labels=["  "])}, 422, "at least 1 character"),
    "long label": ({"json": as_json(RED, labels=["x" * 101])}, 422, "at most 100 characters"),
    "too many labels": ({"json": as_json(RED, labels=["x"] * 101)}, 422, "at most 100 items"),
    "file in another field": ({"files": files(RED, field="image")}, 422, "in the field 'pictures'"),
    "text instead of a file": ({"files": {"pictures": (None, "hello")}}, 422, "needs files"),
    "no boundary": ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary"),
    "another form": (
        {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=a"}},
        400,
        "",
    ),
    "a codec that is none of text": (
        {
            "content": b'--a\r\nContent-Disposition: form-data; name="top"\r\n\r\nxn--\xff\r\n--a--\r\n',
            "headers": {"content-type": "multipart/form-data; boundary=a; charset=idna"},
        },
        422,
        "",
    ),
    "halves of characters in a form": (
        {
            "content": b'--a\r\nContent-Disposition: form-data; name="pictures"; filename="\\ud800"\r\n'
            b"\r\nx\r\n--a--\r\n",
            "headers": {"content-type": "multipart/form-data; boundary=a; charset=raw_unicode_escape"},
        },
        422,
        "cannot read picture",
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


def test_a_model_of_one_label_a_picture_has_no_thresholds_to_list(tmp_path):
    path = write_colour_model(tmp_path / "colours.onnx", replace(SPEC, thresholds=None, single_label=True))
    with TestClient(create_app(ServedModel.open(path))) as client:
        answer = client.get("/v1/labels").json()
    assert answer["single_label"]
    assert [each["threshold"] for each in answer["labels"]] == [None] * 3


def test_an_explanation_has_the_heat_that_explain_finds_and_a_picture(tiny, tiny_model):
    content = encode(photo(80, 60), "JPEG")
    answer = tiny.post("/v1/explain", files=files(content, field="picture"), data={"labels": ["dog", "cat"]})
    assert answer.status_code == 200, answer.text
    dog, cat = answer.json()["explanations"]
    assert (dog["label"], cat["label"], dog["method"]) == ("dog", "cat", "cam")
    expected = explain(Classifier.load(tiny_model), content, labels=["dog", "cat"])
    for found, own in zip((dog, cat), expected, strict=True):
        assert found["heat"] == [pytest.approx(row, abs=1e-3) for row in own.heat.tolist()]
        assert found["score"] == pytest.approx(own.score, abs=1e-5)
        assert (found["x"], found["y"]) == own.hottest()
    kind, _, data = dog["overlay"].partition(",")
    assert kind == "data:image/jpeg;base64"
    assert base64.b64decode(data).startswith(b"\xff\xd8")
    picture = {"data": base64.b64encode(content).decode()}
    assert len(tiny.post("/v1/explain", json={"picture": picture}).json()["explanations"]) >= 1


def test_what_cannot_be_explained_says_why(colours, tiny):
    for client, options, words in (
        (colours, {}, "serve the model's folder"),
        (tiny, {"labels": "cow"}, "no label 'cow'"),
        (tiny, {"labels": ["cat"] * 11}, "at most 10"),
    ):
        answer = client.post("/v1/explain", files=files(RED, field="picture"), data=options)
        assert answer.status_code == 422
        assert words in answer.json()["message"]
    assert tiny.post("/v1/explain", files=files(b"x", field="picture")).json()["code"] == "unreadable_picture"


def test_too_many_pixels_are_refused_before_they_are_decoded(tiny_model):
    model = ServedModel.open(tiny_model, engine="torch", max_pixels=1000)
    with TestClient(create_app(model)) as client:
        for path, field in (("/v1/predict", "pictures"), ("/v1/explain", "picture")):
            answer = client.post(path, files=files(encode(photo(40, 30), "PNG"), field=field))
            assert answer.status_code == 422
            assert "it has 1,200 pixels, 1,000 are allowed" in answer.json()["message"]


def test_health_readiness_and_numbers(colours):
    assert colours.get("/healthz").json() == {"status": "ok"}
    assert colours.get("/readyz").json() == {"status": "ready"}
    colours.post("/v1/predict", files=files(RED, b"x"))
    colours.get("/no/such/address")
    numbers = colours.get("/metrics").text
    assert 'manylabel_requests_total{path="/v1/predict",status="200"}' in numbers
    assert 'manylabel_requests_total{path="other",status="404"}' in numbers
    assert 'manylabel_pictures_total{outcome="unreadable"}' in numbers
    assert "manylabel_batch_pictures_bucket" in numbers
    assert "/no/such/address" not in numbers


def test_not_ready_before_the_start_and_after_the_end(tmp_path):
    _, app = slow_app()
    client = TestClient(app)
    assert client.get("/readyz").status_code == 503
    with client:
        assert client.get("/readyz").status_code == 200
    assert client.get("/readyz").status_code == 503


def test_addresses_and_methods_that_are_not_there_are_answered_in_words(colours):
    assert colours.get("/docs").json()["code"] == "not_found"
    answer = colours.get("/v1/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_key_is_asked_for_where_there_is_one():
    _, app = slow_app(api_key="secret")
    with TestClient(app) as client:
        for path in ("/v1/labels", "/metrics"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer s\xe9cret".encode("latin-1")}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert client.post("/v1/predict", files=files(RED)).status_code == 401
        assert client.get("/healthz").status_code == client.get("/").status_code == 200


def test_other_origins_may_ask_only_when_they_are_named(colours):
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in colours.get("/v1/labels", headers=origin).headers
    _, app = slow_app(allow_origins=("https://example.org",))
    with TestClient(app) as client:
        assert client.get("/v1/labels", headers=origin).headers["access-control-allow-origin"] == origin["Origin"]
        other = client.get("/v1/labels", headers={"Origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers


def test_a_failure_of_the_model_tells_nothing_of_the_inside(caplog):
    engine, app = slow_app()
    with TestClient(app, raise_server_exceptions=False) as client:
        engine.scores = lambda pixels: (_ for _ in ()).throw(RuntimeError("/home/me/secret"))
        answer = client.post("/v1/predict", files=files(RED))
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "RuntimeError" not in answer.text
        assert "/home/me/secret" in caplog.text
        del engine.scores
        assert client.post("/v1/predict", files=files(RED)).status_code == 200
