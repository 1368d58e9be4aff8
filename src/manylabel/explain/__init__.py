"""See why: heat maps of labels over a picture, experts, shares of earlier layers."""

from manylabel.explain.experts import ExpertLoad, draw_experts, expert_load
from manylabel.explain.explain import METHODS, best_method, explain
from manylabel.explain.explanation import Explanation
from manylabel.explain.faithfulness import Faithfulness, measure_faithfulness, points_at
from manylabel.explain.grid import draw_grid
from manylabel.explain.mixup import MixupScale, mixup_scale
from manylabel.explain.models import explain_models

__all__ = [
    "METHODS",
    "ExpertLoad",
    "Explanation",
    "Faithfulness",
    "MixupScale",
    "best_method",
    "draw_experts",
    "draw_grid",
    "expert_load",
    "explain",
    "explain_models",
    "measure_faithfulness",
    "mixup_scale",
    "points_at",
]
