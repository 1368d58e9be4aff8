"""A storm of bad requests: memory stays flat, nothing breaks, and nobody waits for long; all on the loopback."""

import gc
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import httpx2 as httpx
import psutil
import pytest
from PIL import Image

from manylabel.server import ServedModel, create_app
from sample_files import bad_files, encode, photo, png
from server_apps import SlowEngine, listening, slow_app

# Starlette leaves the file of a form that ends too early to its reference count, which closes it with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:[Uu]nclosed file:ResourceWarning")

MEGABYTE = 1_000_000
FLAT = 50 * MEGABYTE
LONGEST_WAIT = 10  # seconds, on a busy machine; of 30 that are allowed
FORM = "multipart/form-data; boundary=a"
GOOD = encode(photo(), "JPEG")
BOMB = png(7000, 7000, depth=8, color=2)  # 49 million pixels in a few bytes
LARGE = encode(Image.effect_noise((1700, 1700), 90), "PNG")  # nearly 3 MB
LARGE_PART = b'--a\r\nContent-Disposition: form-data; name="images"; filename="x"\r\n\r\n' + bytes(3 * MEGABYTE)


def files(*contents, field="images"):
    return {"files": [(field, (f"{number}.jpg", content)) for number, content in enumerate(contents)]}


def raw(content, kind="image/jpeg", **more):
    return {"content": content, "headers": {"content-type": kind}, **more}


REFUSED = {
    "no image": raw(bytes(3 * MEGABYTE)),
    "half an image": raw(LARGE[:-1000]),
    "no image in a form": files(bytes(3 * MEGABYTE)),
    "unknown label": files(LARGE) | {"params": {"labels": "no such label"}},
    "unknown option": files(LARGE) | {"params": {"tpo": 3}},
    "another field": files(LARGE, field="image"),
    "too many images": files(LARGE, *[b"x"] * 64),
    "too many fields": raw((b'--a\r\nContent-Disposition: form-data; name="b"\r\n\r\nc\r\n' * 55_000) + b"--a--", FORM),
    "broken form": raw(LARGE_PART + b"\r\n--a\r\n\r\n\r\n--b", FORM),
    "endless form": raw(LARGE_PART, FORM),
    "json": {"json": {"images": ["x" * 3 * MEGABYTE]}},
    "urlencoded": raw(b"a&" * 1_500_000, "application/x-www-form-urlencoded"),
}


