"""Likely wrong and likely missing labels of a dataset, by cross-validation and confident learning."""

from manylabel.label_issues.confident_learning import (
    IssueReport,
    LabelIssue,
    error_probabilities,
    find_label_issues,
)
from manylabel.label_issues.cross_validation import CrossValidated, cross_validate
from manylabel.label_issues.output import issues_page, write_issues

__all__ = [
    "CrossValidated",
    "IssueReport",
    "LabelIssue",
    "cross_validate",
    "error_probabilities",
    "find_label_issues",
    "issues_page",
    "write_issues",
]
