"""Dataset check: statistics, unreadable images, duplicates, leaks and label problems."""

from manylabel.data.inspection.check import check
from manylabel.data.inspection.cleaning import fix
from manylabel.data.inspection.report import CheckReport

__all__ = ["CheckReport", "check", "fix"]
