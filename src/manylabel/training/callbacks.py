"""Callbacks: weight averaging, frozen epochs, metrics.csv, validation scores and progress."""

import csv
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from rich.console import Console
from torch import Tensor, nn
from torchmetrics.utilities import dim_zero_cat

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError
from manylabel.progress import ProgressBar
from manylabel.storage import write_text
from manylabel.training.task import ClassificationTask

SECONDS_BETWEEN_UPDATES = 0.5
MOST_SCORES = 10_000_000  # images times labels; the bootstrap is too slow for more


class MovingAverage(WeightAveraging):
    """Exponential moving average (EMA) of the weights, which is validated and saved.

    The decay grows with the number of steps n as min(decay, (1 + n) / (10 + n)): otherwise the average of a short run
    would be dominated by untrained weights.

    Args:
        decay: Final decay.

    Examples:
        >>> MovingAverage(decay=0.9997).decay
        0.9997
    """

    def __init__(self, *, decay: float) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"decay must be above 0 and below 1, got {decay}; the papers use 0.9997")
        self.decay = decay
        super().__init__(avg_fn=self._average)

    def _average(self, averaged: Tensor, current: Tensor, num_averaged: Tensor | int) -> Tensor:
        steps = int(num_averaged)
        return average(averaged, current, keep=min(self.decay, (1 + steps) / (10 + steps)))

    def weights(self, task: nn.Module) -> nn.Module:
        """Return the module with the averaged weights; the task itself before training."""
        return task if self._average_model is None else self._average_model.module


def average(averaged: Tensor, current: Tensor, *, keep: float) -> Tensor:
    """Return the updated average of a weight.

    Args:
        averaged: Average so far.
        current: Current weight.
        keep: Weight of the average so far.

    Returns:
        The average; for integers, such as an order of labels, the current value.

    Examples:
        >>> average(torch.tensor([1.0]), torch.tensor([0.0]), keep=0.9)
        tensor([0.9000])
        >>> average(torch.tensor(3), torch.tensor(5), keep=0.9)
        tensor(5)
    """
    # lerp keeps constant weights bit-identical; keep * a + (1 - keep) * a does not
    return averaged.lerp(current, 1 - keep) if averaged.is_floating_point() else current


class FreezeFirst(Callback):
    """Freeze the backbone for the first epochs: no gradients, no new batch-norm statistics.

    Args:
        backbone: Backbone to freeze.
        epochs: Number of frozen epochs.

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
        """Freeze or unfreeze the backbone for an epoch."""
        self.backbone.freeze(epoch < self.epochs)

    def on_train_start(self, trainer: Trainer, *_: object) -> None:
        """Freeze or unfreeze for the first or resumed epoch."""
        self.hold(trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, *_: object) -> None:
        """Freeze or unfreeze for the new epoch."""
        self.hold(trainer.current_epoch)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read metrics.csv; empty if it does not exist yet.

    Raises:
        ValueError: A value is not a number.

    Examples:
        >>> read_metrics(Path("no such table.csv"))
        []
    """
    if not path.is_file():
        return []
    names, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines() or [""])
    return [{name: float(value) for name, value in zip(names, row, strict=True)} for row in rows]


