"""Progress, warnings and results of a recipe, on the log and optionally a console."""

import json
import logging

from lightning import Callback
from rich.console import Console
from rich.table import Table

from manylabel.data import ImageDataset
from manylabel.evaluation import Estimate, compare_map, estimate_map
from manylabel.page import plural
from manylabel.progress import ProgressBar
from manylabel.recipes.setup import TrainAndVal
from manylabel.storage import write_text
from manylabel.training import RunFolder, RunProgress, ValidationScores, is_first_process, reached, read_metrics

logger = logging.getLogger(__name__)

LISTED = 10  # labels in a warning
SILENT = Console(quiet=True, force_terminal=False, force_jupyter=False)


class Reporter:
    """Progress output of a recipe; silent in all processes but the first.

    Args:
        console: Console for progress (default: none). Warnings always go to the log.

    Attributes:
        scores: Scores of the validation images, for the confidence interval of mAP.

    Examples:
        >>> Reporter().say("nobody hears this")
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console if console is not None and is_first_process() else SILENT
        self.scores = ValidationScores()
        self._bar = ProgressBar("", console=self.console, keep=True)

    @property
    def callbacks(self) -> list[Callback]:
        """Callbacks that show progress and collect validation scores."""
        return [self.scores, RunProgress(self.console)]

    def start(self, sets: TrainAndVal) -> None:
        """Report the number of images and labels, and log warnings about the data."""
        if is_first_process():
            for sentence in advise(sets):
                logger.warning(sentence)
        images = f"{plural(len(sets.train), 'training image')}, {plural(len(sets.val), 'validation image')}"
        self.say(f"{images}, {plural(len(sets.train.labels), 'label')}")

    def progress(self, doing: str, done: int, total: int) -> None:
        """Show the progress of a step of the run.

        Args:
            doing: Name of the step.
            done: Number of items done.
            total: Total number of items.
        """
        if done < total or self._bar.is_open:  # not for a step that is complete from the start
            self._bar.update(done, total, doing=doing)
        if done == total:
            self._bar.stop()

    def finished(self, run: RunFolder, *, keep: str) -> RunFolder:
        """Report the validation mAP of the saved weights and the model folder; return the run."""
        if is_first_process():
            write_validation(run, self.scores, keep=keep)
        self.say(f"{describe_validation(run, keep=keep)}the model is in {run.model}")
        return run

    def show(self, table: Table) -> None:
        """Print a table."""
        self.console.print(table, highlight=False)

    def say(self, sentence: str) -> None:
        """Print a sentence."""
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def write_validation(run: RunFolder, scores: ValidationScores, *, keep: str) -> None:
    """Write validation.json, if there are scores: the mAP of the saved weights, and the gain of the best epoch.

    Args:
        run: Run folder.
        scores: Scores of the validation images.
        keep: Epoch of the saved weights, ``"last"`` or ``"best"``.
    """
    kept = scores.of(keep)
    if kept is None or scores.last is None or scores.best is None:
        return
    values = {
        "num_images": len(kept),
        "mAP": estimate_map(kept, scores.targets, scores.known)._asdict(),
        "best_epoch": scores.best_epoch,
        "best_gain": compare_map(scores.last, scores.best, scores.targets, scores.known)._asdict(),
    }
    write_text(run.path / "validation.json", json.dumps(values, indent=2) + "\n", overwrite=True)


def describe_gain(gain: Estimate | None, *, over: str) -> str:
    """Describe the gain of a method over a baseline.

    Args:
        gain: Difference in mAP on the same validation images, if known.
        over: Name of the baseline.

    Examples:
        >>> describe_gain(Estimate(0.005, 0.001, 0.009), over="the baseline")
        'gain over the baseline: +0.50 mAP (95 % interval +0.10 to +0.90)'
    """
    if gain is None:
        return f"the gain over {over} is unknown: it was not trained, or has no scores"
    value, low, high = (100 * (each or 0.0) for each in gain)
    verdict = "" if low > 0 or high < 0 else ": no significant difference"
    return f"gain over {over}: {value:+.2f} mAP (95 % interval {low:+.2f} to {high:+.2f}){verdict}"


def describe_validation(run: RunFolder, *, keep: str) -> str:
    """Describe the validation mAP of a run; mention the best epoch only if significantly better than the last."""
    path = run.path / "validation.json"
    if not path.is_file():
        value = reached(read_metrics(run.metrics), keep=keep)
        return "" if value is None else f"mAP {100 * value:.2f}; "
    values = json.loads(path.read_text(encoding="utf-8"))
    score, gain = values["mAP"], values["best_gain"]
    words = f"mAP {100 * score['value']:.2f} on {values['num_images']:,} validation images"
    if score["low"] is not None:
        words += f" (95 % interval {100 * score['low']:.1f} to {100 * score['high']:.1f})"
    if keep == "last" and gain["low"] is not None and gain["low"] > 0:
        words += (
            f"; epoch {values['best_epoch']} was better by {100 * gain['value']:.1f} ({100 * gain['low']:.1f} to "
            f"{100 * gain['high']:.1f}): train for fewer epochs, or set --keep best"
        )
    return f"{words}; "


def advise(sets: TrainAndVal) -> list[str]:
    """Return warnings about labels that cannot be learned or evaluated.

    Args:
        sets: Training and validation set.
    """
    return [
        *advise_on_labels(sets.train, what="training", effect="so it cannot be learned"),
        *advise_on_labels(sets.val, what="validation", effect="so it is excluded from mAP"),
    ]


def advise_on_labels(dataset: ImageDataset, *, what: str, effect: str) -> list[str]:
    """Warn about labels that no image has.

    Args:
        dataset: Dataset.
        what: Purpose of the dataset, such as "training".
        effect: Consequence, worded for one label.

    Examples:
        >>> from manylabel.data import scenes
        >>> len(advise_on_labels(scenes(3), what="training", effect="so it cannot be learned"))
        1
    """
    empty = [label for label, count in zip(dataset.labels, dataset.targets.positives, strict=True) if not count]
    if not empty:
        return []
    more = f" and {len(empty) - LISTED} more" if len(empty) > LISTED else ""
    named = ", ".join(map(repr, empty[:LISTED])) + more
    if len(empty) == 1:
        return [f"no {what} image has the label {named}, {effect}"]
    several = effect.replace("it is", "they are").replace("it cannot", "they cannot")
    return [f"no {what} image has any of {len(empty)} labels, {several}: {named}"]
