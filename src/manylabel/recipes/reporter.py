"""What a recipe reports while it runs: to the log alone, or to a console, too."""

from __future__ import annotations

import json
import logging

from lightning import Callback
from rich.console import Console
from rich.table import Table
from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.evaluation import compare_map, estimate_map
from manylabel.progress import ProgressBar
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import read_yaml
from manylabel.storage import write_text
from manylabel.training import RunFolder, RunProgress, ValidationScores, is_first_process, reached, read_metrics

__all__ = ["Reporter", "advise", "advise_on_head", "advise_on_labels", "write_validation"]

logger = logging.getLogger(__name__)

PARAMETERS_PER_IMAGE = 10_000


class Reporter:
    """Shows what happens; of several processes that train together, the first one does.

    Args:
        console: Console to show progress on (default: none). Warnings go to the log in any case.

    Attributes:
        scores: Collects the scores of the validation images, for the interval of mAP.

    Examples:
        >>> [type(each).__name__ for each in Reporter().callbacks]
        ['ValidationScores']
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console if is_first_process() else None
        self.scores = ValidationScores()
        self._bar: ProgressBar | None = None

    @property
    def callbacks(self) -> list[Callback]:
        """Callbacks that show the progress of the loop and collect scores."""
        return [self.scores] if self.console is None else [self.scores, RunProgress(self.console)]

    def start(self, model: Classifier, sets: TrainAndVal) -> None:
        """Report what is about to be trained, and warn of what may go wrong."""
        if is_first_process():
            for sentence in advise(model.head, sets):
                logger.warning(sentence)
        images = f"{len(sets.train):,} training images, {len(sets.val):,} validation images"
        self.say(f"{images}, {len(sets.train.labels):,} labels")

    def features(self, done: int, total: int) -> None:
        """Show the progress of the images' pass through the backbone."""
        if self.console is None or (self._bar is None and done == total):
            return
        self._bar = self._bar or ProgressBar("features", console=self.console, keep=True)
        self._bar.update(done, total)
        if done == total:
            self._bar.stop()
            self._bar = None

    def finished(self, run: RunFolder) -> RunFolder:
        """Report where the model is and its validation mAP; return the run, so that it can be returned."""
        if self.scores.last is not None and is_first_process():
            write_validation(run, self.scores, keep=_kept(run))
        self.say(f"{describe_validation(run)}the model is in {run.model}")
        return run

    def show(self, table: Table) -> None:
        """Show a table."""
        if self.console is not None:
            self.console.print(table, highlight=False)

    def say(self, sentence: str) -> None:
        """Show a sentence on the console, if there is one."""
        if self.console is not None:
            self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def write_validation(run: RunFolder, scores: ValidationScores, *, keep: str) -> None:
    """Write validation.json: the mAP of the weights that a run keeps, and what the best epoch gains over the last.

    Args:
        run: The run's folder.
        scores: Scores of the validation images.
        keep: The epoch that is kept, ``"last"`` or ``"best"``.
    """
    if scores.last is None or scores.best is None:
        return
    kept = scores.best if keep == "best" else scores.last
    values = {
        "num_images": len(kept),
        "mAP": estimate_map(kept, scores.targets, scores.known)._asdict(),
        "best_epoch": scores.best_epoch,
        "best_gain": compare_map(scores.last, scores.best, scores.targets, scores.known)._asdict(),
    }
    write_text(run.path / "validation.json", json.dumps(values, indent=2) + "\n", overwrite=True)


def describe_validation(run: RunFolder) -> str:
    """Return a run's validation mAP in words; the best epoch is named only where it is significantly better."""
    path, keep = run.path / "validation.json", _kept(run)
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


def advise(head: nn.Module, sets: TrainAndVal) -> list[str]:
    """Return warnings about labels that cannot be learned and a head too large for the data.

    Args:
        head: The head to train.
        sets: The images.
    """
    return [
        *advise_on_labels(sets.train, what="training", effect="so it cannot be learned"),
        *advise_on_labels(sets.val, what="validation", effect="so it is left out of mAP"),
        *advise_on_head(head, num_images=len(sets.train)),
    ]


def advise_on_labels(dataset: ImageDataset, *, what: str, effect: str, at_most: int = 10) -> list[str]:
    """Name the labels that no image has.

    Args:
        dataset: The images.
        what: Their purpose, such as "training".
        effect: What follows for one label.
        at_most: Maximum number of labels to name.

    Examples:
        >>> from manylabel.data import scenes
        >>> len(advise_on_labels(scenes(3), what="training", effect="so it cannot be learned"))
        1
    """
    empty = [label for label, count in zip(dataset.labels, dataset.targets.positives, strict=True) if not count]
    if not empty:
        return []
    more = f" and {len(empty) - at_most} more" if len(empty) > at_most else ""
    named = ", ".join(map(repr, empty[:at_most])) + more
    if len(empty) == 1:
        return [f"no {what} image has the label {named}, {effect}"]
    plural = effect.replace("it is", "they are").replace("it cannot", "they cannot")
    return [f"no {what} image has one of {len(empty)} labels, {plural}: {named}"]


def advise_on_head(head: nn.Module, *, num_images: int) -> list[str]:
    """Warn of a head with very many parameters for the images there are.

    Args:
        head: The head to train.
        num_images: Number of training images.

    Examples:
        >>> advise_on_head(nn.Linear(1000, 1000), num_images=10)
        ['the head trains 1.0 million parameters on 10 images, 100,100 for each, and will overfit; ...']
    """
    parameters = sum(each.numel() for each in head.parameters() if each.requires_grad)
    if parameters <= PARAMETERS_PER_IMAGE * num_images:
        return []
    return [
        f"the head trains {parameters / 1e6:.1f} million parameters on {num_images} images, "
        f"{parameters // num_images:,} for each, and will overfit; take a smaller head "
        "(--head csra or linear) or more images"
    ]


def _kept(run: RunFolder) -> str:
    return str(read_yaml(run.path / "config.yaml").get("keep"))
