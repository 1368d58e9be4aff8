"""The check of a data set: what is in it, and what is wrong with it."""

from manylabel.data.check.report import CheckReport
from manylabel.data.check.run import check

__all__ = ["CheckReport", "check"]
