"""What happens beside the loop: averaged weights, frozen epochs, the table of metrics, scores and progress."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from rich.console import Console
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError
from manylabel.progress import ProgressBar
from manylabel.storage import write_text

__all__ = [
    "FreezeFirst",
    "MetricsFile",
    "MovingAverage",
    "RunProgress",
    "ValidationScores",
    "average",
    "reached",
    "read_metrics",
]

MOST_SCORES = 10_000_000  # images times labels; more take too long to draw from


class MovingAverage(WeightAveraging):
    """Keeps an exponential moving average of a task's weights, which is validated and saved.

    A long memory would keep the untrained weights in a short run, so the decay grows with the number of steps n, as
    min(decay, (1 + n) / (10 + n)).

    Args:
        decay: Fraction of the average that a step keeps, in the end.

    Examples:
        >>> MovingAverage(decay=0.9997).decay
        0.9997
    """

    def __init__(self, *, decay: float) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"decay must be above 0 and below 1, got {decay}; 0.9997 is the papers'")
        self.decay = decay
        super().__init__(avg_fn=self._average)

    def _average(self, averaged: Tensor, current: Tensor, num_averaged: Tensor | int) -> Tensor:
        steps = int(num_averaged)
        return average(averaged, current, keep=min(self.decay, (1 + steps) / (10 + steps)))

    def weights(self, task: nn.Module) -> nn.Module:
        """Return the module that holds the averaged weights; the task itself before there are any."""
        return task if self._average_model is None else self._average_model.module


def average(averaged: Tensor, current: Tensor, *, keep: float) -> Tensor:
    """Return the next average of a weight.

    Args:
        averaged: The average so far.
        current: The weight now.
        keep: Fraction of the average that stays.

    Returns:
        The average; the current value of what is not a number to average, such as an order of labels.

    Examples:
        >>> average(torch.tensor([1.0]), torch.tensor([0.0]), keep=0.9)
        tensor([0.9000])
        >>> average(torch.tensor(3), torch.tensor(5), keep=0.9)
        tensor(5)
    """
    # lerp leaves what never changes exactly as it is, which keep * a + (1 - keep) * a does not
    return averaged.lerp(current, 1 - keep) if averaged.is_floating_point() else current


class FreezeFirst(Callback):
    """Freezes the backbone for the first epochs: no gradients, no new batch-norm statistics.

    Args:
        backbone: The backbone.
        epochs: Number of epochs.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False)
        >>> FreezeFirst(backbone, epochs=1).hold(epoch=0)
        >>> backbone.training, any(parameter.requires_grad for parameter in backbone.parameters())
        (False, False)
    """

    def __init__(self, backbone: Backbone, *, epochs: int) -> None:
        self.backbone = backbone
        self.epochs = epochs

    def hold(self, epoch: int) -> None:
        """Freeze or unfreeze the backbone, as is right in an epoch."""
        self.backbone.freeze(epoch < self.epochs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Act on the epoch that a run begins or resumes in."""
        self.hold(trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Act on a new epoch."""
        self.hold(trainer.current_epoch)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the metrics of each epoch, as far as a run is; none where there is no table yet.

    Raises:
        ValueError: The table holds what is no number.

    Examples:
        >>> read_metrics(Path("no such table.csv"))
        []
    """
    if not path.is_file():
        return []
    names, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines() or [""])
    return [{name: float(value) for name, value in zip(names, row, strict=True)} for row in rows]


def reached(rows: Sequence[Mapping[str, float]], *, keep: str) -> float | None:
    """Return the mAP of the weights that a run keeps: those of its ``"last"`` epoch, or of its ``"best"``.

    Examples:
        >>> rows = [{"val_mAP": 0.8}, {"val_mAP": 0.7}]
        >>> reached(rows, keep="last"), reached(rows, keep="best"), reached([], keep="last")
        (0.7, 0.8, None)
    """
    scores = [row["val_mAP"] for row in rows if "val_mAP" in row and not math.isnan(row["val_mAP"])]
    if not scores:
        return None
    return max(scores) if keep == "best" else scores[-1]


class MetricsFile(Callback):
    """Writes metrics.csv, one line per epoch: mean losses per image, mAP, learning rate and seconds.

    The training loss is logged as ``train_loss``, too: the mean of the epoch so far. What it collected goes into the
    checkpoint: a run that was resumed leaves the same table, but for the seconds.

    Args:
        path: Where the table goes.

    Examples:
        >>> MetricsFile(Path("run/metrics.csv")).rows
        []
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        self._loss_sum: Tensor | float = 0.0
        self._num_images = 0
        self._seconds = 0.0
        self._tick = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Begin to count the seconds."""
        self._tick = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: Trainer,  # noqa: ARG002 (Lightning's)
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401 (Lightning's: a dictionary, or whatever a task returns)
        batch: Any,  # noqa: ANN401 (Lightning's: a batch of images or of features)
        batch_idx: int,  # noqa: ARG002 (Lightning's)
    ) -> None:
        """Add a batch's loss; it stays on its device, so that nothing waits for it."""
        self._loss_sum = self._loss_sum + outputs["image_loss"].float() * len(batch)
        self._num_images += len(batch)
        pl_module.log("train_loss", self._loss_sum / self._num_images, batch_size=len(batch))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the line of an epoch."""
        collected = torch.tensor([float(self._loss_sum), self._num_images], dtype=torch.float64)
        total, count = trainer.strategy.reduce(collected.float().to(pl_module.device), reduce_op="sum").tolist()
        measured = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
        self._count_seconds()
        self.rows.append(
            {
                "epoch": trainer.current_epoch + 1,
                "step": trainer.global_step,
                "train_loss": total / count,
                **dict(sorted(measured.items())),
                "learning_rate": trainer.optimizers[0].param_groups[-1]["lr"],
                "seconds": round(self._seconds, 2),
            }
        )
        self._loss_sum, self._num_images, self._seconds = 0.0, 0, 0.0
        if trainer.is_global_zero:
            self._write()

    def state_dict(self) -> dict[str, Any]:
        """Return what must outlive a kill."""
        self._count_seconds()
        return {
            "rows": self.rows,
            "loss_sum": float(self._loss_sum),
            "num_images": self._num_images,
            "seconds": self._seconds,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take it up again."""
        self.rows = list(state_dict["rows"])
        self._loss_sum, self._num_images = state_dict["loss_sum"], state_dict["num_images"]
        self._seconds = state_dict["seconds"]

    def _count_seconds(self) -> None:
        now = time.monotonic()
        self._seconds, self._tick = self._seconds + now - self._tick, now

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue(), overwrite=True)