@pytest.fixture
def no_collector():
    """Let nothing but reference counts free memory, so that whatever keeps a request alive shows at once."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED)
def test_refused_requests_leave_nothing_in_memory(kind, no_collector):
    _, app = slow_app()
    memory = psutil.Process().memory_info
    with listening(app) as (address, _), httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(5):
            client.post("/v1/predict", **REFUSED[kind])
        before = memory().rss
        statuses = Counter(client.post("/v1/predict", **REFUSED[kind]).status_code for _ in range(100))
        assert set(statuses) <= {400, 415, 422}
        assert memory().rss - before < FLAT


@pytest.mark.slow
def test_images_that_cannot_be_explained_leave_nothing_in_memory(no_collector, tmp_path):
    app = create_app(ServedModel(SlowEngine(), name="colours", folder=tmp_path))
    memory, question = psutil.Process().memory_info, raw(LARGE[:-1000])
    with listening(app) as (address, _), httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(5):
            client.post("/v1/explain", **question)
        before = memory().rss
        assert {client.post("/v1/explain", **question).status_code for _ in range(100)} == {422}
        assert memory().rss - before < FLAT


def questions(chance):
    """Return requests of every kind; all but a few are bad."""
    damaged = bytearray(GOOD)
    for _ in range(chance.randrange(1, 20)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    bad = chance.choice([content for content, _ in bad_files().values()])
    return [
        ("post", "/v1/predict", files(GOOD)),
        ("post", "/v1/predict", raw(GOOD)),
        ("get", "/v1/labels", {}),
        ("get", "/metrics", {}),
        ("post", "/v1/predict", files(bytes(damaged))),
        ("post", "/v1/predict", files(bad, GOOD)),
        ("post", "/v1/predict", files(*[BOMB] * 64)),
        ("post", "/v1/predict", files(BOMB, BOMB)),
        ("post", "/v1/explain", files(bad)),
        ("post", "/v1/predict", raw(chance.randbytes(chance.randrange(5000)))),
        ("post", "/v1/predict", raw(chance.randbytes(2000), FORM)),
        ("post", "/v1/predict", raw(b"{" * 50_000, "application/json")),
        ("post", "/v1/predict", files(GOOD) | {"params": {"labels": chance.randbytes(30).hex() * chance.randrange(9)}}),
        ("post", "/v1/predict", files(GOOD) | {"params": {chance.choice("ab"): "\ud800".encode("utf-8", "replace")}}),
        ("post", "/v1/predict", files(GOOD) | {"headers": {"Host": "evil.example"}}),
        ("get", "/" + chance.randbytes(20).hex(), {}),
        ("put", "/v1/predict", files(GOOD)),
        ("post", "/v1/predict", raw(bytes(21 * MEGABYTE))),
        *[("post", "/v1/predict", chance.choice(list(REFUSED.values())))] * 2,
    ]


def storm(address, count, *, seed):
    """Send so many requests, eight at a time; return how often each status came."""

    def ask(number):
        chance = random.Random(seed + number)
        method, path, question = chance.choice(questions(chance))
        with httpx.Client(base_url=address, timeout=60) as client:
            try:
                return client.request(method, path, **question).status_code
            except httpx.TransportError:
                return 0  # a body that is too large is not read to its end

    with ThreadPoolExecutor(8) as callers:
        return Counter(callers.map(ask, range(count)))


def half_open(address, count):
    """Open connections that send half of their headers, or announce a body that never comes."""
    host, port = address.removeprefix("http://").split(":")
    lines = ExitStack()
    for number in range(count):
        line = lines.enter_context(socket.create_connection((host, int(port))))
        with suppress(OSError):
            line.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n")
            line.sendall(b"Content-Length: 19000000\r\n\r\n" if number % 2 else b"X-Slow: ")
    return lines


@contextmanager
def serving(port, log):
    """Run a server in a process of its own, whose memory is not mixed with that of its clients."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from server_apps import slow_app; "
        "from manylabel.server import run_server; "
        f"run_server(slow_app()[1], port={port})"
    )
    with log.open("wb") as errors:
        process = subprocess.Popen([sys.executable, "-c", code], stderr=errors)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            time.sleep(0.1)
            assert process.poll() is None
            with suppress(httpx.TransportError):
                httpx.get(f"{address}/readyz", timeout=60)
                break
        yield address, psutil.Process(process.pid).memory_info
    finally:
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)


def check_storm(folder, port, count, connections):
    waits, stopped = [], threading.Event()

    def ask_now_and_then(address):
        while not stopped.is_set():
            start = time.monotonic()
            answer = httpx.post(f"{address}/v1/predict", **files(GOOD), timeout=60)
            waits.append((answer.status_code, time.monotonic() - start))
            stopped.wait(0.2)

    with serving(port, folder / "log") as (address, memory), half_open(address, connections):
        storm(address, max(100, count // 4), seed=0)  # to warm up: allocators keep what they had once
        before = memory().rss
        friend = threading.Thread(target=ask_now_and_then, args=[address])
        friend.start()
        answers = storm(address, count, seed=count)
        stopped.set()
        friend.join()
        grown = memory().rss - before
        assert httpx.post(f"{address}/v1/predict", **files(GOOD), timeout=60).status_code == 200
    assert not [status for status in answers if status >= 500], answers
    assert answers[200], answers
    assert {status for status, _ in waits} == {200}, waits
    assert max(seconds for _, seconds in waits) < LONGEST_WAIT
    assert (folder / "log").stat().st_size < 1000, "clients can fill the log"
    assert grown < FLAT, f"memory grew by {grown / MEGABYTE:.0f} MB"


@pytest.mark.slow
def test_a_short_storm_breaks_nothing_and_shuts_nobody_out(tmp_path, free_port):
    check_storm(tmp_path, free_port, 150, connections=60)


@pytest.mark.storm
@pytest.mark.timeout(1800)
def test_a_long_storm_breaks_nothing_and_shuts_nobody_out(tmp_path, free_port):
    check_storm(tmp_path, free_port, 2000, connections=200)
