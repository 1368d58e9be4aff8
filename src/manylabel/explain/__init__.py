"""See why: heat maps of labels over a picture, experts, shares of earlier layers."""

from manylabel.explain.explain import METHODS, best_method, explain
from manylabel.explain.explanation import Explanation
from manylabel.explain.faithfulness import Faithfulness, measure_faithfulness, points_at
from manylabel.explain.grid import draw_grid
from manylabel.explain.models import explain_models

__all__ = [
    "METHODS",
    "Explanation",
    "Faithfulness",
    "best_method",
    "draw_grid",
    "explain",
    "explain_models",
    "measure_faithfulness",
    "points_at",
]
