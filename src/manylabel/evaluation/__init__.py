"""Numbers with intervals, comparisons and the pages that show them."""

from manylabel.evaluation.bootstrap import Draws, bootstrap, compare_map, estimate_map
from manylabel.evaluation.compare import Comparison, compare
from manylabel.evaluation.confusions import Confusion, find_confusions
from manylabel.evaluation.estimate import Estimate
from manylabel.evaluation.evaluate import Evaluation, evaluate
from manylabel.evaluation.groups import SIZE_LIMITS, by_label_count, by_object_size
from manylabel.evaluation.label_pairs import LabelPair, label_pair
from manylabel.evaluation.label_results import LabelResult
from manylabel.evaluation.measures import MEASURES, Measure, measure
from manylabel.evaluation.pages import compare_page, evaluation_page
from manylabel.evaluation.score_files import SCORE_ENDINGS, read_scores, save_scores
from manylabel.evaluation.scores import ScoredImages, score
from manylabel.evaluation.zero_shot import ZERO_SHOT_MEASURES, ZeroShotEvaluation, evaluate_zero_shot

__all__ = [
    "MEASURES",
    "SCORE_ENDINGS",
    "SIZE_LIMITS",
    "ZERO_SHOT_MEASURES",
    "Comparison",
    "Confusion",
    "Draws",
    "Estimate",
    "Evaluation",
    "LabelPair",
    "LabelResult",
    "Measure",
    "ScoredImages",
    "ZeroShotEvaluation",
    "bootstrap",
    "by_label_count",
    "by_object_size",
    "compare",
    "compare_map",
    "compare_page",
    "estimate_map",
    "evaluate",
    "evaluate_zero_shot",
    "evaluation_page",
    "find_confusions",
    "label_pair",
    "measure",
    "read_scores",
    "save_scores",
    "score",
]
