"""The folder of a run: its settings, surroundings, numbers, state and model.

run/
├── config.yaml        every setting as resolved; ``--config run/config.yaml`` repeats the run
├── command.txt        the command that made it
├── environment.json   versions and machine
├── pictures.json      how many pictures to train on and to judge by, and a fingerprint of their names
├── metrics.csv        losses and mAP of each epoch
├── zero_shot.json     results on unseen labels, of the recipe zero_shot
├── scores.npz         what the model says of the held-out pictures, once a report was made
├── checkpoints/       the state to resume from, and the best weights where asked for
└── model/             the finished model, for `Classifier.load`
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.storage import write_text
from manylabel.training.config import read_yaml, to_dict, to_yaml
from manylabel.training.environment import describe_environment
from manylabel.training.processes import is_first_process

__all__ = ["RunFolder"]

PARTS = frozenset(
    {"config.yaml", "command.txt", "environment.json", "pictures.json", "metrics.csv", "checkpoints", "model"}
)
PARTS |= {
    "partitions.json",
    "label-graph.png",
    "teachers",
    "teacher-logits",
    "baseline",
    "summary.json",
    "summary.md",
    "scores.npz",
    "zero_shot.json",
    "tensorboard",
    "wandb",
}


FREE = frozenset({"out", "workers", "checkpoint_minutes", "logger"})  # may change on resuming
FREE |= {"executor", "processes", "ray_address", "teacher_gpus", "retries"}


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
        """Whether the model was saved, which is the last thing a run does."""
        return (self.model / "config.json").is_file()

    @classmethod
    def open(cls, path: str | Path, *, resume: bool = False, overwrite: bool = False) -> RunFolder:
        """Make the folder of a new run, or find that of one to resume; find out now whether it can be written to.

        Args:
            path: Where.
            resume: Whether to go on with a run that is there, if one is.
            overwrite: Whether to throw away a run that is there.

        Raises:
            OutputExistsError: Something is there and neither `resume` nor `overwrite` is asked for.
            ConfigError: The folder cannot be written to, or `overwrite` would delete what is no run.
        """
        folder = cls(Path(path))
        if not is_first_process():  # the first one has done it
            return folder
        if folder.path.exists() and not folder.path.is_dir():
            raise OutputExistsError(f"{path} is a file; choose another name for the run's folder")
        if folder.path.is_dir() and any(folder.path.iterdir()) and not resume:
            if not overwrite:
                raise OutputExistsError(
                    f"{path} exists already; go on with that run (--resume), replace it (--overwrite), "
                    "or choose another name (--out)"
                )
            folder._clear()
        folder._try_to_write()
        return folder

    def describe(self, settings: object, *, command: str, resume: bool = False) -> None:
        """Write what the run is: its settings, command and environment.

        Args:
            settings: A dataclass.
            command: How it was started.
            resume: Whether a run that is there goes on; then its settings must be the same.

        Raises:
            ConfigError: A resumed run had other settings.
        """
        if not is_first_process():
            return
        config = self.path / "config.yaml"
        if resume and config.is_file():
            self._check_same(read_yaml(config), to_dict(settings))
            if self.is_finished:  # nothing will happen, so the record of what did stays
                return
        write_text(config, to_yaml(settings), overwrite=True)
        write_text(self.path / "command.txt", command + "\n", overwrite=True)
        write_text(self.path / "environment.json", json.dumps(describe_environment(), indent=2) + "\n", overwrite=True)

    def remember_pictures(self, pictures: Mapping[str, object]) -> None:
        """Write down which pictures the run sees; a run that goes on must see the same.

        Args:
            pictures: What tells them from others.

        Raises:
            ConfigError: The run began with others.
        """
        if not is_first_process():
            return
        if self.pictures not in (None, pictures):
            raise ConfigError(
                f"the pictures of {self.path} have changed since it began: {_told(self.pictures)} then, "
                f"{_told(pictures)} now; give it the data it had, or start a new run (--out)"
            )
        write_text(self.path / "pictures.json", json.dumps(pictures, indent=2) + "\n", overwrite=True)

    @property
    def pictures(self) -> Mapping[str, object] | None:
        """Which pictures the run saw, if it wrote that down."""
        file = self.path / "pictures.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None

    def save(self, model: Classifier, *, include_backbone: bool = True) -> None:
        """Write the finished model.

        Args:
            model: The model.
            include_backbone: Whether the backbone's weights go in too; see `Classifier.save`.
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

    def _check_same(self, before: Mapping[str, object], now: Mapping[str, object]) -> None:
        """Refuse to resume with settings that change what is computed."""
        changed = [name for name in sorted({*before, *now} - FREE) if before.get(name) != now.get(name)]
        if changed:
            listed = "; ".join(f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in changed)
            raise ConfigError(
                f"cannot resume {self.path} with other settings: {listed}. Give the same ones "
                f"(--config {self.path / 'config.yaml'}), or start a new run (--out)"
            )

    def _clear(self) -> None:
        """Delete the parts of a run, and nothing else."""
        strangers = sorted(part.name for part in self.path.iterdir() if part.name not in PARTS)
        if strangers:
            raise ConfigError(
                f"{self.path} holds what no run made ({', '.join(strangers[:5])}), so it is not overwritten; "
                "choose another folder"
            )
        shutil.rmtree(self.path)

    def _try_to_write(self) -> None:
        """Write and delete a file of a size that a small checkpoint has."""
        probe = self.checkpoints / ".probe"
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            with probe.open("wb") as file:
                file.write(bytes(2**20))
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"cannot write to {self.path} ({error.strerror}); choose another folder, or free some space"
            ) from error


def _told(pictures: Mapping[str, object] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (pictures or {}).items())
