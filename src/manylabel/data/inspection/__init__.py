"""The check of a dataset: what is in it, and what is wrong with it."""

from manylabel.data.inspection.check import check
from manylabel.data.inspection.report import CheckReport

__all__ = ["CheckReport", "check"]
