"""Evaluations and comparisons as self-contained pages."""

from manylabel.evaluation.pages.comparison import compare_page
from manylabel.evaluation.pages.evaluation import evaluation_page

__all__ = ["compare_page", "evaluation_page"]
