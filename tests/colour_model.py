"""An exported model in a few lines: the score of red, green and blue is the share of that colour in the image."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from manylabel.predictions import METADATA_KEY, InferenceSpec
from manylabel.types import InputSpec, LabelSpace

SPEC = InferenceSpec(LabelSpace(["red", "green", "blue"]), InputSpec(size=(32, 32)), thresholds=(0.5, 0.5, 0.9))


def write_colour_model(path, spec=SPEC):
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats", "axes"], ["means"], keepdims=0),
        helper.make_node("Div", ["means", "top"], ["scores"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([1, 2], dtype=np.int64), "axes"),
        numpy_helper.from_array(np.array(255, dtype=np.float32), "top"),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", "height", "width", 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    if spec is not None:
        helper.set_model_props(model, {METADATA_KEY: spec.to_json()})
    onnx.save(model, path)
    return path
