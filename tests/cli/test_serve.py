import json
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection

import httpx2
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from typer.testing import CliRunner

from colour_model import write_colour_model
from manylabel.cli.main import app
from manylabel.cli.serve import _is_loopback
from manylabel.errors import ConfigError, ModelFormatError
from sample_files import encode


def run(*arguments):
    return CliRunner().invoke(app, ["serve", *map(str, arguments)], catch_exceptions=False)


def free_port():
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]


@pytest.fixture
def started(monkeypatch):
    """What the command would serve."""
    calls = []
    monkeypatch.setattr("manylabel.server.run_server", lambda app, **settings: calls.append({"app": app, **settings}))
    return calls


def test_listens_on_this_machine_only_unless_told(started, tmp_path):
    model = write_colour_model(tmp_path / "colours.onnx")
    result = run("--model", model)
    assert "colours: 3 labels at http://127.0.0.1:8000" in result.stderr
    assert "Anyone" not in result.stderr
    assert started[0]["host"] == "127.0.0.1"
    assert "Anyone who can reach 0.0.0.0 may use this server" in run("--model", model, "--host", "0.0.0.0").stderr
    assert "Anyone" not in run("--model", model, "--host", "0.0.0.0", "--api-key", "secret").stderr


def test_answers_to_the_name_it_is_bound_to_and_those_that_are_allowed(started, tmp_path):
    model = write_colour_model(tmp_path / "colours.onnx")
    run("--model", model, "--host", "Box.local", "--allow-host", "tags.example.org")
    client = TestClient(started[0]["app"])
    answers = {
        host: client.get("/healthz", headers={"Host": host}).status_code
        for host in ("box.local:8000", "tags.example.org", "localhost", "127.0.0.1:8000", "evil.example")
    }
    assert list(answers.values()) == [200, 200, 200, 200, 421]


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)]
)
def test_knows_what_only_this_machine_reaches(host, expected):
    assert _is_loopback(host) is expected


def test_a_model_that_is_not_there_is_an_error_before_anything_listens(started):
    with pytest.raises(ModelFormatError):
        run("--model", "builtin:no_such")
    assert started == []


def test_a_device_that_is_not_there_is_one_sentence(started, tiny_model, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="has no cuda device"):
        run("--model", tiny_model, "--device", "cuda")
    assert started == []


@pytest.mark.slow
def test_answers_on_a_port_and_finishes_what_it_accepted_at_a_signal(tmp_path):
    port = free_port()
    model = write_colour_model(tmp_path / "colours.onnx")
    command = [sys.executable, "-m", "manylabel", "serve", "--model", str(model), "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    body = encode(Image.new("RGB", (8, 8), "red"), "PNG")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(address, process)
            asking = HTTPConnection("127.0.0.1", port, timeout=60)
            asking.putrequest("POST", "/v1/predict")
            asking.putheader("Content-Type", "image/png")
            asking.putheader("Content-Length", str(len(body)))
            asking.endheaders(body[:10])
            httpx2.get(f"{address}/healthz", timeout=60)  # so that the server has seen what came before
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            asking.send(body[10:])
            answer = asking.getresponse()
            tags = json.load(answer)["images"][0]["tags"]
            asking.close()
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (answer.status, tags[0]["label"]) == (200, "red")
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in errors


def wait_for(address, process):
    for _ in range(600):
        time.sleep(0.1)
        assert process.poll() is None, process.stderr.read()
        try:
            return httpx2.get(f"{address}/readyz", timeout=60)
        except httpx2.TransportError:
            continue
    raise TimeoutError("the server did not start")
