"""Requests of Label Studio 1.23.2, recorded or written by hand; `tools/try_label_studio.py` starts the real one."""

import json
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from colour_model import write_colour_model
from manylabel.errors import ConfigError
from manylabel.server import ServedModel, ServerSettings, create_app
from manylabel.server.label_studio import read_choices
from sample_files import encode

CONFIG = """<View><Image name="photo" value="$image"/><Choices name="tags" toName="photo" choice="{choice}">
<Choice value="Red"/><Choice value="blue" alias="b"/><Choice value="zebra"/></Choices></View>"""
FILES = {"/data/upload/1/red.png": "red", "/data/local-files/?d=blue.png": "blue", "/mixed.png": "magenta"}


class Studio(BaseHTTPRequestHandler):
    """What Label Studio serves: images for those with a token, and redirects."""

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        if self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", self.server.away)
            self.end_headers()
            return
        colour = FILES.get(self.path)
        self.send_response(200 if colour else 404)
        self.end_headers()
        if colour:
            self.wfile.write(encode(Image.new("RGB", (8, 8), colour), "PNG"))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, body.decode()))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.token)

    def log_message(self, *_):
        pass


@contextmanager
def studio(away=""):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Studio)
    server.seen, server.away, server.token = [], away, b'{"access": "short"}'
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def connect(tmp_path):
    model = ServedModel.open(write_colour_model(tmp_path / "colours.onnx"))

    @contextmanager
    def client(*origins, **settings):
        settings = ServerSettings(label_studio=origins, **settings)
        with TestClient(create_app(model, settings), "http://localhost") as client:
            yield client

    return client


def ask(client, *images, choice="multiple"):
    tasks = [{"id": n, "data": {"image": image}, "meta": {}, "project": 1} for n, image in enumerate(images)]
    params = {"login": None, "password": None, "context": None}
    request = {
        "tasks": tasks,
        "project": "1.1790000000",
        "label_config": CONFIG.format(choice=choice),
        "params": params,
    }
    return client.post("/predict", json=request)


def chosen(answer):
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert {each["model_version"] for each in results} == {"colours"}
    return [each["result"][0]["value"]["choices"] if each["result"] else [] for each in results]


def test_connects_and_predicts_choices_in_the_words_of_the_project(connect):
    with studio() as (address, server), connect(address, label_studio_key="old-token") as client:
        assert client.get("/health").json()["status"] == "UP"
        setup = {"project": "1.1", "schema": CONFIG.format(choice="multiple"), "hostname": "http://evil.example"}
        answer = client.post("/setup", json=setup | {"access_token": "theirs", "extra_params": None})
        assert answer.json() == {"model_version": "colours"}
        assert client.get("/versions").json() == {"versions": ["colours"]}
        assert client.post("/webhook", json={"action": "ANNOTATION_CREATED"}).json() == {}
        answer = ask(client, *FILES)
        assert chosen(answer) == [["Red"], ["b"], ["Red", "b"]]
        result = {"from_name": "tags", "to_name": "photo", "type": "choices", "value": {"choices": ["Red"]}}
        assert answer.json()["results"][0] == {"result": [result], "score": 1.0, "model_version": "colours"}
        assert {key for _, key in server.seen} == {"Token old-token"}
        assert chosen(ask(client, "/mixed.png", choice="single"))[0] in (["Red"], ["b"])


def test_answers_the_recorded_requests(connect):
    """The images are others; the labels of the model are among the recorded choices in another case."""
    recorded = json.loads(Path(__file__).with_name("label_studio_requests.json").read_text())
    answers = {}
    with studio() as (address, _), connect(address, api_key="secret") as client:
        for request in recorded:
            body = json.dumps(request.get("body"))
            for choice, colour in (("Cat", "Red"), ("mug", "b"), ('value=\\"cup', 'value=\\"blue')):
                body = body.replace(choice, colour)
            for image, ours in zip(("0%20astronaut", "1%20chelsea", "2%20coffee"), FILES, strict=True):
                body = body.replace(f"/data/local-files/?d=photos/a%20b/{image}.jpg", ours)
            headers = {"Authorization": "Bearer secret"} | request["headers"]  # webhooks are sent without the password
            answer = client.request(request["method"], request["path"], content=body, headers=headers)
            assert answer.status_code == 200, (request["path"], answer.text)
            answers[request["path"]] = answer
    assert answers["/setup"].json() == {"model_version": "colours"}
    assert chosen(answers["/predict"]) == [["Red"], ["b"], ["Red", "b"]]


