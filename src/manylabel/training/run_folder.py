"""Run folder: settings, environment, metrics, checkpoints and model.

run/
├── config.yaml        resolved settings; ``--config run/config.yaml`` repeats the run
├── command.txt        command that started the run
├── environment.json   package versions and hardware
├── images.json        number of training and validation images, fingerprint of their names
├── metrics.csv        losses and mAP per epoch
├── validation.json    validation mAP with its confidence interval
├── scores.npz         scores of the validation images, cached by `manylabel report`
├── checkpoints/       last checkpoint, and the best weights with ``--keep best``
└── model/             trained model, for `Classifier.from_pretrained`

Recipes may add files.
"""

import json
import os
import platform
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_only

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.schema import read_yaml, settings_fields, to_dict, to_yaml
from manylabel.storage import decode_json, write_text

FILES = frozenset({"config.yaml", "command.txt", "environment.json", "images.json", "metrics.csv", "validation.json"})
FILES |= {"scores.npz", "checkpoints", "model", "mlflow.db", "tensorboard", "wandb"}
PACKAGES = ("manylabel", "torch", "torchvision", "timm", "lightning", "torchmetrics", "numpy", "pillow", "onnxruntime")


@dataclass(frozen=True)
class RunFolder:
    """Folder of a run.

    Args:
        path: Path of the folder.

    Examples:
        >>> RunFolder(Path("runs/first")).model.as_posix()
        'runs/first/model'
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """Folder of the trained model."""
        return self.path / "model"

    @property
    def metrics(self) -> Path:
        """Table of metrics per epoch."""
        return self.path / "metrics.csv"

    @property
    def is_finished(self) -> bool:
        """True once the model is saved, the last step of a run."""
        return (self.model / "config.json").is_file()

    @property
    def has_state(self) -> bool:
        """True if the run or one of its teachers has a checkpoint, a model or an error report."""
        saved = ("checkpoints/last.ckpt", "model/config.json", "error.txt")
        return any(next(self.path.rglob(pattern), None) for pattern in saved)

    @classmethod
    def open(
        cls, path: str | Path, *, resume: bool = False, overwrite: bool = False, files: Collection[str] = ()
    ) -> "RunFolder":
        """Create the folder of a new run, or open that of a run to resume; check that it is writable.

        Args:
            path: Path of the folder.
            resume: Resume the run in the folder, if it exists.
            overwrite: Delete an existing run in the folder.
            files: Files of the recipe besides those of every run.

        Raises:
            OutputExistsError: The folder is not empty and neither `resume` nor `overwrite` is set.
            ConfigError: The folder is not writable, or `overwrite` would delete files of others.
        """
        folder = cls(Path(path))
        folder.check(resume=resume, overwrite=overwrite, files=files)
        if is_first_process():  # acts for all processes
            if overwrite and not resume:
                shutil.rmtree(folder.path, ignore_errors=True)
            if resume:
                folder.remove_leftovers()
            folder._try_to_write()
        return folder

    def check(self, *, resume: bool = False, overwrite: bool = False, files: Collection[str] = ()) -> None:
        """Raise the errors of `open` without writing or deleting anything; same arguments."""
        if not is_first_process():
            return
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"{self.path} is a file; choose another folder for the run (--out)")
        if resume or not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if not overwrite:
            raise OutputExistsError(
                f"{self.path} already exists; resume that run (--resume), replace it (--overwrite), "
                "or choose another folder (--out)"
            )
        foreign = sorted(each.name for each in self.path.iterdir() if each.name not in {*FILES, *files})
        if foreign:
            raise ConfigError(
                f"{self.path} has files that do not belong to a run ({', '.join(foreign[:5])}) and is not overwritten; "
                "choose another folder (--out)"
            )

    @contextmanager
    def removed_if_failed(self, *, unless: bool = False) -> Iterator[None]:
        """Remove the folder if the block fails before a checkpoint is saved.

        A failed start, such as too few images, must not block the corrected command.

        Args:
            unless: Never remove it.
        """
        try:
            yield
        except BaseException:
            if is_first_process() and not unless and not self.has_state:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove_leftovers(self) -> None:
        """Delete temporary files of killed processes."""
        for name in map(Path, (*FILES, "last.ckpt", "best.safetensors")):
            for path in list(self.path.rglob(f".{name.stem}.*{name.suffix}")):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def describe(self, settings: object, *, command: str, resume: bool = False) -> None:
        """Write settings, command and environment.

        Args:
            settings: Dataclass of settings.
            command: Command that started the run.
            resume: Resume an existing run, whose settings must be the same.

        Raises:
            ConfigError: The settings of the resumed run differ.
        """
        if resume:
            self.check_same(settings)
        if not is_first_process() or (resume and self.is_finished):  # nothing will be trained
            return
        write_text(self.path / "config.yaml", to_yaml(settings), overwrite=True)
        write_text(self.path / "command.txt", command + "\n", overwrite=True)
        write_text(self.path / "environment.json", json.dumps(describe_environment(), indent=2) + "\n", overwrite=True)

    def check_same(self, settings: object) -> None:
        """Refuse to resume with settings that change the result.

        Raises:
            ConfigError: The settings of the run differ.
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
                f"cannot resume {self.path} with other settings: {listed}. Use the same settings "
                f"(--config {config}), or start a new run (--out)"
            )

    def record_images(self, images: Mapping[str, object]) -> None:
        """Record the images of the run; a resumed run must have the same ones.

        Args:
            images: Sizes and fingerprint of the datasets.

        Raises:
            ConfigError: The run started with other images.
        """
        if not is_first_process():
            return
        if self.images not in (None, images):
            raise ConfigError(
                f"the images of {self.path} have changed since it started: {_listed(self.images)} then, "
                f"{_listed(images)} now; use the original dataset, or start a new run (--out)"
            )
        write_text(self.path / "images.json", json.dumps(images, indent=2) + "\n", overwrite=True)

    @property
    def images(self) -> Mapping[str, object] | None:
        """Sizes and fingerprint of the datasets, if recorded."""
        file, advice = self.path / "images.json", "start a new run (--out)"
        if not file.is_file():
            return None
        return decode_json(file.read_bytes(), dict[str, object], source=file, error=ConfigError, advice=advice)

    def save(self, model: Classifier, *, include_backbone: bool = True) -> None:
        """Save the trained model.

        Args:
            model: Trained model.
            include_backbone: Save the weights of the backbone, too; see `Classifier.save_pretrained`.
        """
        if is_first_process():
            model.save_pretrained(self.model, include_backbone=include_backbone, overwrite=True)

    def require_space(self, needed: int) -> None:
        """Check the free disk space.

        Args:
            needed: Required bytes.

        Raises:
            ConfigError: There is too little space.
        """
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise ConfigError(
                f"the run needs about {needed / 1e6:,.0f} MB in {self.path}, but only {free / 1e6:,.0f} MB are "
                "free; free some space or choose a folder on another disk (--out)"
            )

    def _try_to_write(self) -> None:
        """Write and delete a file as large as a small checkpoint."""
        probe = self.checkpoints / ".probe"
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(bytes(2**20))
            probe.unlink(missing_ok=True)  # another process may have deleted it
        except OSError as error:
            raise ConfigError(
                f"cannot write to {self.path} ({error.strerror}); choose another folder, or free some space"
            ) from error


def is_first_process() -> bool:
    """Return True in the process that writes and prints (rank 0).

    Examples:
        >>> is_first_process()
        True
    """
    return not getattr(rank_zero_only, "rank", 0)


def describe_environment() -> dict[str, object]:
    """Return the versions of Python and of the libraries that affect results, the platform and its GPUs.

    Examples:
        >>> describe_environment()["python"] == platform.python_version()
        True
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "packages": {name: each.version for name in PACKAGES for each in distributions(name=name)},
    }


def _listed(images: Mapping[str, object] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (images or {}).items())
