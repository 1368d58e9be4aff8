"""Serve a model with several replicas on Ray, and ask it what is in three photos: python examples/serve_on_ray.py.

`--keep` serves until Ctrl-C instead.
"""

import argparse
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI
from ray import serve

from manylabel.builtin import DEFAULT_MODEL, sample_photos
from manylabel.on_ray import connected_to_ray
from manylabel.server import ServedModel, create_app


@contextmanager
def serving(model: str, *, replicas: int, port: int, ray_address: str | None = None) -> Iterator[str]:
    """Run replicas of `manylabel serve` until the end of the context; Ray spreads requests and restarts what dies."""
    model = str(Path(model).resolve()) if Path(model).exists() else model  # replicas run in another folder
    ServedModel.open(model)  # a mistake shows before Ray starts, and the model is exported once

    def build() -> FastAPI:
        return create_app(ServedModel.open(model, num_threads=1))

    with connected_to_ray(ray_address):
        quiet = {"log_level": "WARNING", "enable_access_log": False}
        serve.start(http_options={"port": port}, logging_config=quiet)
        serve.run(serve.deployment(serve.ingress(build)(), num_replicas=replicas, logging_config=quiet).bind())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            serve.shutdown()


def main() -> None:
    """Start the replicas and ask them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a model's folder, .onnx file, hub id or builtin:NAME")
    parser.add_argument("--replicas", type=int, default=2, help="models that work at the same time")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--ray-address", help="a Ray cluster, such as auto; Ray is started here when left out")
    parser.add_argument("--keep", action="store_true", help="serve until Ctrl-C")
    given = parser.parse_args()
    with serving(given.model, replicas=given.replicas, port=given.port, ray_address=given.ray_address) as url:
        print(f"Try: curl -F images=@photo.jpg '{url}/v1/predict?top=3', or open {url}", flush=True)
        if given.keep:
            threading.Event().wait()
        for photo in sample_photos():
            body, headers = photo.read_bytes(), {"Content-Type": "image/jpeg"}
            question = urllib.request.Request(f"{url}/v1/predict?top=3", body, headers)
            with urllib.request.urlopen(question) as answer:
                print(answer.read().decode())


if __name__ == "__main__":
    main()
