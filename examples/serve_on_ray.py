"""Serve a model with several replicas on Ray: python examples/serve_on_ray.py MODEL --replicas 2."""

import argparse
import threading

from manylabel.deploy.on_ray import serve_with_ray


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a model's folder, an exported .onnx file, a name on the hub, or builtin:NAME")
    parser.add_argument("--replicas", type=int, default=2, help="models that work at the same time")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--ray-address", help="a Ray cluster, such as auto; Ray is started here when left out")
    given = parser.parse_args()
    with serve_with_ray(given.model, replicas=given.replicas, port=given.port, address=given.ray_address) as url:
        print(f"Try: curl -F pictures=@photo.jpg '{url}/v1/predict?top=3'", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("Stopping ...")


if __name__ == "__main__":
    main()
