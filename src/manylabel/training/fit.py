"""Training loop: Lightning's trainer with checkpoints, resuming and clear errors."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from safetensors.torch import load_file
from torch import Tensor, nn

from manylabel.errors import MissingExtraError, TrainingError
from manylabel.losses import MultiLabelLoss, positive_weights
from manylabel.settings import LoopSettings
from manylabel.system import find_device
from manylabel.targets import Targets
from manylabel.training.callbacks import FreezeFirst, MetricsFile, MovingAverage
from manylabel.training.checkpoints import Checkpoints
from manylabel.training.loaders import ResumableLoader, SeededLoader
from manylabel.training.run_folder import RunFolder
from manylabel.training.task import ClassificationTask
from manylabel.types import Batch, FeatureBatch


@dataclass(frozen=True)
class Loaders:
    """Loaders of the training and the validation set."""

    train: SeededLoader[Batch | FeatureBatch]
    val: SeededLoader[Batch | FeatureBatch]


def fit(
    task: ClassificationTask, loaders: Loaders, *, run: RunFolder, callbacks: Sequence[Callback] = ()
) -> list[dict[str, float]]:
    """Train a task, resuming from the last checkpoint if there is one; the task ends with the weights to save.

    Args:
        task: Task to train.
        loaders: Loaders of this process.
        run: Run folder.
        callbacks: Additional callbacks.

    Returns:
        The metrics of each epoch, as in metrics.csv.

    Raises:
        ConfigError: The device does not exist, or there are fewer than requested.
        TrainingError: The loss is not finite or memory ran out; the message suggests a fix.
        RunInterruptedError: A signal stopped the run, after a checkpoint was saved.
    """
    settings, train = task.settings, ResumableLoader(loaders.train)
    targets = loaders.train.dataset_targets
    if settings.positive_weights:
        are_absent = getattr(task.loss, "unknown", "ignore") == "negative"  # the labels that are unknown
        task.loss.positive_weights = positive_weights(Targets(targets.present) if are_absent else targets)
    if isinstance(task.loss, MultiLabelLoss):
        task.loss.fit(targets)
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
    every = [*([average] if average else []), metrics, *stopping, *callbacks, checkpoints]
    epochs = settings.num_epochs(-(-len(train) // settings.accumulate), num_labels=targets.shape[1])
    run.require_space(_checkpoint_bytes(task))
    advice = explain_full_memory(batch_size=settings.batch_size, accumulate=settings.accumulate)
    fast = large_depthwise_in_float32(task.model) if _is_bfloat16_on_cpu(settings) else nullcontext()
    with quiet_lightning(), advice, fast, _compiled(task.model) if settings.compile else nullcontext():
        trainer = _make_trainer(settings, epochs=epochs, folder=run.path, callbacks=every)
        last = checkpoints.last if checkpoints.last.is_file() else None
        # weights_only: loading a checkpoint must not run code.
        trainer.fit(task, train, loaders.val, ckpt_path=last, weights_only=True)
    if checkpoints.keep_best and checkpoints.best.is_file():
        task.load_state_dict(load_file(checkpoints.best), strict=False)
    elif average is not None:
        average.on_train_end(trainer, task)  # also for a run resumed after its last epoch
    return metrics.rows


@contextmanager
def _compiled(model: nn.Module) -> Iterator[None]:
    """Compile a model within the block, in place, so that the names of its weights stay."""
    model.compile()
    try:
        yield
    finally:
        model._compiled_call_impl = None  # torch has no public way back, and exports need the original


@contextmanager
def large_depthwise_in_float32(model: nn.Module) -> Iterator[None]:
    """Compute depthwise convolutions larger than 3 x 3 in float32 within the block, where the rest runs in bfloat16.

    On a CPU, their gradients in bfloat16 take 2 to 13 times as long as in float32, most of a training step.
    """
    large = [
        module
        for module in model.modules()
        if isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1 and max(module.kernel_size) > 3
    ]
    hooks = [module.register_forward_pre_hook(_leave_autocast) for module in large]
    hooks += [module.register_forward_hook(_enter_autocast, always_call=True) for module in large]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _leave_autocast(_module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    torch.set_autocast_enabled("cpu", False)
    return (inputs[0].float(),)


def _enter_autocast(*_: object) -> None:
    torch.set_autocast_enabled("cpu", True)


def _make_trainer(settings: LoopSettings, *, epochs: int, folder: Path, callbacks: list[Callback]) -> Trainer:
    device = find_device(settings.device, count=settings.devices).type
    freezes = any(isinstance(callback, FreezeFirst) for callback in callbacks)  # parameters without gradients
    parallel = "ddp_find_unused_parameters_true" if freezes else "ddp"
    return Trainer(
        accelerator=device,
        devices=settings.devices,
        strategy="auto" if settings.devices == 1 else parallel,
        precision=_find_precision(settings, device),
        max_epochs=epochs,
        accumulate_grad_batches=settings.accumulate,
        gradient_clip_val=settings.clip_gradients,
        logger=_make_loggers(settings.logger, folder),
        callbacks=callbacks,
        default_root_dir=folder,
        use_distributed_sampler=False,  # our samplers are distributed already
        num_sanity_val_steps=0,
        log_every_n_steps=10,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's hints to developers; other warnings remain.

    Examples:
        >>> with quiet_lightning():
        ...     pass
    """
    levels = {logger: logger.level for logger in map(logging.getLogger, ("lightning.pytorch", "lightning.fabric"))}
    with warnings.catch_warnings():
        for message in (
            r".*does not have many workers.*",  # cached features need none, and `workers` is the user's choice
            r".*in eval mode at the start of training.*",  # intended for a frozen backbone
            r".*Checkpoint directory .* exists and is not empty.*",  # expected for a resumed run
            r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",  # Lightning's own call, not ours
            r".*smaller than the logging interval.*",  # epochs on cached features are short
            r".*is not currently supported.*MPS.*",
        ):
            warnings.filterwarnings("ignore", message)
        for logger in levels:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in levels.items():
                logger.setLevel(level)


