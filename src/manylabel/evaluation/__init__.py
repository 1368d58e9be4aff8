"""Evaluation: metrics with confidence intervals, paired comparisons, and their HTML pages."""

from manylabel.evaluation.bootstrap import Estimate, compare_map, draw_counts, estimate_map
from manylabel.evaluation.compare import Comparison, compare
from manylabel.evaluation.comparison_page import comparison_page
from manylabel.evaluation.evaluate import Evaluation, evaluate
from manylabel.evaluation.evaluation_page import evaluation_page
from manylabel.evaluation.groups import SIZE_LIMITS, by_label_count, by_object_size
from manylabel.evaluation.measures import DEFAULT_MEASURES, MEASURES, Draws, Measure, bootstrap, measure
from manylabel.evaluation.results import Confusion, LabelResult, find_confusions
from manylabel.evaluation.score_files import SCORE_ENDINGS, read_scores, save_scores
from manylabel.evaluation.scores import ScoredImages, score
from manylabel.evaluation.zero_shot import ZERO_SHOT_MEASURES, ZeroShotEvaluation, evaluate_zero_shot

__all__ = [
    "DEFAULT_MEASURES",
    "MEASURES",
    "SCORE_ENDINGS",
    "SIZE_LIMITS",
    "ZERO_SHOT_MEASURES",
    "Comparison",
    "Confusion",
    "Draws",
    "Estimate",
    "Evaluation",
    "LabelResult",
    "Measure",
    "ScoredImages",
    "ZeroShotEvaluation",
    "bootstrap",
    "by_label_count",
    "by_object_size",
    "compare",
    "compare_map",
    "comparison_page",
    "draw_counts",
    "estimate_map",
    "evaluate",
    "evaluate_zero_shot",
    "evaluation_page",
    "find_confusions",
    "measure",
    "read_scores",
    "save_scores",
    "score",
]
