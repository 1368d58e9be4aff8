"""Past runs: reading and finding their folders, comparing their settings, evaluating their models."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch

from manylabel.builtin import MODEL_FILES
from manylabel.classifier import Classifier
from manylabel.cost import Cost, count_cost
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError, DataError, ManyLabelError
from manylabel.evaluation import Evaluation, ScoredImages, evaluate, read_scores, save_scores, score
from manylabel.evaluation.scores import Progress
from manylabel.inference import open_engine
from manylabel.recipes import TrainAndVal, open_sets
from manylabel.recipes.setup import describe_images
from manylabel.recipes.zero_shot import seen_sets
from manylabel.schema import build, read_yaml
from manylabel.settings import RECIPE_SETTINGS, RecipeSettings, ZeroShot
from manylabel.training import RunFolder, reached, read_metrics

logger = logging.getLogger(__name__)

_INSIDE = frozenset({"checkpoints", "model", "teachers", "tensorboard"})  # teachers cover only some of the labels


@dataclass(frozen=True)
class Run:
    """A run, as described by its folder.

    Args:
        path: The folder.
        name: Name of the run.
        settings: Resolved settings.
        epochs: Metrics of each epoch: losses, mAP, seconds.
        environment: Versions and machine.
        command: Command that started the run.
        is_finished: Whether the run has a model.

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
    def read(cls, path: str | Path) -> "Run":
        """Read the folder of a run, finished or not.

        Args:
            path: The folder.

        Raises:
            ConfigError: The folder is not a run, or damaged.

        Examples:
            >>> Run.read("nowhere")
            Traceback (most recent call last):
            manylabel.errors.ConfigError: nowhere is not a run folder: it has no config.yaml; ...
        """
        folder = RunFolder(Path(path))
        config = folder.path / "config.yaml"
        if not config.is_file():
            raise ConfigError(f"{path} is not a run folder: it has no config.yaml; find runs with: manylabel runs list")
        settings = read_yaml(config)
        try:
            return cls(
                path=folder.path,
                name=folder.path.resolve().name,
                settings=settings,
                epochs=tuple(read_metrics(folder.metrics)),
                environment=_read_environment(folder.path / "environment.json"),
                command=_read_text(folder.path / "command.txt").strip(),
                is_finished=folder.is_finished,
            )
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise ConfigError(f"the run in {path} is damaged: {error}; fix or remove the file") from error

    @property
    def model(self) -> Path:
        """The folder of the finished model."""
        return RunFolder(self.path).model

    @property
    def recipe(self) -> str:
        """The recipe whose settings these are."""
        names = set(self.settings)
        fitting = [name for name, kind in RECIPE_SETTINGS.items() if {each.name for each in fields(kind)} == names]
        if len(fitting) == 1:
            return fitting[0]
        words = self.command.split()
        return next((word for word in words if word in RECIPE_SETTINGS), fitting[0] if fitting else "unknown")

    @property
    def started(self) -> datetime:
        """Time at which the run was started or resumed."""
        return datetime.fromtimestamp((self.path / "config.yaml").stat().st_mtime, tz=UTC)

    @property
    def mean_average_precision(self) -> float | None:
        """Validation mAP of the epoch whose weights were saved."""
        return reached(self.epochs, keep=self.settings.get("keep", "last"))

    @property
    def best_mean_average_precision(self) -> float | None:
        """Validation mAP of the best epoch; optimistic, since the epoch was selected on the same images."""
        return reached(self.epochs, keep="best")

    @property
    def seconds(self) -> float:
        """Total time of all epochs."""
        return sum(row.get("seconds", 0.0) for row in self.epochs)

    @cached_property
    def sets(self) -> TrainAndVal:
        """Training and validation set of the run, reopened, with the labels it was trained on.

        Raises:
            ManyLabelError: The data were moved or have changed.
        """
        kind = RECIPE_SETTINGS.get(self.recipe, RecipeSettings)
        names = {each.name for each in fields(kind)}
        settings = build(kind, {name: self.settings[name] for name in self.settings if name in names})
        sets = open_sets(settings)
        seen, now = RunFolder(self.path).images, describe_images(sets)
        if seen not in (None, now):
            raise DataError(
                f"{settings.data} has other images than {self.name} saw ({seen['train']} for training and "
                f"{seen['val']} for validation, now {now['train']} and {now['val']}), so its validation set is "
                f"unknown; evaluate it on other images: manylabel evaluate DATA --model {self.model}"
            )
        return seen_sets(settings, sets) if isinstance(settings, ZeroShot) else sets


