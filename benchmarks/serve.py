"""Load test of `manylabel serve` on this machine: throughput, responses and memory.

    python benchmarks/serve.py --data voc:VOCdevkit/VOC2012,split=train --model MODEL

First one client that waits for each response, and many concurrent clients, interleaved, with the same images and open
connections. Then mixed valid and invalid requests, with half as many as warm-up, and the memory of the server before
and after each quarter. Exits with an error on a 5xx response.
"""

import argparse
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx2
import psutil

from manylabel.data import load

QUARTERS = 4
Question = Callable[[httpx2.Client], httpx2.Response]


def images_of(spec: str, count: int) -> list[bytes]:
    """Return the files of the first images of a dataset."""
    dataset = load(spec)
    found = [dataset.images[index] for index in range(min(count, len(dataset)))]
    return [each if isinstance(each, bytes) else each.read_bytes() for each in found]


def tagged(image: bytes) -> Question:
    """Ask for the tags of an image."""
    return lambda client: client.post("/v1/predict", files={"images": ("a.jpg", image)})


def throughput(address: str, images: Sequence[bytes], callers: int) -> float:
    """Return images per second of so many callers, each with its own open connection."""
    local = threading.local()

    def ask(image: bytes) -> int:
        if not hasattr(local, "client"):
            local.client = httpx2.Client(base_url=address, timeout=120)
        return tagged(image)(local.client).status_code

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(ask, images[:callers]))  # connections are open before the clock starts
        start = time.perf_counter()
        statuses = Counter(pool.map(ask, images))
        seconds = time.perf_counter() - start
    if set(statuses) != {200}:
        sys.exit(f"not every image was tagged: {dict(statuses)}")
    return len(images) / seconds


def questions(images: Sequence[bytes], *, seed: int) -> list[Question]:
    """Return good and bad requests of every kind."""
    chance = random.Random(seed)
    image = chance.choice(images)
    headers = {"content-type": "image/jpeg"}
    return [
        tagged(image),
        lambda client: client.post("/v1/predict?top=3", files=[("images", ("a.jpg", image))] * 3),
        lambda client: client.post("/v1/explain", files={"images": ("a.jpg", image)}),
        lambda client: client.get("/v1/labels"),
        lambda client: client.get("/metrics"),
        tagged(image[: len(image) // 2]),
        tagged(chance.randbytes(5_000)),
        tagged(b""),
        lambda client: client.post("/v1/predict", content=b"{" * 50_000, headers=headers),
        lambda client: client.post("/v1/predict?labels=no+such+label", files={"images": ("a.jpg", image)}),
        lambda client: client.post("/v1/predict", content=bytes(21_000_000), headers=headers),
        lambda client: client.post("/v1/explain", files={"images": ("a.jpg", b"x")}),
        lambda client: client.put("/v1/predict"),
    ]


def mixed(address: str, images: Sequence[bytes], count: int, callers: int, *, seed: int) -> Counter[str]:
    """Send so many mixed requests; return how often each status came, and how often a connection ended early."""

    def ask(number: int) -> str:
        kinds = questions(images, seed=seed + number)
        with httpx2.Client(base_url=address, timeout=120) as client:
            try:
                return str(kinds[number % len(kinds)](client).status_code)
            except httpx2.TransportError:
                return "refused while sending"  # a body that is too large is not read to its end

    with ThreadPoolExecutor(callers) as pool:
        return Counter(pool.map(ask, range(count)))


def start_server(model: str, port: int) -> tuple[subprocess.Popen[bytes], str]:
    """Start the command and wait until it is ready."""
    command = [sys.executable, "-m", "manylabel", "serve", "--model", model, "--port", str(port)]
    process = subprocess.Popen(command)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        time.sleep(0.2)
        try:
            if httpx2.get(f"{address}/readyz").status_code == 200:
                return process, address
        except httpx2.TransportError:
            if process.poll() is not None:
                break
    process.kill()
    sys.exit("the server did not start")


def main() -> None:
    """Measure, print, and fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes:100")
    parser.add_argument("--model", default="builtin:everyday")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--port", type=int, default=8765)
    arguments = parser.parse_args()
    images = images_of(arguments.data, arguments.images)
    process, address = start_server(arguments.model, arguments.port)
    try:
        ratios = []
        for _ in range(arguments.rounds):
            alone = throughput(address, images, 1)
            together = throughput(address, images, arguments.callers)
            ratios.append(together / alone)
            print(f"one at a time {alone:6.1f} images/s, {arguments.callers} callers {together:6.1f} images/s")
        ratio = statistics.median(ratios)
        print(f"{ratio:.2f} x one at a time ({min(ratios):.2f} to {max(ratios):.2f})")
        memory = psutil.Process(process.pid).memory_info
        mixed(address, images, arguments.requests // 2, arguments.callers, seed=0)
        sizes, answers = [memory().rss], Counter[str]()
        for part in range(QUARTERS):
            count = arguments.requests // QUARTERS
            answers += mixed(address, images, count, arguments.callers, seed=(part + 2) * arguments.requests)
            sizes.append(memory().rss)
    finally:
        process.terminate()
    print(f"{arguments.requests} mixed requests: {dict(sorted(answers.items()))}")
    print(f"memory of the server before, and after each quarter: {', '.join(f'{size / 1e6:.0f} MB' for size in sizes)}")
    print(f"the server ended with code {process.wait(60)}")
    if any(status.startswith("5") for status in answers):
        sys.exit("an answer was a 5xx")


if __name__ == "__main__":
    main()
