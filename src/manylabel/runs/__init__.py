"""Past runs: find them, compare them, and show them on one page."""

from manylabel.runs.finding import differences, find_runs
from manylabel.runs.judging import JudgedRun, judge_run
from manylabel.runs.pictures import heat_thumbnails
from manylabel.runs.report import report_page
from manylabel.runs.run import Run
from manylabel.runs.tradeoff import TradeoffPoint, draw_tradeoff, measure_tradeoff

__all__ = [
    "JudgedRun",
    "Run",
    "TradeoffPoint",
    "differences",
    "draw_tradeoff",
    "find_runs",
    "heat_thumbnails",
    "judge_run",
    "measure_tradeoff",
    "report_page",
]
