"""Serve a model with several replicas on Ray, and ask it what is in three photos: python examples/serve_on_ray.py.

`--keep` serves until Ctrl-C instead.
"""

import argparse
import base64
import json
import threading
import urllib.request

from manylabel.builtin import DEFAULT_MODEL, sample_photos
from manylabel.inference.on_ray import serve_with_ray


def main() -> None:
    """Start the replicas and ask them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a model's folder, .onnx file, hub id or builtin:NAME")
    parser.add_argument("--replicas", type=int, default=2, help="models that work at the same time")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--ray-address", help="a Ray cluster, such as auto; Ray is started here when left out")
    parser.add_argument("--keep", action="store_true", help="serve until Ctrl-C")
    given = parser.parse_args()
    with serve_with_ray(given.model, replicas=given.replicas, port=given.port, address=given.ray_address) as url:
        print(f"Try: curl -F pictures=@photo.jpg -F top=3 {url}/v1/predict, or open {url}", flush=True)
        if given.keep:
            threading.Event().wait()
        for photo in sample_photos():
            picture = {"name": photo.name, "data": base64.b64encode(photo.read_bytes()).decode()}
            body = json.dumps({"pictures": [picture], "top": 3}).encode()
            question = urllib.request.Request(f"{url}/v1/predict", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(question) as answer:
                print(answer.read().decode())


if __name__ == "__main__":
    main()
