"""Prediction without torch, where a model was exported.

The export itself needs torch, and is imported by its own name: `manylabel.inference.export`.
"""

from manylabel.inference.engine import OnnxEngine, open_engine
from manylabel.inference.pipeline import predict_stream, tag_with_ray

__all__ = ["OnnxEngine", "open_engine", "predict_stream", "tag_with_ray"]