def test_exchanges_a_personal_access_token_once(connect):
    with studio() as (address, server), connect(address, label_studio_key="a.b.c") as client:
        assert chosen(ask(client, "/mixed.png")) == chosen(ask(client, "/mixed.png")) == [["Red", "b"]]
        assert server.seen == [("/api/token/refresh", '{"refresh": "a.b.c"}'), *[("/mixed.png", "Bearer short")] * 2]


@pytest.mark.parametrize("token", [b"[1]", b"null", b"{}", b"no JSON"])
def test_a_token_answer_of_another_form_is_logged(connect, caplog, token):
    with studio() as (address, server), connect(address, label_studio_key="a.b.c") as client:
        server.token = token
        assert chosen(ask(client, "/mixed.png")) == [[]]
    assert "no prediction for task" in caplog.text


def test_choices_without_a_value_are_no_labels():
    config = CONFIG.format(choice="single").replace('<Choice value="zebra"/>', '<Choice/><Choice value=""/>')
    assert read_choices(config).values == {"Red": "Red", "blue": "b"}


def test_downloads_from_nowhere_else(connect, caplog):
    with studio() as (inside, inner), studio(away=f"{inside}/mixed.png") as (address, _), connect(address) as client:
        images = [f"{inside}/mixed.png", f"{address}/away", "file:///etc/passwd", "//127.0.0.1/a.png", "", "/gone.png"]
        images += [f"http://{address.removeprefix('http://')}@127.0.0.1/mixed.png", "http://[", "s3://bucket/a.png"]
        assert chosen(ask(client, *images)) == [[]] * len(images)
        assert inner.seen == []
    assert f"it is not at {address}; allow another origin with --label-studio" in caplog.text
    assert "it redirects to http://127.0.0.1" in caplog.text
    assert "HTTP 404" in caplog.text


def test_another_origin_is_allowed_but_gets_no_token(connect):
    with studio() as (inside, inner), studio(away=f"{inside}/mixed.png") as (address, outer):
        with connect(address, inside, label_studio_key="secret") as client:
            assert chosen(ask(client, f"{inside}/mixed.png", f"{address}/away")) == [["Red", "b"]] * 2
        assert {key for _, key in inner.seen} == {None}
        assert {key for _, key in outer.seen} == {"Token secret"}


def test_large_images_get_no_choices_and_the_others_do(connect):
    with studio() as (address, _), connect(address, max_body_bytes=5_000, max_pixels=50) as client:
        assert chosen(ask(client, "/mixed.png")) == [[]]


def test_requires_the_key_as_basic_password(connect):
    def basic(text):
        return {"Authorization": f"Basic {b64encode(text.encode()).decode()}"}

    with connect("http://localhost:8080", api_key="key") as client:
        answers = [client.get("/health", headers=headers).status_code for headers in (basic("me:key"), basic("me:no"))]
        assert answers == [200, 401]
        assert client.get("/health", headers={"Authorization": "Basic ???"}).status_code == 401
        assert client.get("/health").status_code == 401


def test_there_is_nothing_without_the_option(colours):
    assert colours.get("/health").status_code == 404
    assert colours.post("/predict", json={}).status_code == 415


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("<View>", "not valid XML"),
        ("<View/>", "no <Choices> of an <Image>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><View/>', "must not have a document type"),
        (
            '<View><Image name="a" value="$a"/><Choices name="t" toName="a"><Choice value="owl"/></Choices></View>',
            "none",
        ),
    ],
)
def test_projects_that_do_not_fit_are_refused(config, problem, connect):
    with connect("http://localhost:8080") as client:
        answer = client.post("/setup", json={"schema": config})
        assert (answer.status_code, problem in answer.json()["message"]) == (422, True)


def test_origins_are_checked():
    for address in ("localhost:8080", "http://localhost:8080/path", "ftp://a"):
        with pytest.raises(ConfigError, match="must be an origin"):
            ServerSettings(label_studio=(address,))
    with pytest.raises(ConfigError):
        read_choices("no xml")