def reached(rows: Sequence[Mapping[str, float]], *, keep: str) -> float | None:
    """Return the mAP of the saved weights: those of the ``"last"`` or the ``"best"`` epoch.

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
    """Write metrics.csv, one line per epoch: mean losses per image, mAP, learning rate and seconds.

    The running mean of the training loss is logged as ``train_loss``. The rows are part of the checkpoint: a resumed
    run writes the same table, except for the seconds.

    Args:
        path: File to write.

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

    def on_train_start(self, *_: object) -> None:
        """Start the clock."""
        self._tick = time.monotonic()

    def on_train_batch_end(self, _: Trainer, task: LightningModule, outputs: Any, batch: Any, *__: object) -> None:  # noqa: ANN401 (Lightning's)
        """Add the loss of a batch, on its device to avoid synchronisation."""
        self._loss_sum = self._loss_sum + outputs["image_loss"].float() * len(batch)
        self._num_images += len(batch)
        task.log("train_loss", self._loss_sum / self._num_images, batch_size=len(batch))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Append the row of an epoch and write the table."""
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
        """Return the state for the checkpoint."""
        self._count_seconds()
        sums = {"loss_sum": float(self._loss_sum), "num_images": self._num_images, "seconds": self._seconds}
        return {"rows": self.rows, **sums}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.rows = list(state_dict["rows"])
        self._loss_sum, self._num_images = state_dict["loss_sum"], state_dict["num_images"]
        self._seconds = state_dict["seconds"]

    def _count_seconds(self) -> None:
        now = time.monotonic()
        self._seconds, self._tick = self._seconds + now - self._tick, now

    def _write(self) -> None:
        lines = [self.rows[0], *(row.values() for row in self.rows)]
        write_text(self.path, "".join(",".join(map(str, line)) + "\n" for line in lines), overwrite=True)


class ValidationScores(Callback):
    """Collect the validation scores of the last and of the best epoch, also in checkpoints.

    Attributes:
        last: Scores ``[N, L]`` of the last epoch; None before the first, with several processes or too many images.
        best: Scores of the epoch with the best mAP.
        best_epoch: Number of that epoch, from 1.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, false where the target is unknown.

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

    def of(self, keep: str) -> Tensor | None:
        """Return the scores of the ``"last"`` or ``"best"`` epoch, if any."""
        return self.best if keep == "best" else self.last

    def replace(self, scores: Tensor, targets: Tensor, known: Tensor) -> None:
        """Replace the scores of all epochs, for a model that changed after training; tensors ``[N, L]``."""
        self.last = self.best = scores
        self.targets, self.known = targets, known

    def on_validation_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        """Store the scores of the epoch, which the task has collected for its mAP."""
        metric = cast("ClassificationTask", task).mean_average_precision
        scores, targets, known = (dim_zero_cat(each).cpu() for each in (metric.scores, metric.targets, metric.known))
        if trainer.world_size == 1 and scores.numel() < MOST_SCORES:
            self.last, self.targets, self.known = scores, targets, known

    def on_train_epoch_end(self, trainer: Trainer, *_: object) -> None:
        """Store the scores again if the epoch is the best."""
        value = float(trainer.callback_metrics["val_mAP"])
        if self.last is not None and value > self.best_value:
            self.best, self.best_value, self.best_epoch = self.last, value, trainer.current_epoch + 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state for the checkpoint."""
        names = ("last", "best", "best_epoch", "best_value", "targets", "known")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        for name, value in state_dict.items():
            setattr(self, name, value)


class RunProgress(Callback):
    """Progress bar of the run in a terminal or notebook; elsewhere, a line per epoch and every ten seconds.

    Args:
        console: Console to print on.

    Examples:
        >>> RunProgress(Console(quiet=True)).console.is_terminal
        False
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar = ProgressBar("training", console=console, keep=True)
        self._updated = 0.0

    def on_train_start(self, trainer: Trainer, *_: object) -> None:
        """Start the bar at the first or resumed step."""
        self._update(trainer, trainer.fit_loop.total_batch_idx + 1)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Update the bar."""
        self._update_soon(trainer, _epoch(trainer))

    def on_validation_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Keep the display alive through a long validation."""
        self._update_soon(trainer, f"{_epoch(trainer)}, validation")

    def on_train_epoch_end(self, trainer: Trainer, *_: object) -> None:
        """Show the metrics of the epoch."""
        self._update(trainer, (trainer.current_epoch + 1) * int(trainer.num_training_batches))
        if trainer.is_global_zero and not self._bar.is_drawn:
            self.console.print(f"{_epoch(trainer)}  {_metrics(trainer)}", highlight=False)

    def on_train_end(self, *_: object) -> None:
        """Stop the bar."""
        self._bar.stop()

    def on_exception(self, *_: object) -> None:
        """Stop the bar."""
        self._bar.stop()

    def _update_soon(self, trainer: Trainer, doing: str) -> None:
        """Update the bar at most every half second: reading the loss synchronises with the GPU."""
        if time.monotonic() >= self._updated + SECONDS_BETWEEN_UPDATES:
            self._update(trainer, trainer.fit_loop.total_batch_idx + 1, doing)

    def _update(self, trainer: Trainer, done: int, doing: str | None = None) -> None:
        self._updated = time.monotonic()
        if trainer.is_global_zero:
            total = int(trainer.num_training_batches) * (trainer.max_epochs or 1)
            self._bar.update(done, total, _metrics(trainer), doing=doing or _epoch(trainer))


def _epoch(trainer: Trainer) -> str:
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


def _metrics(trainer: Trainer) -> str:
    """Return loss and metrics as text, in per cent as in the papers."""
    metrics = trainer.callback_metrics
    parts = [f"loss {float(metrics['train_loss']):.4f}"] if "train_loss" in metrics else []
    for name, words in (("val_mAP", "mAP"), ("val_accuracy", "accuracy")):
        if name in metrics:
            parts.append(f"{words} {100 * float(metrics[name]):.2f}")
    return "  ".join(parts)
