"""Loaders of a recipe: images, or cached features of a frozen backbone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from PIL import Image
from torch import Tensor

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.data import ImageLoader, eval_transform, train_transform
from manylabel.errors import ConfigError
from manylabel.features import CachedFeatures, FeatureCache, FeatureLoader, FeaturePlan
from manylabel.heads.traits import PooledInput, pooled_input
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import LoopSettings, RecipeSettings
from manylabel.system import default_workers, find_device
from manylabel.training.fit import Loaders
from manylabel.training.loaders import Share, shared_sampler

__all__ = [
    "CachedSets",
    "SetsPlan",
    "cache_sets",
    "feature_loaders",
    "image_loaders",
    "num_workers",
    "plan_sets",
]

Transform: TypeAlias = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class CachedSets:
    """Cached features of the training and validation set."""

    train: CachedFeatures
    val: CachedFeatures


@dataclass(frozen=True, eq=False)
class SetsPlan:
    """Plan of the features that a run needs.

    Args:
        cache: Feature cache.
        train: Plan for the training set.
        val: Plan for the validation set.
    """

    cache: FeatureCache
    train: FeaturePlan
    val: FeaturePlan

    @property
    def missing(self) -> int:
        """Number of views not yet cached."""
        return self.train.missing + self.val.missing

    @property
    def pooling(self) -> PooledInput:
        """Pooling applied to feature maps before caching."""
        return self.train.specs[0].pooling

    def pooled(self, pooling: PooledInput) -> "SetsPlan":
        """Return the same plan with another pooling."""
        return SetsPlan(self.cache, self.cache.pooled(self.train, pooling), self.cache.pooled(self.val, pooling))


def plan_sets(
    model: Classifier,
    sets: TrainAndVal,
    settings: RecipeSettings,
    *,
    bottom: Backbone | None = None,
    transform: Transform | None = None,
) -> SetsPlan:
    """Plan the features of a run: whole maps if an earlier run cached more of those, else the pooling the head needs.

    Args:
        model: Classifier.
        sets: Training and validation set.
        settings: Views and workers.
        bottom: Part of the backbone to cache, as whole maps (default: all of it).
        transform: Transform of the views after the first (default: random crops and flips).

    Raises:
        ConfigError: The transform cannot be told from others, which the cache requires.
    """
    if transform is not None and " at 0x" in repr(transform):
        raise ConfigError(
            f"features cannot be cached with the transform {transform!r}, whose repr does not describe it; use a "
            "torchvision transform, define __repr__, or train on images (cache=False, or finetune)"
        )
    backbone = bottom or model.backbone
    cache = FeatureCache(backbone, input_spec=model.input_spec, num_workers=num_workers(settings))
    enough = pooled_input(model.head) if backbone is model.backbone else "none"
    views = settings.num_views(len(sets.train))
    train = cache.plan(sets.train, pooling=enough, views=views, augmentation=transform)
    val = cache.plan(sets.val, pooling=enough)
    pooled = SetsPlan(cache, train, val)
    whole = pooled if enough == "none" else pooled.pooled("none")
    # not `missing == 0`: unreadable images are always missing
    return whole if whole.missing < pooled.missing else pooled


def cache_sets(
    model: Classifier,
    sets: TrainAndVal,
    settings: RecipeSettings,
    *,
    bottom: Backbone | None = None,
    progress: Callable[[int, int], None] | None = None,
    transform: Transform | None = None,
) -> CachedSets:
    """Extract features of all images with a frozen backbone, reusing cached ones.

    Args:
        model: Classifier.
        sets: Training and validation set.
        settings: Views and workers.
        bottom: Part of the backbone to cache (default: all of it).
        progress: Called after every batch with the number of views done, and in total.
        transform: Transform of the views after the first (default: random crops and flips).
    """
    backbone = bottom or model.backbone
    backbone.to(find_device(settings.device, count=settings.devices))
    plan = plan_sets(model, sets, settings, bottom=bottom, transform=transform)
    cached = CachedSets(*(plan.cache.fill(part, progress=progress) for part in (plan.train, plan.val)))
    backbone.to("cpu")  # it is not trained
    return cached


def feature_loaders(cached: CachedSets, settings: LoopSettings, share: Share) -> Loaders:
    """Return loaders of cached features for one process; training samples a random view per image."""
    order = shared_sampler(len(cached.train), share, shuffle=True, seed=settings.seed)
    part = shared_sampler(len(cached.val), share, shuffle=False, even=False)
    size = settings.batch_size
    return Loaders(
        train=FeatureLoader(cached.train, batch_size=size, sampler=order, seed=settings.seed),
        val=FeatureLoader(cached.val, batch_size=size, sampler=part, view=0),
    )


def image_loaders(
    model: Classifier,
    sets: TrainAndVal,
    settings: LoopSettings,
    share: Share,
    *,
    augment: bool,
    transform: Transform | None = None,
) -> Loaders:
    """Return loaders of images for one process.

    Args:
        model: Classifier, for its input spec.
        sets: Training and validation set.
        settings: Batch size, seed and workers.
        share: Part of the images for this process.
        augment: Augment training images.
        transform: Training transform (default: that of the papers).
    """
    plain = eval_transform(model.input_spec)
    order = shared_sampler(len(sets.train), share, shuffle=True, seed=settings.seed)
    part = shared_sampler(len(sets.val), share, shuffle=False, even=False)
    size, workers = settings.batch_size, num_workers(settings)
    return Loaders(
        train=ImageLoader(
            sets.train,
            transform=transform or (train_transform(model.input_spec) if augment else plain),
            batch_size=size,
            sampler=order,
            num_workers=workers,
            seed=settings.seed,
        ),
        val=ImageLoader(sets.val, transform=plain, batch_size=size, sampler=part, num_workers=workers),
    )


def num_workers(settings: LoopSettings) -> int:
    """Return the number of image-decoding processes."""
    if settings.workers is not None:
        return settings.workers
    return default_workers(on_gpu=find_device(settings.device, count=settings.devices).type != "cpu")
