"""Limits on a real port: sizes before they are read, full queues, slow callers, an orderly end."""

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from itertools import islice
from pathlib import Path

import httpx2 as httpx
import pytest
from PIL import Image

from manylabel.errors import ConfigError
from manylabel.server import ServerSettings, api, run
from manylabel.server.limits import BODIES_HELD, MAX_IMAGES
from sample_files import encode
from server_apps import listening, slow_app

RED = encode(Image.new("RGB", (20, 10), "red"), "PNG")


def post(address, content=RED, **settings):
    return httpx.post(f"{address}/v1/predict", files={"images": ("a.png", content)}, timeout=20, **settings)


def ask_until(status, address):
    """Ask at most 200 times, until the answer has a status; return the last answer."""
    for _ in range(200):
        answer = post(address)
        if answer.status_code == status:
            break
        time.sleep(0.1)
    return answer


def waiting(address):
    """Return how many images are accepted and not answered yet."""
    return float(re.search(r"^manylabel_waiting_images (.+)$", httpx.get(f"{address}/metrics").text, re.MULTILINE)[1])


def speak(address, text):
    """Send bytes as they are; return what comes back until the connection ends or nothing comes."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as line:
        line.sendall(text)
        answer = b""
        while part := line.recv(65536):
            answer += part
            if b"\r\n\r\n" in answer and answer.rstrip().endswith(b"}"):
                break
        return answer


@pytest.mark.slow
def test_a_large_body_is_refused_before_it_is_sent():
    _, app = slow_app(max_body_bytes=5000)
    with listening(app) as (address, _):
        head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
        answer = speak(address, head + b"Content-Length: 1000000000000\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"may have at most 5,000 bytes, this one has 1,000,000,000,000" in answer
        chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        answer = speak(address, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 6)  # and no end
        assert answer.startswith(b"HTTP/1.1 413")
        assert post(address).status_code == 200


@pytest.mark.slow
def test_a_caller_without_the_key_is_refused_before_the_body_is_sent():
    _, app = slow_app(api_key="secret")
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 19000000\r\n\r\n"
    )
    with listening(app) as (address, _):
        assert speak(address, head).startswith(b"HTTP/1.1 401")


@pytest.mark.slow
def test_a_body_that_does_not_come_is_not_waited_for():
    _, app = slow_app(limit_seconds=0.3)
    with listening(app) as (address, _):
        head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 99\r\n\r\n"
        assert speak(address, head + b"{").startswith(b"HTTP/1.1 408")


def connect(address, text=b"", source="127.0.0.1"):
    """Open a connection and send bytes; the caller closes it."""
    host, port = address.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=20, source_address=(source, 0))
    line.sendall(text)
    return line


@pytest.mark.slow
def test_bodies_together_have_a_limit_of_ten():
    _, app = slow_app(max_body_bytes=900)
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 900\r\n\r\n"
    with listening(app) as (address, _):
        lines = [connect(address, head + bytes(899)) for _ in range(10)]
        answer = ask_until(429, address)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        for line in lines:
            line.close()
        assert ask_until(200, address).status_code == 200


@pytest.mark.slow
def test_bytes_count_when_they_arrive_not_when_they_are_announced():
    _, app = slow_app(max_body_bytes=900)
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 900\r\n\r\n"
    with listening(app) as (address, _):
        lines = [connect(address, head) for _ in range(40)]
        assert httpx.get(f"{address}/healthz").status_code == 200  # so that the server has seen them
        assert {post(address).status_code for _ in range(5)} == {200}
        for line in lines:
            line.close()


HALVES = {
    "nothing": b"",
    "half": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "after one": b"GET /healthz HTTP/1.1\r\n\r\nGET /",
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.slow
def test_a_connection_has_limited_time_for_its_headers(half):
    _, app = slow_app()
    with listening(app, head_seconds=0.5) as (address, server), connect(address, HALVES[half]) as line:
        for _ in range(20):  # a letter now and then does not help
            time.sleep(0.1)
            with suppress(OSError):
                line.sendall(b"x" if half != "nothing" else b"")
        assert not server.server_state.connections


@pytest.mark.slow
def test_a_request_may_take_longer_than_its_headers():
    engine, app = slow_app(1.5)
    with listening(app, head_seconds=0.5) as (address, _), httpx.Client() as client:
        for _ in range(2):  # the second on the same connection
            assert client.post(f"{address}/v1/predict", files={"images": RED}, timeout=20).status_code == 200
    assert engine.batches


@pytest.mark.slow
def test_half_open_connections_of_one_address_shut_nobody_out():
    _, app = slow_app()
    with listening(app) as (address, _):
        lines = [connect(address, b"GET / HTTP/1.1\r\nHost: loc") for _ in range(run.MAX_PER_ADDRESS)]
        with connect(address) as refused:
            assert refused.recv(100).startswith(b"HTTP/1.1 429 ")
        with connect(address, b"GET /healthz HTTP/1.0\r\n\r\n", source="127.0.0.2") as other:
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        for line in lines:
            line.close()
        assert ask_until(200, address).status_code == 200


@pytest.mark.slow
def test_connections_have_a_limit_in_all(monkeypatch):
    monkeypatch.setattr(run, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(run, "MAX_PER_ADDRESS", 3)
    head = b"GET / HTTP/1.1\r\nHost: loc"
    _, app = slow_app()
    with listening(app) as (address, _):
        lines = [connect(address, head, source=f"127.0.0.{number // 3 + 1}") for number in range(6)]
        with connect(address, b"GET /healthz HTTP/1.0\r\n\r\n", source="127.0.0.3") as other:
            assert other.recv(100).startswith(b"HTTP/1.1 503 ")
        for line in lines:
            line.close()
        assert ask_until(200, address).status_code == 200


def test_the_docs_state_the_limits_that_are_tested_here():
    settings = ServerSettings()
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "serve.md").read_text()
    _, _, table = page.partition("## Limits\n")
    for row in (
        f"| size of a request | {settings.max_body_bytes / 1e6:g} MB |",
        f"| images per request | {MAX_IMAGES} |",
        f"| pixels of all images of a request | {settings.max_pixels / 1e6:g} million |",
        f"| images in the queue | {settings.max_waiting} |",
        f"| time to receive a request, and to answer it | {settings.seconds:g} s each |",
        f"| time to receive the headers | {run.HEAD_SECONDS:g} s |",
        f"| connections, per client address and in total | {run.MAX_PER_ADDRESS} and {run.MAX_CONNECTIONS} |",
    ):
        assert row in table
    assert BODIES_HELD == 10
    assert "| ten times that |" in table


@pytest.mark.slow
def test_a_request_of_many_images_lets_others_take_their_turn():
    engine, app = slow_app(0.1, batch_size=1)
    with listening(app) as (address, _), ThreadPoolExecutor(2) as pool:
        engine.gate.clear()
        many = [("images", ("a.png", RED))] * 30
        bulk = pool.submit(lambda: httpx.post(f"{address}/v1/predict", files=many, timeout=60))
        while waiting(address) < 30:
            time.sleep(0.02)
        single = pool.submit(post, address)
        while waiting(address) < 31:
            time.sleep(0.02)
        engine.gate.set()
        assert single.result().status_code == 200
        assert len(engine.batches) < 15  # of 32
        assert bulk.result().status_code == 200


@pytest.mark.slow
def test_requests_that_come_together_go_through_the_model_together():
    engine, app = slow_app(0.1, batch_size=8)
    with listening(app) as (address, _), ThreadPoolExecutor(24) as pool:
        engine.gate.clear()
        answers = pool.map(lambda _: post(address), range(24))
        while waiting(address) < 24:
            time.sleep(0.02)
        engine.gate.set()
        assert {answer.status_code for answer in answers} == {200}
    assert sum(engine.batches) == 24 + 1  # one before the first request
    assert 1 < max(engine.batches) <= 8
    assert len(engine.batches) < 16


@pytest.mark.slow
def test_decoding_takes_turns_too(monkeypatch):
    decoded, real = [], api.prepare
    monkeypatch.setattr(api, "default_workers", lambda: 1)
    monkeypatch.setattr(api, "prepare", lambda *given, name: (time.sleep(0.1), decoded.append(name), real(*given))[2])
    _, app = slow_app()
    with listening(app) as (address, _), ThreadPoolExecutor(2) as pool:
        many = [("images", ("many.png", RED))] * 30
        bulk = pool.submit(lambda: httpx.post(f"{address}/v1/predict", files=many, timeout=60))
        while len(decoded) < 2:
            time.sleep(0.02)
        assert post(address).status_code == 200
        assert len(decoded) < 20
        assert bulk.result().status_code == 200


@pytest.mark.slow
def test_when_it_is_full_callers_are_told_when_to_come_again():
    engine, app = slow_app(batch_size=1, max_waiting=3)
    with listening(app) as (address, _), ThreadPoolExecutor(10) as pool:
        engine.gate.clear()
        answers = as_completed([pool.submit(post, address) for _ in range(10)])
        full = [answer.result() for answer in islice(answers, 7)]
        engine.gate.set()
        assert {answer.status_code for answer in full} == {429}
        assert [answer.result().status_code for answer in answers] == [200] * 3
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in full)
        assert full[0].json()["code"] == "busy"
        assert post(address).status_code == 200
        many = httpx.post(f"{address}/v1/predict", files=[("images", ("a.png", RED))] * 4, timeout=20)
        assert (many.status_code, many.json()["code"]) == (413, "too_many")


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_given_up():
    _, app = slow_app(0.6, limit_seconds=0.2)
    with listening(app) as (address, _):
        answer = post(address)
        assert answer.status_code == 429
        assert "no response within 0.2 s" in answer.json()["message"]


@pytest.mark.slow
def test_an_end_finishes_what_was_accepted():
    engine, app = slow_app(batch_size=1)
    answers = []
    with listening(app) as (address, server):
        engine.gate.clear()
        threads = [threading.Thread(target=lambda: answers.append(post(address).status_code)) for _ in range(3)]
        for thread in threads:
            thread.start()
        while waiting(address) < 3:
            time.sleep(0.02)
        server.should_exit = True
        with suppress(httpx.TransportError):
            while True:  # until nothing new is accepted
                waiting(address)
        engine.gate.set()
        for thread in threads:
            thread.join(20)
    assert answers == [200, 200, 200]


@pytest.mark.slow
def test_a_caller_that_leaves_does_no_harm():
    _, app = slow_app()
    with listening(app) as (address, _):
        host, port = address.removeprefix("http://").split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port))) as line:
                line.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n")
                line.sendall(b"Content-Length: 900\r\n\r\n{")
        time.sleep(0.2)
        assert post(address).status_code == 200
        assert 'status="500"' not in httpx.get(f"{address}/metrics").text


@pytest.mark.parametrize("name", ["max_body_bytes", "max_pixels", "max_waiting", "seconds", "workers"])
def test_rejects_a_limit_that_lets_nothing_in(name):
    with pytest.raises(ConfigError, match=f"{name} must be above 0, got 0"):
        ServerSettings(**{name: 0})


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "new\nline"])
def test_rejects_a_key_that_no_header_can_hold(key):
    with pytest.raises(ConfigError, match="without spaces"):
        ServerSettings(api_key=key)
