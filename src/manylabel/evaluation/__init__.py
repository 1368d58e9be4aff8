"""Evaluation: metrics with confidence intervals, paired comparisons, and their HTML pages."""

from manylabel.evaluation.bootstrap import Estimate, bootstrap_weights, compare_map, estimate_map
from manylabel.evaluation.compare import Comparison, compare
from manylabel.evaluation.evaluate import Confusion, Evaluation, LabelResult, evaluate, find_confusions
from manylabel.evaluation.metrics import DEFAULT_METRICS, METRICS, Metric, Resampled, bootstrap, compute_metrics
from manylabel.evaluation.pages import comparison_page, evaluation_page
from manylabel.evaluation.score_files import SCORE_ENDINGS, read_scores, save_scores
from manylabel.evaluation.scores import ScoredImages, score
from manylabel.evaluation.zero_shot import ZeroShotEvaluation, evaluate_zero_shot

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "SCORE_ENDINGS",
    "Comparison",
    "Confusion",
    "Estimate",
    "Evaluation",
    "LabelResult",
    "Metric",
    "Resampled",
    "ScoredImages",
    "ZeroShotEvaluation",
    "bootstrap",
    "bootstrap_weights",
    "compare",
    "compare_map",
    "comparison_page",
    "compute_metrics",
    "estimate_map",
    "evaluate",
    "evaluate_zero_shot",
    "evaluation_page",
    "find_confusions",
    "read_scores",
    "save_scores",
    "score",
]