class ValidationScores(Callback):
    """Keeps the scores of the validation images after the last epoch and after the best one, in the state, too.

    Attributes:
        last: Scores ``[N, L]`` of the last epoch; None before the first, for several processes, or too many images.
        best: Those of the epoch with the best mAP.
        best_epoch: Its number, from 1.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, true where that is known.

    Examples:
        >>> ValidationScores().last is None
        True
    """

    def __init__(self) -> None:
        self.last: Tensor | None = None
        self.best: Tensor | None = None
        self.best_epoch = 0
        self.best_value = float("-inf")
        self.targets = self.known = torch.zeros(0, 0, dtype=torch.bool)
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []

    def of(self, keep: str) -> Tensor | None:
        """Return the scores of the epoch that is kept, ``"last"`` or ``"best"``, if there are any."""
        return self.best if keep == "best" else self.last

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Begin anew."""
        self._batches = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,  # noqa: ARG002 (Lightning's)
        outputs: Any,  # noqa: ANN401 (Lightning's: what `validation_step` returns)
        batch: Any,  # noqa: ANN401 (Lightning's: a batch of images or of features)
        batch_idx: int,  # noqa: ARG002 (Lightning's)
        dataloader_idx: int = 0,  # noqa: ARG002 (Lightning's)
    ) -> None:
        """Collect the scores of a batch."""
        seen = sum(scores.numel() for scores, _, _ in self._batches)
        if trainer.world_size == 1 and seen < MOST_SCORES:
            self._batches.append((outputs.cpu(), batch.targets.cpu() > 0, batch.known.cpu()))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Keep the epoch's scores, if they are all there."""
        if not self._batches:
            return
        self.last, self.targets, self.known = (torch.cat(parts) for parts in zip(*self._batches, strict=True))
        self._batches = []
        value = float(trainer.callback_metrics["val_mAP"])
        if self.last.numel() >= MOST_SCORES:
            self.last = self.best = None
        elif value > self.best_value:
            self.best, self.best_value, self.best_epoch = self.last, value, trainer.current_epoch + 1

    def state_dict(self) -> dict[str, Any]:
        """Return what must outlive a kill."""
        names = ("last", "best", "best_epoch", "best_value", "targets", "known")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take it up again."""
        for name, value in state_dict.items():
            setattr(self, name, value)


class RunProgress(Callback):
    """Shows a bar for the whole run on a terminal; elsewhere, a line per epoch and every ten seconds.

    Args:
        console: Console to show it on.

    Examples:
        >>> RunProgress(Console(quiet=True)).console.is_terminal
        False
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar = ProgressBar("training", console=console, keep=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Begin the bar where the run begins or resumes."""
        self._bar = ProgressBar("training", console=self.console, keep=True)
        self._update(trainer, trainer.fit_loop.total_batch_idx + 1, "")

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,  # noqa: ARG002 (Lightning's)
        outputs: object,  # noqa: ARG002 (Lightning's)
        batch: object,  # noqa: ARG002 (Lightning's)
        batch_idx: int,
    ) -> None:
        """Move the bar, now and then, as reading the loss from a GPU makes it wait."""
        if batch_idx % 20 == 0:
            done = trainer.current_epoch * int(trainer.num_training_batches) + batch_idx + 1
            self._update(trainer, done, _metrics(trainer))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Show the epoch's metrics."""
        self._update(trainer, (trainer.current_epoch + 1) * int(trainer.num_training_batches), _metrics(trainer))
        if trainer.is_global_zero and not self.console.is_terminal:
            self.console.print(f"{_epoch(trainer)}  {_metrics(trainer)}", highlight=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Leave the bar as it is."""
        self._bar.stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:  # noqa: ARG002 (Lightning's)
        """Leave the bar as it is."""
        self._bar.stop()

    def _update(self, trainer: Trainer, done: int, note: str) -> None:
        if trainer.is_global_zero:
            total = int(trainer.num_training_batches) * (trainer.max_epochs or 1)
            self._bar.update(done, total, note, doing=_epoch(trainer))


def _epoch(trainer: Trainer) -> str:
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


def _metrics(trainer: Trainer) -> str:
    """Return the loss and what was measured, mAP in percent as the papers print it."""
    metrics = trainer.callback_metrics
    parts = [f"loss {float(metrics['train_loss']):.4f}"] if "train_loss" in metrics else []
    for name, words in (("val_mAP", "mAP"), ("val_accuracy", "accuracy")):
        if name in metrics:
            parts.append(f"{words} {100 * float(metrics[name]):.2f}")
    return "  ".join(parts)
