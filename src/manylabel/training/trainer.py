"""Lightning's trainer, set up as the settings ask for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from manylabel.errors import ConfigError, MissingExtraError
from manylabel.training.settings import LoopSettings

__all__ = ["find_device", "make_trainer", "quiet_lightning"]

LightningPrecision = Literal["32-true", "bf16-mixed", "16-mixed"]


def make_trainer(
    settings: LoopSettings, *, epochs: int, folder: Path, callbacks: Sequence[Callback], find_unused: bool = False
) -> Trainer:
    """Make a trainer.

    Args:
        settings: Device, precision, gradients and logs.
        epochs: Number of epochs.
        folder: The run's folder, for the logs.
        callbacks: What happens beside the loop.
        find_unused: Whether parameters may go without gradients, which training on several devices must know.

    Raises:
        ConfigError: There is no such device, or not so many.

    Examples:
        >>> make_trainer(LoopSettings(device="cpu"), epochs=3, folder=Path("run"), callbacks=[]).max_epochs
        3
    """
    device = find_device(settings)
    unused = "ddp_find_unused_parameters_true" if find_unused else "ddp"
    with quiet_lightning():
        return Trainer(
            accelerator=device,
            devices=settings.devices,
            strategy="auto" if settings.devices == 1 else unused,
            precision=_find_precision(settings, device),
            max_epochs=epochs,
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=settings.clip_gradients,
            logger=_make_loggers(settings.logger, folder),
            callbacks=list(callbacks),
            default_root_dir=folder,
            use_distributed_sampler=False,  # our samplers know their share
            num_sanity_val_steps=0,
            log_every_n_steps=10,
            enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
        )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence what Lightning says to developers; its warnings about real trouble stay.

    Examples:
        >>> with quiet_lightning():
        ...     pass
    """
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [one.level for one in loggers]
    with warnings.catch_warnings():
        for message in (
            r".*does not have many workers.*",  # cached features need none, and `workers` is the user's choice
            r".*in eval mode at the start of training.*",  # a frozen backbone is meant to be
            r".*Checkpoint directory .* exists and is not empty.*",  # a resumed run's is
            r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",  # Lightning's own call, not ours
            r".*smaller than the logging interval.*",  # epochs on cached features are short
            r".*is not currently supported.*MPS.*",
        ):
            warnings.filterwarnings("ignore", message)
        for one in loggers:
            one.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)


def find_device(settings: LoopSettings) -> Literal["cpu", "cuda", "mps"]:
    """Return where to compute.

    Raises:
        ConfigError: There is no such device, or not so many.

    Examples:
        >>> find_device(LoopSettings(device="cpu"))
        'cpu'
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if (settings.device == "cuda" and not cuda) or (settings.device == "mps" and not mps):
        raise ConfigError(f"this machine has no {settings.device} device that torch can use; set device to auto or cpu")
    found: Literal["cpu", "cuda", "mps"] = "cuda" if cuda else "mps" if mps else "cpu"
    device = found if settings.device == "auto" else settings.device
    if device == "cuda" and settings.devices > torch.cuda.device_count():
        raise ConfigError(f"devices is {settings.devices}, but there are {torch.cuda.device_count()} GPUs")
    return device


def _find_precision(settings: LoopSettings, device: str) -> LightningPrecision:
    given: dict[str, LightningPrecision] = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
    if settings.precision != "auto":
        return given[settings.precision]
    if device != "cuda":
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"


def _make_loggers(name: Literal["auto", "none", "tensorboard", "wandb"], folder: Path) -> list[Logger]:
    if name == "auto":
        name = "tensorboard" if find_spec("tensorboard") else "none"
    if name == "none":
        return []
    if find_spec(name) is None:
        raise MissingExtraError(f"{name} is not installed; run: pip install {name}, or set logger to none")
    if name == "wandb":
        return [WandbLogger(name=folder.name, save_dir=folder, project="manylabel")]
    logger: Any = TensorBoardLogger(save_dir=folder, name="", version="tensorboard")
    return [logger]
