"""Models out: prediction, export, server and Ray."""

from importlib import import_module
from typing import TYPE_CHECKING

from manylabel.deploy.choosing import TagChoice
from manylabel.deploy.opening import open_engine
from manylabel.deploy.predictor import Predictor, TaggedImage
from manylabel.deploy.tagging import tag_pictures

if TYPE_CHECKING:
    from manylabel.deploy.export import Export, export_onnx, export_torch
    from manylabel.deploy.quantisation import Quantised, quantise

__all__ = [
    "Export",
    "Predictor",
    "Quantised",
    "TagChoice",
    "TaggedImage",
    "export_onnx",
    "export_torch",
    "open_engine",
    "quantise",
    "tag_pictures",
]

# Imported when first used: they need torch, which a `Predictor` of an exported model does without.
_HOMES = {
    "Export": "manylabel.deploy.export",
    "Quantised": "manylabel.deploy.quantisation",
    "export_onnx": "manylabel.deploy.export",
    "export_torch": "manylabel.deploy.export",
    "quantise": "manylabel.deploy.quantisation",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'manylabel.deploy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
