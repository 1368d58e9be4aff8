"""Cost and duration of a run, estimated before it starts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.cost import Cost, count_cost, count_parameters
from manylabel.data import ImageLoader, eval_transform
from manylabel.errors import DataError
from manylabel.features import pool
from manylabel.progress import duration
from manylabel.recipes.loaders import num_workers, plan_sets
from manylabel.recipes.recipe import Setup
from manylabel.recipes.reporter import advise
from manylabel.recipes.sets import TrainAndVal
from manylabel.schema import to_yaml
from manylabel.settings import RecipeSettings
from manylabel.training.optimizers import make_optimizer

__all__ = ["Plan", "plan"]

NUM_TIMED = 8  # images; enough to distinguish minutes from hours


@dataclass(frozen=True)
class Plan:
    """Estimated cost and duration of a run.

    Args:
        settings: Resolved settings.
        on_features: Train on cached features.
        num_train: Number of training images.
        num_val: Number of validation images.
        num_labels: Number of labels.
        cost: MACs per image, parameters and trained parameters.
        head_parameters: Number of parameters of the head.
        feature_seconds: Estimated time of feature extraction; 0 if all features are cached.
        epoch_seconds: Estimated time per epoch.
        total_epochs: Total epochs of all models of the run.
        advice: Warnings about the data and the head.
    """

    settings: RecipeSettings
    on_features: bool
    num_train: int
    num_val: int
    num_labels: int
    cost: Cost
    head_parameters: int
    feature_seconds: float
    epoch_seconds: float
    total_epochs: float
    advice: tuple[str, ...]

    @property
    def total_seconds(self) -> float:
        """Estimated time of the run."""
        return self.feature_seconds + self.total_epochs * self.epoch_seconds

    def to_text(self) -> str:
        """Return a printable description."""
        lines = [
            to_yaml(self.settings),
            f"images      {self.num_train:,} for training, {self.num_val:,} for validation, {self.num_labels:,} labels",
            f"parameters  {self.cost.parameters:,}, {self.head_parameters:,} of them in the head; "
            f"{self.cost.trainable:,} trained",
            f"cost        {self.cost.macs / 1e9:.2f} GMACs per image",
            f"features    about {duration(self.feature_seconds)} of feature extraction, once",
            f"epoch       about {duration(self.epoch_seconds)}",
            f"total       about {duration(self.total_seconds)} for {self.total_epochs:.4g} epochs, extrapolated from "
            "a few images on this machine's CPU; a GPU is faster",
            *(f"note        {sentence}" for sentence in self.advice),
        ]
        return "\n".join(line for line in lines if self.on_features or not line.startswith("features"))


def plan(setup: Setup[RecipeSettings]) -> Plan:
    """Estimate cost and duration of a run by timing a few images.

    Args:
        setup: Setup of the run, from `Recipe.setup`.
    """
    settings, model, sets = setup.settings, setup.model, setup.sets
    images = _some_images(model, sets)
    feature_seconds, epoch_seconds = _estimate(setup, images)
    steps = -(-len(sets.train) // (settings.batch_size * settings.accumulate * settings.devices))
    return Plan(
        settings=settings,
        on_features=setup.cached is not None,
        num_train=len(sets.train),
        num_val=len(sets.val),
        num_labels=len(sets.train.labels),
        cost=count_cost(model, images[:1]),
        head_parameters=count_parameters(model.head),
        feature_seconds=feature_seconds,
        epoch_seconds=epoch_seconds,
        total_epochs=setup.total_epochs or settings.num_epochs(steps),
        advice=tuple(advise(model.head, sets)),
    )


def _estimate(setup: Setup[RecipeSettings], images: Tensor) -> tuple[float, float]:
    """Return the estimated seconds of feature extraction and of an epoch."""
    settings, model, sets = setup.settings, setup.model, setup.sets
    decoding = _seconds(lambda: _some_images(model, sets)) / len(images) / max(num_workers(settings), 1)
    frozen = setup.cached or model.backbone
    with torch.inference_mode():
        inference = decoding + _seconds(lambda: frozen(images)) / len(images)
        maps = frozen(images[:1])
    if setup.cached is not None:
        plans = plan_sets(model, sets, settings, bottom=setup.cached, transform=setup.parts.transform)
        pooled = pool(maps, plans.pooling)
        features = [stage.float().clone().expand(settings.batch_size, -1, -1, -1) for stage in pooled]
        step = _step_seconds(setup, features, settings.batch_size)
        return inference * plans.missing, step * len(sets.train) / settings.batch_size
    step = _step_seconds(setup, images, len(images))
    return 0.0, max(decoding, step / len(images)) * len(sets.train) + inference * len(sets.val)


def _some_images(model: Classifier, sets: TrainAndVal) -> Tensor:
    few = sets.train.subset(range(min(NUM_TIMED, len(sets.train))))
    found = next(iter(ImageLoader(few, transform=eval_transform(model.input_spec), max_bad_fraction=1)), None)
    if found is None:
        raise DataError(
            f"none of the first {len(few)} images of {few.name} can be read; run: manylabel data check DATA"
        )
    return found.images


def _step_seconds(setup: Setup[RecipeSettings], inputs: Tensor | list[Tensor], num_images: int) -> float:
    """Time an optimizer step."""
    trained, loss = setup.trained, setup.loss
    optimizer = make_optimizer(trained, setup.settings)
    targets = torch.zeros(num_images, len(setup.model.labels))
    targets[:, 0] = 1

    def step() -> None:
        optimizer.zero_grad()
        loss(trained(inputs), targets).backward()
        optimizer.step()

    return _seconds(step)


def _seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """Return the median time of a few calls, after a warm-up call."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
