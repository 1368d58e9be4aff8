"""Checkpoints of a run, which can be killed at any time and resumed."""

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from safetensors.torch import save_file

from manylabel.errors import RunInterruptedError
from manylabel.storage import replacing
from manylabel.training.callbacks import MovingAverage
from manylabel.training.loaders import ResumableLoader

# Limits of a save at the end of an epoch: seconds, or fraction of the time since the last
CHEAP_SECONDS, CHEAP_FRACTION = 0.2, 0.05

Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None


class StopSignals:
    """Record SIGTERM and Ctrl-C for later handling; a second Ctrl-C stops at once.

    Examples:
        >>> signals = StopSignals()
        >>> signals.catch()
        >>> signal.raise_signal(signal.SIGTERM)
        >>> signals.received
        <Signals.SIGTERM: 15>
        >>> signals.release()
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Handler] = {}

    def catch(self) -> None:
        """Install the handlers; only possible in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._record)

    def release(self) -> None:
        """Restore the previous handlers."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received is signal.SIGINT:
            signal.default_int_handler(number, frame)
        self.received = signal.Signals(number)


class Checkpoints(Checkpoint):
    """Save the state of a run regularly and before a signal stops it, and the best weights.

    Checkpoints are saved after the validation of every epoch, and within long epochs after an optimizer step. If a save
    takes more than a twentieth of the time since the last one (a whole backbone on a slow disk), epochs are skipped.
    Files are replaced atomically: a kill leaves the previous one.

    Args:
        folder: Folder of ``last.ckpt`` and ``best.safetensors``.
        minutes: Maximum minutes between checkpoints.
        keep_best: Save the weights of the epoch with the best validation mAP.
        average: Moving average of the weights (default: none).
        loader: Training loader, whose position is saved, too.

    Examples:
        >>> Checkpoints(Path("run/checkpoints"), minutes=5).last.name
        'last.ckpt'
    """

    def __init__(
        self,
        folder: Path,
        *,
        minutes: float,
        keep_best: bool = False,
        average: MovingAverage | None = None,
        loader: ResumableLoader[Any] | None = None,
    ) -> None:
        self.folder = folder
        self.minutes = minutes
        self.keep_best = keep_best
        self.best_value = float("-inf")
        self.signals = StopSignals()
        self.average = average
        self.loader = loader
        self._saved_at = time.monotonic()
        self._save_seconds = 0.0  # duration of the last save

    @property
    def last(self) -> Path:
        """File of the last checkpoint."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """File of the best weights."""
        return self.folder / "best.safetensors"

    def on_train_start(self, *_: object) -> None:
        """Catch signals, after Lightning, whose own handler would stop the run without saving."""
        self._saved_at = time.monotonic()
        self.signals.catch()

    def on_train_end(self, *_: object) -> None:
        """Restore the signal handlers of Lightning, before it restores the original ones."""
        self.signals.release()

    def on_exception(self, *_: object) -> None:
        """Restore the signal handlers."""
        self.signals.release()

    def on_train_batch_end(self, trainer: Trainer, _: object, __: object, ___: object, batch_idx: int) -> None:
        """Save within an epoch if due, after an optimizer step."""
        number = batch_idx + 1
        if number < trainer.num_training_batches and number % trainer.accumulate_grad_batches == 0:
            self._save_if_due(trainer, due=self._seconds_since_save >= 60 * self.minutes)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after the validation, unless saving is slow and the last save recent."""
        if self.keep_best:
            self._save_best(trainer, pl_module)
        is_last = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        cheap = self._save_seconds <= max(CHEAP_SECONDS, CHEAP_FRACTION * self._seconds_since_save)
        self._save_if_due(trainer, due=is_last or cheap or self._seconds_since_save >= 60 * self.minutes)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for the checkpoint."""
        position = None if self.loader is None else self.loader.state_dict()
        return {"best_value": self.best_value, "place": position}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.best_value = state_dict["best_value"]
        if self.loader is not None:  # Lightning restores it only for checkpoints within an epoch
            self.loader.load_state_dict(state_dict["place"])

    @property
    def _seconds_since_save(self) -> float:
        return time.monotonic() - self._saved_at

    def _save_if_due(self, trainer: Trainer, *, due: bool) -> None:
        """Save if due or signalled in any process; stop the run on a signal."""
        stop = trainer.strategy.reduce_boolean_decision(self.signals.received is not None, all=False)
        if stop or trainer.strategy.reduce_boolean_decision(due, all=False):
            self._save(trainer)
        if stop:
            self._stop(trainer)

    def _save(self, trainer: Trainer) -> None:
        start = time.monotonic()
        own = replacing(self.last, overwrite=True) if trainer.is_global_zero else nullcontext(self.last)
        with own as file:
            trainer.save_checkpoint(file)
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - start

    def _save_best(self, trainer: Trainer, task: LightningModule) -> None:
        value = float(trainer.callback_metrics["val_mAP"])
        if not value > self.best_value:  # false for NaN, too
            return
        self.best_value = value
        weights = task if self.average is None else self.average.weights(task)
        if trainer.is_global_zero:
            with replacing(self.best, overwrite=True) as file:
                save_file({name: tensor.contiguous() for name, tensor in weights.state_dict().items()}, file)

    def _stop(self, trainer: Trainer) -> None:
        received = self.signals.received
        name = "another process" if received is None else received.name
        raise RunInterruptedError(
            f"stopped by {name} in epoch {trainer.current_epoch + 1}; the run is saved in {self.folder.parent}: "
            "repeat the command with --resume to continue",
            exit_code=128 + (15 if received is None else received.value),
        )
