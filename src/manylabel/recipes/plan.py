"""What a run would cost and take, before it is started."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
from manylabel.settings import RecipeSettings, to_yaml
from manylabel.training.optimizers import make_optimizer

__all__ = ["Plan", "plan"]

NUM_TIMED = 8  # images; enough to tell minutes from hours


@dataclass(frozen=True)
class Plan:
    """Cost and duration of a run.

    Args:
        settings: Every setting, as resolved.
        on_features: Training works on cached features.
        num_train: Number of training images.
        num_val: Number of validation images.
        num_labels: Number of labels.
        cost: MACs for an image, parameters, and those of them that are trained.
        head_parameters: Number of the head's.
        feature_seconds: Estimated time of the images' pass through the frozen backbone; 0 where they are cached.
        epoch_seconds: Estimated time of an epoch.
        total_epochs: Epochs' worth of images that all models of the run see.
        advice: What may go wrong.
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
        """Return it in words."""
        lines = [
            to_yaml(self.settings),
            f"images      {self.num_train:,} for training, {self.num_val:,} for validation, {self.num_labels:,} labels",
            f"parameters  {self.cost.parameters:,}, of which the head has {self.head_parameters:,}; "
            f"{self.cost.trainable:,} are trained",
            f"cost        {self.cost.macs / 1e9:.2f} GMACs for an image",
            f"features    about {duration(self.feature_seconds)} through the frozen backbone, once",
            f"an epoch    about {duration(self.epoch_seconds)}",
            f"in all      about {duration(self.total_seconds)} for {self.total_epochs:.4g} epochs, measured on a few "
            "images on this machine's CPU as it is now; a GPU takes less",
            *(f"note        {sentence}" for sentence in self.advice),
        ]
        return "\n".join(line for line in lines if self.on_features or not line.startswith("features"))


def plan(setup: Setup[RecipeSettings]) -> Plan:
    """Find out what a run would cost and take, by doing a little of it.

    Args:
        setup: What would be trained, as `Recipe.setup` gives it.
    """
    settings, model, sets = setup.settings, setup.model, setup.sets
    images = _some_images(model, sets)
    feature_seconds, epoch_seconds = _estimate(setup, images)
    steps = -(-len(sets.train) // (settings.batch_size * settings.accumulate * settings.devices))
    return Plan(
        settings=settings,
        on_features=setup.on_features,
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
    """Return about how many seconds the features take, and an epoch."""
    settings, model, sets = setup.settings, setup.model, setup.sets
    decoding = _seconds(lambda: _some_images(model, sets)) / len(images) / max(num_workers(settings), 1)
    with torch.inference_mode():
        looking = decoding + _seconds(lambda: model.backbone(images)) / len(images)
        maps = model.backbone(images[:1])
    if setup.on_features:
        plans = plan_sets(model, sets, settings)
        pooled = pool(maps, plans.pooling)
        features = [stage.float().clone().expand(settings.batch_size, -1, -1, -1) for stage in pooled]
        step = _step_seconds(setup, model.head, features, settings.batch_size)
        return looking * plans.missing, step * len(sets.train) / settings.batch_size
    step = _step_seconds(setup, model, images, len(images))
    return 0.0, max(decoding, step / len(images)) * len(sets.train) + looking * len(sets.val)


def _some_images(model: Classifier, sets: TrainAndVal) -> Tensor:
    few = sets.train.subset(range(min(NUM_TIMED, len(sets.train))))
    found = next(iter(ImageLoader(few, transform=eval_transform(model.input_spec), on_bad="skip")), None)
    if found is None:
        raise DataError(f"none of the first {len(few)} images of {few.name} can be read; see: manylabel data check")
    return found.images


def _step_seconds(
    setup: Setup[RecipeSettings], trained: nn.Module, inputs: Tensor | list[Tensor], num_images: int
) -> float:
    """Time a step of the optimizer."""
    loss, optimizer = setup.loss, make_optimizer(trained, setup.settings)
    targets = torch.zeros(num_images, len(setup.model.labels))
    targets[:, 0] = 1

    def step() -> None:
        optimizer.zero_grad()
        loss(trained(inputs), targets).backward()
        optimizer.step()

    return _seconds(step)


def _seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """Return the time of some work: the median of a few runs, after a first that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
