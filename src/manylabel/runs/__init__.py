"""Past runs: find, evaluate and report them."""

from manylabel.runs.report import heat_thumbnails, report_page
from manylabel.runs.run import EvaluatedRun, Run, differences, evaluate_run, find_runs

__all__ = ["EvaluatedRun", "Run", "differences", "evaluate_run", "find_runs", "heat_thumbnails", "report_page"]
