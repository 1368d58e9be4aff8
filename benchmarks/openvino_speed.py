"""Speed of OpenVINO relative to onnxruntime on one CPU thread, on the same exported files.

OpenVINO is no dependency of this package; run this in an environment of its own:

    pip install openvino onnxruntime
    python benchmarks/openvino_speed.py model.onnx model.int8.onnx
"""

import argparse
import statistics
import time

import numpy as np
import onnxruntime
import openvino

BATCHES = (1, 16)


def main() -> None:
    """Compare both runtimes on each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="files of `manylabel export`")
    parser.add_argument("--rounds", type=int, default=25, help="interleaved runs of each (default: 25)")
    arguments = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
    for path in arguments.files:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        core = openvino.Core()
        for batch in BATCHES:
            model = core.read_model(path)
            _, height, width, _ = session.get_inputs()[0].shape
            model.reshape({"images": [batch, height, width, 3]})  # fastest for OpenVINO
            compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})
            images = np.random.default_rng(0).integers(0, 256, (batch, height, width, 3), dtype=np.uint8)
            calls = {
                "onnxruntime": lambda images=images, session=session: session.run(["scores"], {"images": images})[0],
                "openvino": lambda images=images, compiled=compiled: compiled({"images": images})["scores"],
            }
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            difference = float(np.abs(calls["onnxruntime"]() - calls["openvino"]()).max())
            for _ in range(arguments.rounds):
                for name, call in calls.items():
                    start = time.process_time()  # CPU time: other programs do not count
                    call()
                    seconds[name].append(time.process_time() - start)
            middle = {name: statistics.median(times) for name, times in seconds.items()}
            before, after = (1000 * middle[name] / batch for name in ("onnxruntime", "openvino"))
            print(f"{path}, batch of {batch}: onnxruntime {before:.1f} ms an image, openvino {after:.1f} ms")
            print(f"  openvino is {before / after:.2f} times as fast; scores differ by at most {difference:.0e}")


if __name__ == "__main__":
    main()