def find_runs(folder: str | Path) -> list[Run]:
    """Find all runs below a folder, newest first; damaged ones are logged and skipped.

    Args:
        folder: The folder.

    Examples:
        >>> import tempfile
        >>> find_runs(tempfile.mkdtemp())
        []
    """
    found = []
    for parent, below, files in os.walk(folder):
        if "config.yaml" in files and "environment.json" in files:
            try:
                found.append(Run.read(parent))
            except ConfigError as error:
                logger.warning("%s", error)
            below[:] = [name for name in below if name not in _INSIDE]
    return sorted(found, key=lambda run: run.started, reverse=True)


def differences(runs: Sequence[Run], *, everything: bool = False) -> dict[str, list[Any]]:
    """Return the settings in which runs differ.

    Args:
        runs: The runs.
        everything: Whether to include settings that are the same.

    Returns:
        Values of each setting, one per run; None where a run lacks it. The output folder, which always differs, is
        omitted.

    Examples:
        >>> runs = [Run(Path(head), head, {"head": head, "seed": 0}, (), {}, "", True) for head in ("linear", "csra")]
        >>> differences(runs)
        {'head': ['linear', 'csra']}
    """
    names = dict.fromkeys(name for run in runs for name in run.settings if name != "out")
    rows = {name: [run.settings.get(name) for run in runs] for name in names}
    return {name: values for name, values in rows.items() if everything or any(value != values[0] for value in values)}


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run with its model and evaluation.

    Args:
        run: The run.
        model: Its model.
        train: The training set.
        val: The validation set.
        scored: Scores and targets of the validation set.
        evaluation: Evaluation of these scores.
        cost: MACs per image, and parameters.
    """

    run: Run
    model: Classifier
    train: ImageDataset
    val: ImageDataset
    scored: ScoredImages
    evaluation: Evaluation
    cost: Cost


def evaluate_run(
    run: Run,
    *,
    draws: int = 1000,
    batch_size: int = 32,
    num_workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> EvaluatedRun:
    """Evaluate the model of a finished run on its validation set.

    Args:
        run: The run.
        draws: Number of bootstrap draws for the intervals; 0 for none.
        batch_size: Images per batch.
        num_workers: Worker processes that decode images (default: half of the cores).
        device: Torch device; ``"auto"`` is a GPU if available.
        progress: Called after each batch with the number of images done and the total.

    Raises:
        ConfigError: The run is not finished.
        ManyLabelError: Its data cannot be opened, or its model cannot be read.
    """
    if not run.is_finished:
        raise ConfigError(f"the run {run.name} is not finished and has no model; resume it with --resume")
    model = Classifier.from_pretrained(run.model)
    val = run.sets.val
    scored = _saved_scores(run, val)
    if scored is None:
        engine = open_engine(run.model, device=device, num_images=len(val))
        scored = score(engine, val, batch_size=batch_size, num_workers=num_workers, progress=progress)
        _save_scores(scored, run)
    scored = replace(scored, model=run.name, single_label=model.single_label)
    image = torch.zeros(1, 3, *model.input_spec.size)
    return EvaluatedRun(
        run=run,
        model=model,
        train=run.sets.train,
        val=val,
        scored=scored,
        evaluation=evaluate(scored, draws=draws),
        cost=count_cost(model, image),
    )


def _saved_scores(run: Run, dataset: ImageDataset) -> ScoredImages | None:
    """Return cached scores, unless the model or the images have changed."""
    saved = run.path / "scores.npz"
    changed = max((run.model / name).stat().st_mtime for name in MODEL_FILES)  # tune changes only the config
    if not saved.is_file() or saved.stat().st_mtime < changed:
        return None
    try:
        return read_scores(saved, dataset, name=run.name)
    except ManyLabelError:
        return None


def _save_scores(scored: ScoredImages, run: Run) -> None:
    try:
        save_scores(scored, run.path / "scores.npz", overwrite=True)
    except OSError as error:
        logger.warning("cannot cache scores in %s (%s); the next report will recompute them", run.path, error)


def _read_environment(path: Path) -> dict[str, Any]:
    found = msgspec.json.decode(_read_text(path) or "{}", type=dict[str, Any])
    msgspec.convert(found.get("packages", {}), dict[str, str | None])
    return found


def _read_text(path: Path) -> str:
    """Return the text of a file; empty if the run ended before writing it."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""
