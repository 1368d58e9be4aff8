"""What a recipe tells while it runs: to the log alone, or to a console, too."""

from __future__ import annotations

import logging
import shlex
import sys

from lightning import Callback
from rich.console import Console
from rich.table import Table

from manylabel.classifier import Classifier
from manylabel.progress import ProgressBar
from manylabel.recipes.advice import advise
from manylabel.recipes.sets import TrainAndVal
from manylabel.training.config import read_yaml
from manylabel.training.metrics_file import reached, read_metrics
from manylabel.training.processes import is_first_process
from manylabel.training.progress import RunProgress
from manylabel.training.run_folder import RunFolder

__all__ = ["Reporter"]

logger = logging.getLogger(__name__)


class Reporter:
    """Tells what happens; of several processes that train together, the first one does.

    Args:
        console: Where to show progress; nowhere when left out. Warnings go to the log in any case.

    Examples:
        >>> Reporter().callbacks
        []
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console if is_first_process() else None
        self._bar: ProgressBar | None = None

    @property
    def command(self) -> str:
        """The command that was given to the machine."""
        return shlex.join(sys.argv)

    @property
    def callbacks(self) -> list[Callback]:
        """What shows the progress of the loop."""
        return [] if self.console is None else [RunProgress(self.console)]

    def start(self, model: Classifier, sets: TrainAndVal) -> None:
        """Say what is about to be trained, and warn of what may go wrong."""
        if is_first_process():
            for sentence in advise(model.head, sets):
                logger.warning(sentence)
        pictures = f"{len(sets.train):,} pictures to train on, {len(sets.val):,} to judge by"
        self.say(f"{pictures}, {len(sets.train.labels):,} labels")

    def features(self, done: int, total: int) -> None:
        """Show the progress of the pass through the backbone."""
        if self.console is None or (self._bar is None and done == total):
            return
        self._bar = self._bar or ProgressBar("features", console=self.console, keep=True)
        self._bar.update(done, total)
        if done == total:
            self._bar.stop()
            self._bar = None

    def finished(self, run: RunFolder) -> RunFolder:
        """Say where the model is and what it reached; return the run, so that it can be returned."""
        rows, keep = read_metrics(run.metrics), str(read_yaml(run.path / "config.yaml").get("keep"))
        kept, best = reached(rows, keep=keep), reached(rows, keep="best")
        words = "" if kept is None or best is None else f"mAP {100 * kept:.2f} (best epoch: {100 * best:.2f}); "
        self.say(f"{words}the model is in {run.model}")
        return run

    def show(self, table: Table) -> None:
        """Show a table."""
        if self.console is not None:
            self.console.print(table, highlight=False)

    def say(self, sentence: str) -> None:
        """Show a sentence on the console, if there is one."""
        if self.console is not None:
            self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)