@contextmanager
def explain_full_memory(*, batch_size: int, accumulate: int) -> Iterator[None]:
    """Turn out-of-memory errors of any device into one that suggests a fix.

    Args:
        batch_size: Images per batch.
        accumulate: Batches per optimizer step.

    Raises:
        TrainingError: Memory ran out inside the block.

    Examples:
        >>> with explain_full_memory(batch_size=64, accumulate=1):
        ...     raise MemoryError
        Traceback (most recent call last):
        manylabel.errors.TrainingError: memory ran out with batch_size 64; try batch_size 32 with accumulate 2, ...
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On a CPU, torch raises a plain RuntimeError with the allocator's name in it.
        words = ("DefaultCPUAllocator", "MPS backend out of memory")
        is_full = isinstance(error, MemoryError | torch.OutOfMemoryError) or any(each in str(error) for each in words)
        if not is_full:
            raise
        smaller = max(batch_size // 2, 1)
        raise TrainingError(
            f"memory ran out with batch_size {batch_size}; try batch_size {smaller} with accumulate {2 * accumulate}, "
            "which is equivalent, or a smaller image_size or head"
        ) from error


def _checkpoint_bytes(task: nn.Module) -> int:
    """Estimate the size of two checkpoints (weights, average, two optimizer moments) and a model."""
    weights = sum(each.nbytes for each in task.parameters())
    trained = sum(each.nbytes for each in task.parameters() if each.requires_grad)
    return 2 * (2 * weights + 2 * trained) + weights


def _is_bfloat16_on_cpu(settings: LoopSettings) -> bool:
    device = find_device(settings.device, count=settings.devices).type
    return device == "cpu" and _find_precision(settings, device) == "bf16-mixed"


def _find_precision(settings: LoopSettings, device: str) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    name = settings.precision
    if name == "float32" or (name == "auto" and device != "cuda"):
        return "32-true"
    if name == "bfloat16" or (name == "auto" and torch.cuda.is_bf16_supported()):
        return "bf16-mixed"
    return "16-mixed"


def _make_loggers(name: str, folder: Path) -> list[Any]:
    if name == "none" or (name == "auto" and not find_spec("tensorboard")):
        return []
    name = "tensorboard" if name == "auto" else name
    if find_spec(name) is None:
        raise MissingExtraError(f"{name} is not installed; run: pip install {name}, or set logger to none")
    if name == "wandb":
        return [WandbLogger(name=folder.name, save_dir=folder, project="manylabel")]
    if name == "mlflow":
        address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        return [MLFlowLogger(experiment_name="manylabel", run_name=folder.name, tracking_uri=address)]
    return [TensorBoardLogger(save_dir=folder, name="", version="tensorboard")]
