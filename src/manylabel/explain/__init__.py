"""Explanations: heat maps of labels over an image, loads of experts, weights of earlier layers."""

from manylabel.explain.explanation import Explanation, draw_grid
from manylabel.explain.head_internals import ExpertLoad, MixupScale, draw_experts, expert_load, mixup_scale
from manylabel.explain.heat_maps import METHODS, best_method, explain, explain_models, heat_thumbnail

__all__ = [
    "METHODS",
    "ExpertLoad",
    "Explanation",
    "MixupScale",
    "best_method",
    "draw_experts",
    "draw_grid",
    "expert_load",
    "explain",
    "explain_models",
    "heat_thumbnail",
    "mixup_scale",
]
