"""What may run a model, as a flag."""

from enum import StrEnum

__all__ = ["EngineChoice"]


class EngineChoice(StrEnum):
    """What may run the model."""

    AUTO = "auto"
    ONNX = "onnx"
    TORCH = "torch"
