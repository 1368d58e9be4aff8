"""Evaluations and comparisons as self-contained pages."""

from manylabel.evaluation.pages.comparison import compare_page
from manylabel.evaluation.pages.evaluation import (
    DrawImage,
    evaluation_details,
    evaluation_headline,
    evaluation_page,
)

__all__ = ["DrawImage", "compare_page", "evaluation_details", "evaluation_headline", "evaluation_page"]
