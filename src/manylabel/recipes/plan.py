"""Cost and duration of a run, estimated before it starts."""

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from manylabel.cost import Cost, count_cost, count_parameters
from manylabel.data import ImageLoader, eval_transform
from manylabel.errors import DataError
from manylabel.features import pool
from manylabel.page import plural
from manylabel.progress import duration
from manylabel.recipes.loaders import num_workers, plan_sets
from manylabel.recipes.reporter import advise
from manylabel.recipes.setup import Setup
from manylabel.schema import to_yaml
from manylabel.settings import RecipeSettings
from manylabel.training.optimizers import make_optimizer

NUM_TIMED = 8  # images; enough to distinguish minutes from hours


@dataclass(frozen=True)
class Plan:
    """Estimated cost and duration of a run.

    Args:
        setup: Setup of the run.
        cost: MACs per image, parameters and trained parameters.
        feature_seconds: Estimated time of feature extraction; 0 if all features are cached.
        epoch_seconds: Estimated time per epoch.
    """

    setup: Setup[RecipeSettings]
    cost: Cost
    feature_seconds: float
    epoch_seconds: float

    @property
    def total_epochs(self) -> float:
        """Epochs of all models of the run."""
        settings, num_images = self.setup.settings, len(self.setup.sets.train)
        steps = -(-num_images // (settings.batch_size * settings.accumulate * settings.devices))
        return self.setup.total_epochs or settings.num_epochs(steps, num_labels=len(self.setup.sets.train.labels))

    @property
    def total_seconds(self) -> float:
        """Estimated time of the run."""
        return self.feature_seconds + self.total_epochs * self.epoch_seconds

    def to_text(self) -> str:
        """Return a printable description."""
        cost, sets = self.cost, self.setup.sets
        in_head = count_parameters(self.setup.model.head)
        num_train, num_val, num_labels = len(sets.train), len(sets.val), len(sets.train.labels)
        features = f"features    about {duration(self.feature_seconds)} of feature extraction, once"
        lines = [
            to_yaml(self.setup.settings),
            f"images      {num_train:,} for training, {num_val:,} for validation, {plural(num_labels, 'label')}",
            f"parameters  {cost.parameters:,}, {in_head:,} of them in the head; {cost.trainable:,} trained",
            f"cost        {cost.macs / 1e9:.2f} GMACs per image",
            *([] if self.setup.cached is None else [features]),
            f"epoch       about {duration(self.epoch_seconds)}",
            f"total       about {duration(self.total_seconds)} for {self.total_epochs:.4g} epochs, extrapolated from "
            "a few images on this machine's CPU; a GPU is faster",
            *(f"note        {sentence}" for sentence in advise(sets)),
        ]
        return "\n".join(lines)


def plan(setup: Setup[RecipeSettings]) -> Plan:
    """Estimate cost and duration of a run by timing a few images.

    Args:
        setup: Setup of the run, from `Recipe.setup`.
    """
    images = _some_images(setup)
    return Plan(setup, count_cost(setup.model, images[:1]), *_estimate(setup, images))


def _estimate(setup: Setup[RecipeSettings], images: Tensor) -> tuple[float, float]:
    """Return the estimated seconds of feature extraction and of an epoch."""
    size, num_train = setup.settings.batch_size, len(setup.sets.train)
    decoding = _seconds(lambda: _some_images(setup)) / len(images) / max(num_workers(setup.settings), 1)
    frozen = setup.cached or setup.model.backbone
    with torch.inference_mode():
        inference = decoding + _seconds(lambda: frozen(images)) / len(images)
        maps = frozen(images[:1])
    if setup.cached is None:
        step = _step_seconds(setup, images, len(images)) / len(images)
        return 0.0, max(decoding, step) * num_train + inference * len(setup.sets.val)
    _, plans = plan_sets(setup)
    pooled = pool(maps, plans[0].specs[0].pooling)
    features = [stage.float().clone().expand(size, -1, -1, -1) for stage in pooled]
    missing = sum(plan.missing for plan in plans)
    return inference * missing, _step_seconds(setup, features, size) * num_train / size


def _some_images(setup: Setup[RecipeSettings]) -> Tensor:
    train, plain = setup.sets.train, eval_transform(setup.model.input_spec)
    few = train.subset(range(min(NUM_TIMED, len(train))))
    found = next(iter(ImageLoader(few, transform=plain, max_bad_fraction=1)), None)
    if found is None:
        raise DataError(
            f"none of the first {len(few)} images of {few.name} can be read; run: manylabel data check DATA"
        )
    return found.images


def _step_seconds(setup: Setup[RecipeSettings], inputs: Tensor | list[Tensor], num_images: int) -> float:
    """Time an optimizer step."""
    trained, loss = setup.trained, copy.deepcopy(setup.loss).eval()
    optimizer = make_optimizer(trained, setup.settings)
    targets = torch.zeros(num_images, len(setup.model.labels))
    targets[:, 0] = 1

    def step() -> None:
        optimizer.zero_grad()
        losses = [loss(logits, targets) for logits in trained(inputs).split(num_images)]
        torch.autograd.backward(losses)
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
