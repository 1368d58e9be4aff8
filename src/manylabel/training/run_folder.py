"""The folder of a run: its settings, environment, metrics, state and model.

run/
├── config.yaml        every setting as resolved; ``--config run/config.yaml`` repeats the run
├── command.txt        the command that made it
├── environment.json   versions and machine
├── images.json        number of training and validation images, and a fingerprint of their names
├── metrics.csv        losses and mAP of each epoch
├── validation.json    mAP on the validation images with its interval
├── scores.npz         scores of the validation images, once a report was made
├── checkpoints/       the state to resume from, and the best weights where asked for
└── model/             the finished model, for `Classifier.load`

A recipe may declare more files of its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_only

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.settings import read_yaml, settings_fields, to_dict, to_yaml
from manylabel.storage import decode_json, write_text

__all__ = ["RunFolder", "describe_environment", "is_first_process"]

FILES = frozenset({"config.yaml", "command.txt", "environment.json", "images.json", "metrics.csv", "validation.json"})
FILES |= {"scores.npz", "checkpoints", "model", "tensorboard", "wandb"}
PACKAGES = ("manylabel", "torch", "torchvision", "timm", "lightning", "torchmetrics", "numpy", "pillow", "onnxruntime")


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run.

    Args:
        path: Where it is.

    Examples:
        >>> RunFolder(Path("runs/first")).model.as_posix()
        'runs/first/model'
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of the state to resume from."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

    @property
    def metrics(self) -> Path:
        """The table of the epochs."""
        return self.path / "metrics.csv"

    @property
    def is_finished(self) -> bool:
        """True once the model was saved, which is the last thing a run does."""
        return (self.model / "config.json").is_file()

    @property
    def has_state(self) -> bool:
        """True where there is something to resume, or to look at: a saved epoch, or a model or an error of a part."""
        saved = ("checkpoints/last.ckpt", "model/config.json", "error.txt")
        return any(next(self.path.rglob(pattern), None) for pattern in saved)

    @classmethod
    def open(
        cls, path: str | Path, *, resume: bool = False, overwrite: bool = False, files: Collection[str] = ()
    ) -> RunFolder:
        """Make the folder of a new run, or find that of one to resume; find out now whether it can be written to.

        Args:
            path: The folder.
            resume: Resume a run that is there, if one is.
            overwrite: Delete a run that is there.
            files: Files that its recipe writes besides those of every run.

        Raises:
            OutputExistsError: Something is there and neither `resume` nor `overwrite` is asked for.
            ConfigError: The folder cannot be written to, or `overwrite` would delete what is no run.
        """
        folder = cls(Path(path))
        folder.check(resume=resume, overwrite=overwrite, files=files)
        if is_first_process():  # which has done it for the others
            if overwrite and not resume:
                shutil.rmtree(folder.path, ignore_errors=True)
            if resume:
                folder.remove_leftovers()
            folder._try_to_write()
        return folder

    def check(self, *, resume: bool = False, overwrite: bool = False, files: Collection[str] = ()) -> None:
        """Raise where `open` would, but write and delete nothing; arguments as there."""
        if not is_first_process():
            return
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"{self.path} is a file; choose another name for the run's folder")
        if resume or not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if not overwrite:
            raise OutputExistsError(
                f"{self.path} exists already; go on with that run (--resume), replace it (--overwrite), "
                "or choose another name (--out)"
            )
        strangers = sorted(each.name for each in self.path.iterdir() if each.name not in {*FILES, *files})
        if strangers:
            raise ConfigError(
                f"{self.path} holds what no run made ({', '.join(strangers[:5])}), so it is not overwritten; "
                "choose another folder"
            )

    @contextmanager
    def removed_if_failed(self, *, unless: bool = False) -> Iterator[None]:
        """Remove the folder if the block fails before anything is saved that could be resumed.

        Too few images or a full disk leave nothing then that blocks the corrected command.

        Args:
            unless: Keep it whatever happens.
        """
        try:
            yield
        except BaseException:
            if is_first_process() and not unless and not self.has_state:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove_leftovers(self) -> None:
        """Delete what killed processes left under temporary names: files that they were about to move into place."""
        for name in map(Path, (*FILES, "last.ckpt", "best.safetensors")):
            for path in list(self.path.rglob(f".{name.stem}.*{name.suffix}")):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def describe(self, settings: object, *, command: str, resume: bool = False) -> None:
        """Write the run's settings, command and environment.

        Args:
            settings: A dataclass.
            command: Command that started it.
            resume: A run that is there is resumed; then its settings must be the same.

        Raises:
            ConfigError: A resumed run had other settings.
        """
        if not is_first_process():
            return
        config = self.path / "config.yaml"
        if resume and config.is_file():
            self.check_same(settings)
            if self.is_finished:  # nothing will happen, so the record of what did stays
                return
        write_text(config, to_yaml(settings), overwrite=True)
        write_text(self.path / "command.txt", command + "\n", overwrite=True)
        write_text(self.path / "environment.json", json.dumps(describe_environment(), indent=2) + "\n", overwrite=True)

    def check_same(self, settings: object) -> None:
        """Refuse to resume with settings that change what is computed.

        Raises:
            ConfigError: The run had other settings.
        """
        config = self.path / "config.yaml"
        if not config.is_file():
            return
        before, now = read_yaml(config), to_dict(settings)
        free = {name for name, field in settings_fields(type(settings)).items() if field.may_change}
        changed = [name for name in sorted({*before, *now} - free) if before.get(name) != now.get(name)]
        if changed:
            listed = "; ".join(f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in changed)
            raise ConfigError(
                f"cannot resume {self.path} with other settings: {listed}. Give the same ones "
                f"(--config {config}), or start a new run (--out)"
            )

    def remember_images(self, images: Mapping[str, object]) -> None:
        """Write down which images the run sees; a resumed run must see the same.

        Args:
            images: What tells them from others.

        Raises:
            ConfigError: The run began with others.
        """
        if not is_first_process():
            return
        if self.images not in (None, images):
            raise ConfigError(
                f"the images of {self.path} have changed since it began: {_listed(self.images)} then, "
                f"{_listed(images)} now; give it the data it had, or start a new run (--out)"
            )
        write_text(self.path / "images.json", json.dumps(images, indent=2) + "\n", overwrite=True)

    @property
    def images(self) -> Mapping[str, object] | None:
        """Images that the run saw, if it wrote that down."""
        file = self.path / "images.json"
        if not file.is_file():
            return None
        advice = "start a new run (--out)"
        return decode_json(file.read_bytes(), dict[str, object], source=file, error=ConfigError, advice=advice)

    def save(self, model: Classifier, *, include_backbone: bool = True) -> None:
        """Write the finished model.

        Args:
            model: The model.
            include_backbone: Save the backbone's weights, too; see `Classifier.save`.
        """
        if is_first_process():
            model.save(self.model, include_backbone=include_backbone, overwrite=True)

    def require_space(self, needed: int) -> None:
        """Raise unless the disk has room for this many bytes.

        Raises:
            ConfigError: It has not.
        """
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise ConfigError(
                f"the run will need about {needed / 1e6:,.0f} MB in {self.path}, but only {free / 1e6:,.0f} MB are "
                "free; free some space or choose a folder on another disk (--out)"
            )

    def _try_to_write(self) -> None:
        """Write and delete a file of a size that a small checkpoint has."""
        probe = self.checkpoints / ".probe"
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            with probe.open("wb") as file:
                file.write(bytes(2**20))
            probe.unlink(missing_ok=True)  # another process of the run may have done it
        except OSError as error:
            raise ConfigError(
                f"cannot write to {self.path} ({error.strerror}); choose another folder, or free some space"
            ) from error


def is_first_process() -> bool:
    """Return whether this process is the one that writes and prints; alone, it is.

    Examples:
        >>> is_first_process()
        True
    """
    return not getattr(rank_zero_only, "rank", 0)


def describe_environment() -> dict[str, object]:
    """Return versions of Python and the libraries that shape the numbers, the machine and its GPUs.

    Examples:
        >>> describe_environment()["python"] == platform.python_version()
        True
    """
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _listed(images: Mapping[str, object] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (images or {}).items())
