"""The numbers of each epoch, in a table that any program can read."""

import csv
import io
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from manylabel.storage import write_text

__all__ = ["MetricsFile", "reached", "read_metrics"]


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the numbers of each epoch, as far as a run is; none where there is no table yet.

    Raises:
        ValueError: The table holds what is no number.

    Examples:
        >>> read_metrics(Path("no such table.csv"))
        []
    """
    if not path.is_file():
        return []
    lines = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return [{name: float(value) for name, value in line.items()} for line in lines]


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
