"""Serve a model with several replicas on Ray and tag three photos: python examples/serve_on_ray.py.

With `--keep`, serve until Ctrl-C instead.
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
    """Serve replicas on Ray for the duration of the context; Ray balances requests and restarts failed replicas."""
    model = str(Path(model).resolve()) if Path(model).exists() else model  # replicas run in another working directory
    ServedModel.open(model)  # errors appear before Ray starts, and the model is exported once

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
    """Start the replicas and send them requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="model folder, .onnx file, hub id or builtin:NAME")
    parser.add_argument("--replicas", type=int, default=2, help="number of replicas (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port of the server (default: %(default)s)")
    parser.add_argument("--ray-address", help="Ray cluster, such as auto (default: start Ray on this machine)")
    parser.add_argument("--keep", action="store_true", help="serve until Ctrl-C instead of tagging the photos")
    options = parser.parse_args()
    with serving(options.model, replicas=options.replicas, port=options.port, ray_address=options.ray_address) as url:
        print(f"Try: curl -F images=@photo.jpg '{url}/v1/predict?top=3', or open {url}", flush=True)
        if options.keep:
            threading.Event().wait()
        for photo in sample_photos():
            body, headers = photo.read_bytes(), {"Content-Type": "image/jpeg"}
            request = urllib.request.Request(f"{url}/v1/predict?top=3", body, headers)
            with urllib.request.urlopen(request) as response:
                print(response.read().decode())


if __name__ == "__main__":
    main()
