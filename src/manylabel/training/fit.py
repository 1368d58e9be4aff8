"""The loop: Lightning's trainer, with everything that lets a run survive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn

from manylabel.training.averaging import MovingAverage
from manylabel.training.checkpoints import Checkpoints
from manylabel.training.loaders import ResumableLoader, SeededLoader, Share
from manylabel.training.memory import explain_full_memory
from manylabel.training.metrics_file import MetricsFile
from manylabel.training.run_folder import RunFolder
from manylabel.training.task import ClassificationTask
from manylabel.training.trainer import make_trainer, quiet_lightning
from manylabel.types import Batch, FeatureBatch

__all__ = ["Loaders", "fit"]


@dataclass(frozen=True)
class Loaders:
    """The batches to train on and those to judge by."""

    train: SeededLoader[Batch | FeatureBatch]
    val: SeededLoader[Batch | FeatureBatch]


def fit(
    task: ClassificationTask,
    make_loaders: Callable[[Share], Loaders],
    *,
    run: RunFolder,
    callbacks: Sequence[Callback] = (),
    find_unused: bool = False,
) -> list[dict[str, float]]:
    """Train a task, going on from the run's last checkpoint if there is one; it ends with the weights to keep.

    Args:
        task: What to train.
        make_loaders: Makes the loaders of one process.
        run: Where the state goes.
        callbacks: What else happens beside the loop.
        find_unused: Whether parameters may go without gradients.

    Returns:
        What was measured in each epoch, as in metrics.csv.

    Raises:
        TrainingError: The loss is not finite or memory ran out; the message says what to do.
        RunInterruptedError: A signal ended the run, which was saved first.
    """
    settings = task.settings
    loaders = make_loaders(Share.of_process(settings.devices))
    train = ResumableLoader(loaders.train)
    steps = -(-len(train) // settings.accumulate)
    task.total_steps = settings.num_epochs(steps) * steps
    average = MovingAverage(decay=settings.ema_decay) if settings.ema_decay else None
    metrics = MetricsFile(run.metrics)
    checkpoints = Checkpoints(
        run.checkpoints,
        minutes=settings.checkpoint_minutes,
        keep_best=settings.keep == "best",
        average=average,
        loader=train,
    )
    stopping = [EarlyStopping("val_mAP", mode="max", patience=settings.patience)] if settings.patience else []
    beside = [*([average] if average else []), metrics, *stopping, *callbacks, checkpoints]
    trainer = make_trainer(
        settings, epochs=settings.num_epochs(steps), folder=run.path, callbacks=beside, find_unused=find_unused
    )
    run.require_space(_checkpoint_bytes(task))
    last = checkpoints.last if checkpoints.last.is_file() else None
    with quiet_lightning(), explain_full_memory(batch_size=settings.batch_size, accumulate=settings.accumulate):
        # A checkpoint is data: loading it must not run code.
        trainer.fit(task, train, loaders.val, ckpt_path=last, weights_only=True)
    _finish(trainer, task, average, checkpoints)
    return metrics.rows


def _finish(trainer: Trainer, task: LightningModule, average: MovingAverage | None, checkpoints: Checkpoints) -> None:
    """Put the weights to keep into the task; a run resumed after its last epoch has not done it yet."""
    if checkpoints.keep_best and checkpoints.best.is_file():
        checkpoints.restore_best(task)
    elif average is not None:
        average.on_train_end(trainer, task)


def _checkpoint_bytes(task: nn.Module) -> int:
    """Estimate what two checkpoints and a model take: weights, their average, and two moments of the optimizer."""
    weights = sum(each.numel() * each.element_size() for each in task.parameters())
    trained = sum(each.numel() * each.element_size() for each in task.parameters() if each.requires_grad)
    return 2 * (2 * weights + 2 * trained) + weights
