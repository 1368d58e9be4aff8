"""Prediction without torch, where a model was exported: engines, predictor, files of tags; and the export itself."""

from importlib import import_module
from typing import TYPE_CHECKING

from manylabel.inference.engine import OnnxEngine, open_engine
from manylabel.inference.predictor import Predictor, tag_with_ray

if TYPE_CHECKING:
    from manylabel.inference.export import Export, export_onnx, export_torch
    from manylabel.inference.quantisation import Quantised, quantise

__all__ = [
    "Export",
    "OnnxEngine",
    "Predictor",
    "Quantised",
    "export_onnx",
    "export_torch",
    "open_engine",
    "quantise",
    "tag_with_ray",
]

# Imported when first used: they need torch, which a `Predictor` of an exported model does without.
_HOMES = {
    "Export": "manylabel.inference.export",
    "Quantised": "manylabel.inference.quantisation",
    "export_onnx": "manylabel.inference.export",
    "export_torch": "manylabel.inference.export",
    "quantise": "manylabel.inference.quantisation",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'manylabel.inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
