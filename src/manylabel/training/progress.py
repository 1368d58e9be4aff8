"""How far a run is, on the screen: one bar for the whole run, with the loss and the latest mAP in it."""

from __future__ import annotations

import time

from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["RunProgress"]

SECONDS_BETWEEN_LINES = 60  # in a log


class RunProgress(Callback):
    """Shows a bar on a terminal; elsewhere, prints a line per epoch, and one a minute in a long epoch.

    Args:
        console: Where to.

    Examples:
        >>> RunProgress(Console(quiet=True)).console.is_terminal
        False
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._next_line = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Show the bar."""
        self._next_line = time.monotonic() + SECONDS_BETWEEN_LINES
        if not (self.console.is_terminal and trainer.is_global_zero):
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self.console)
        total = trainer.num_training_batches * (trainer.max_epochs or 1)
        self._bar.add_task("training", total=total, completed=trainer.fit_loop.total_batch_idx + 1, numbers="")
        self._bar.start()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,  # noqa: ARG002 (Lightning's)
        outputs: object,  # noqa: ARG002 (Lightning's)
        batch: object,  # noqa: ARG002 (Lightning's)
        batch_idx: int,
    ) -> None:
        """Move the bar; the numbers only now and then, as reading them from a GPU makes it wait."""
        if self._bar is None:
            self._say_now_and_then(trainer, batch_idx)
            return
        task = self._bar.task_ids[0]
        epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        done = trainer.current_epoch * trainer.num_training_batches + batch_idx + 1
        self._bar.update(task, completed=done, description=epoch)
        if batch_idx % 20 == 0:
            self._bar.update(task, numbers=_numbers(trainer))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Say how the epoch went."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], numbers=_numbers(trainer))
        elif trainer.is_global_zero:
            epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            self.console.print(f"{epoch}  {_numbers(trainer)}", highlight=False)

    def _say_now_and_then(self, trainer: Trainer, batch_idx: int) -> None:
        """Say in a log that a long epoch is alive."""
        if self.console.is_terminal or not trainer.is_global_zero or time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + SECONDS_BETWEEN_LINES
        epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        self.console.print(f"{epoch}  batch {batch_idx + 1:,}/{trainer.num_training_batches:,}", highlight=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Leave the bar as it is."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:  # noqa: ARG002 (Lightning's)
        """Leave the bar as it is."""
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _numbers(trainer: Trainer) -> str:
    """Return the loss and what was measured, mAP in percent as the papers print it."""
    metrics = trainer.callback_metrics
    parts = [f"loss {float(metrics['train_loss']):.4f}"] if "train_loss" in metrics else []
    for name, words in (("val_mAP", "mAP"), ("val_accuracy", "accuracy")):
        if name in metrics:
            parts.append(f"{words} {100 * float(metrics[name]):.2f}")
    return "  ".join(parts)
