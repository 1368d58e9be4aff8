"""A past run, read from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from manylabel.errors import ConfigError, DataError
from manylabel.recipes import RECIPES, TrainAndVal, open_sets
from manylabel.recipes.sets import describe_pictures, trained_sets
from manylabel.recipes.settings import RecipeSettings
from manylabel.training import RunFolder
from manylabel.training.config import build, read_yaml
from manylabel.training.metrics_file import reached, read_metrics

__all__ = ["Run"]


@dataclass(frozen=True)
class Run:
    """What a run's folder tells.

    Args:
        path: The folder.
        name: What to call the run.
        settings: Every setting as it was resolved.
        epochs: The numbers of each epoch: losses, mAP, seconds.
        environment: Versions and machine.
        command: How it was started.
        is_finished: Whether its model is there.

    Examples:
        >>> run = Run(Path("runs/a"), "a", {"head": "linear"}, ({"val_mAP": 0.5, "seconds": 2.0},), {}, "", True)
        >>> run.mean_average_precision, run.seconds
        (0.5, 2.0)
    """

    path: Path
    name: str
    settings: Mapping[str, Any]
    epochs: tuple[Mapping[str, float], ...]
    environment: Mapping[str, Any]
    command: str
    is_finished: bool

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read the folder of a run, finished or not.

        Args:
            path: The folder.

        Raises:
            ConfigError: It is not the folder of a run, or damaged.

        Examples:
            >>> Run.read("nowhere")
            Traceback (most recent call last):
            manylabel.errors.ConfigError: nowhere is not the folder of a run: it has no config.yaml; ...
        """
        folder = RunFolder(Path(path))
        config = folder.path / "config.yaml"
        if not config.is_file():
            raise ConfigError(
                f"{path} is not the folder of a run: it has no config.yaml; 'manylabel runs ls' shows where runs are"
            )
        settings = read_yaml(config)
        try:
            return cls(
                path=folder.path,
                name=folder.path.resolve().name,
                settings=settings,
                epochs=tuple(read_metrics(folder.metrics)),
                environment=_read_json(folder.path / "environment.json"),
                command=_read_text(folder.path / "command.txt").strip(),
                is_finished=folder.is_finished,
            )
        except ValueError as error:
            raise ConfigError(f"the run in {path} is damaged: {error}; mend or remove the file") from error

    @property
    def model(self) -> Path:
        """The folder of the finished model."""
        return RunFolder(self.path).model

    @property
    def recipe(self) -> str:
        """The recipe whose settings these are."""
        names = set(self.settings)
        fitting = [name for name, recipe in RECIPES.items() if {each.name for each in fields(recipe.settings)} == names]
        if len(fitting) == 1:
            return fitting[0]
        words = self.command.split()
        return next((word for word in words if word in RECIPES), fitting[0] if fitting else "unknown")

    @property
    def started(self) -> datetime:
        """When its settings were written, as it began or was resumed."""
        return datetime.fromtimestamp((self.path / "config.yaml").stat().st_mtime, tz=UTC)

    @property
    def mean_average_precision(self) -> float | None:
        """The mAP on the held-out pictures of the epoch whose weights the run keeps."""
        return reached(self.epochs, keep=self.settings.get("keep", "last"))

    @property
    def best_mean_average_precision(self) -> float | None:
        """The mAP of the best epoch, which was chosen on the pictures it is measured on, and so flatters."""
        return max((row["val_mAP"] for row in self.epochs if "val_mAP" in row), default=None)

    @property
    def seconds(self) -> float:
        """How long the epochs took."""
        return sum(row.get("seconds", 0.0) for row in self.epochs)

    @cached_property
    def sets(self) -> TrainAndVal:
        """The pictures it trained on and those it is judged by, with the labels it trained on, opened again.

        Raises:
            ManyLabelError: The data are not where they were, or have changed.
        """
        kind = RECIPES[self.recipe].settings if self.recipe in RECIPES else RecipeSettings
        names = {each.name for each in fields(kind)}
        settings = build(kind, {name: self.settings[name] for name in self.settings if name in names})
        sets = open_sets(settings)
        seen, now = RunFolder(self.path).pictures, describe_pictures(sets)
        if seen not in (None, now):
            raise DataError(
                f"{settings.data} has other pictures than {self.name} saw ({seen['train']} to train on and "
                f"{seen['val']} to judge by, now {now['train']} and {now['val']}), so what it never saw cannot be "
                f"told; judge it by pictures of their own: manylabel evaluate {self.model} --data SPEC"
            )
        return trained_sets(settings, sets)


def _read_json(path: Path) -> dict[str, Any]:
    found = json.loads(_read_text(path) or "{}")
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no names with values")
    return found


def _read_text(path: Path) -> str:
    """Return what a file says; nothing where a run ended before it was written."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""
