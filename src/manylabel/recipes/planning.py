"""What a run would do, cost and take, before it does it."""

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
from manylabel.recipes.advice import advise
from manylabel.recipes.building import build_classifier, build_loss
from manylabel.recipes.loading import num_workers, plan_sets
from manylabel.recipes.sets import TrainAndVal, open_sets, trained_sets
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.config import to_yaml
from manylabel.training.optimizers import make_optimizer

__all__ = ["Plan", "plan"]

NUM_TIMED = 8  # pictures; enough to tell minutes from hours


@dataclass(frozen=True)
class Plan:
    """What a run would do, cost and take.

    Args:
        settings: Every setting, as resolved.
        num_train: Pictures to train on.
        num_val: Pictures to judge by.
        num_labels: Labels.
        cost: MACs for a picture, parameters, and those of them that are trained.
        head_parameters: The head's.
        feature_seconds: About how long the pictures take through the frozen backbone, once; 0 where cached already.
        epoch_seconds: About how long an epoch takes.
        total_epochs: How many epochs' worth of pictures all that is trained sees.
        advice: What may go wrong.
    """

    settings: RecipeSettings
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
        """About how long the run takes."""
        return self.feature_seconds + self.total_epochs * self.epoch_seconds

    def to_text(self) -> str:
        """Tell it in words."""
        lines = [
            to_yaml(self.settings),
            f"pictures    {self.num_train:,} to train on, {self.num_val:,} to judge by, {self.num_labels:,} labels",
            f"parameters  {self.cost.parameters:,}, of which the head has {self.head_parameters:,}; "
            f"{self.cost.trainable:,} are trained",
            f"cost        {self.cost.macs / 1e9:.2f} GMACs for a picture",
            f"features    about {duration(self.feature_seconds)} through the frozen backbone, once",
            f"an epoch    about {duration(self.epoch_seconds)}",
            f"in all      about {duration(self.total_seconds)} for {self.total_epochs:.4g} epochs, measured on a few "
            "pictures on this machine's CPU as it is now; a GPU takes less",
            *(f"note        {sentence}" for sentence in self.advice),
        ]
        return "\n".join(line for line in lines if self.settings.caches_features or not line.startswith("features"))


def plan(settings: RecipeSettings, *, sets: TrainAndVal | None = None) -> Plan:
    """Find out what a run would cost and take, by doing a little of it.

    Args:
        settings: Those of a recipe.
        sets: The pictures, instead of those that the settings name.
    """
    sets = trained_sets(settings, sets or open_sets(settings))
    model = build_classifier(settings, sets, frozen=not settings.trains_backbone)
    images = _some_images(model, sets)
    feature_seconds, epoch_seconds = _estimate(settings, model, sets, images)
    return Plan(
        settings=settings,
        num_train=len(sets.train),
        num_val=len(sets.val),
        num_labels=len(sets.train.labels),
        cost=count_cost(model, images[:1]),
        head_parameters=count_parameters(model.head),
        feature_seconds=feature_seconds,
        epoch_seconds=epoch_seconds,
        total_epochs=settings.total_epochs(sets.train),
        advice=tuple(advise(model.head, sets)),
    )


def _estimate(settings: RecipeSettings, model: Classifier, sets: TrainAndVal, images: Tensor) -> tuple[float, float]:
    """Return about how many seconds the features take, and an epoch."""
    decoding = _seconds(lambda: _some_images(model, sets)) / len(images) / max(num_workers(settings), 1)
    with torch.inference_mode():
        looking = decoding + _seconds(lambda: model.backbone(images)) / len(images)
        maps = model.backbone(images[:1])
    if settings.caches_features:
        plans = plan_sets(model, sets, settings)
        pooled = pool(maps, plans.pooling)
        features = [stage.float().clone().expand(settings.batch_size, -1, -1, -1) for stage in pooled]
        step = _step_seconds(settings, model, model.head, features, settings.batch_size)
        return looking * plans.missing, step * len(sets.train) / settings.batch_size
    step = _step_seconds(settings, model, model, images, len(images))
    return 0.0, max(decoding, step / len(images)) * len(sets.train) + looking * len(sets.val)


def _some_images(model: Classifier, sets: TrainAndVal) -> Tensor:
    few = sets.train.subset(range(min(NUM_TIMED, len(sets.train))))
    found = next(iter(ImageLoader(few, transform=eval_transform(model.input_spec), on_bad="skip")), None)
    if found is None:
        raise DataError(f"none of the first {len(few)} pictures of {few.name} can be read; see: manylabel data check")
    return found.images


def _step_seconds(
    settings: RecipeSettings, model: Classifier, trained: nn.Module, inputs: Tensor | list[Tensor], num_pictures: int
) -> float:
    """Time a step of the optimizer."""
    loss = build_loss(settings, single_label=model.single_label)
    optimizer = make_optimizer(trained, settings)
    targets = torch.zeros(num_pictures, len(model.labels))
    targets[:, 0] = 1

    def step() -> None:
        optimizer.zero_grad()
        loss(trained(inputs), targets).backward()
        optimizer.step()

    return _seconds(step)


def _seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """Return how long something takes: the median of a few times, after a first that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
