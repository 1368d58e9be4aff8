"""Dataset check: statistics, unreadable images, duplicates, leaks and label problems."""

from manylabel.data.inspection.check import check
from manylabel.data.inspection.cleaning import fix, write_table
from manylabel.data.inspection.report import CheckReport

__all__ = ["CheckReport", "check", "fix", "write_table"]
