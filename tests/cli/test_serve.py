import signal
import socket
import subprocess
import sys
import threading
import time

import httpx2
import pytest
from PIL import Image
from typer.testing import CliRunner

from colour_model import write_colour_model
from manylabel.cli.main import app
from manylabel.cli.serve import _is_loopback
from manylabel.errors import ModelFormatError
from picture_files import encode


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
    monkeypatch.setattr("manylabel.deploy.server.run_server", lambda app, **settings: calls.append(settings))
    return calls


def test_listens_on_this_machine_only_unless_told(started, tmp_path):
    model = write_colour_model(tmp_path / "colours.onnx")
    result = run("--model", model)
    assert "colours: 3 labels at http://127.0.0.1:8000" in result.stderr
    assert "Anybody" not in result.stderr
    assert started[0]["host"] == "127.0.0.1"
    assert "Anybody who reaches 0.0.0.0 may ask" in run("--model", model, "--host", "0.0.0.0").stderr
    assert "Anybody" not in run("--model", model, "--host", "0.0.0.0", "--api-key", "secret").stderr


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)]
)
def test_knows_what_only_this_machine_reaches(host, expected):
    assert _is_loopback(host) is expected


def test_a_model_that_is_not_there_is_an_error_before_anything_listens(started):
    with pytest.raises(ModelFormatError):
        run("--model", "builtin:no_such")
    assert started == []


def test_answers_on_a_port_and_finishes_what_it_accepted_at_a_signal(tmp_path):
    port = free_port()
    model = write_colour_model(tmp_path / "colours.onnx")
    command = [sys.executable, "-m", "manylabel", "serve", "--model", str(model), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = f"http://127.0.0.1:{port}"
    picture = encode(Image.effect_noise((3000, 2000), 90).convert("RGB"), "PNG")  # takes a while
    answers = []

    def ask():
        answers.append(httpx2.post(f"{address}/v1/predict", files={"pictures": ("a.png", picture)}, timeout=60))

    try:
        for _ in range(300):
            time.sleep(0.1)
            try:
                httpx2.get(f"{address}/readyz")
                break
            except httpx2.TransportError:
                continue
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.15)
        process.send_signal(signal.SIGTERM)
        asking.join(60)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert [answer.status_code for answer in answers] == [200]
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in errors
