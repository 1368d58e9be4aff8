"""Batches for a recipe: of images, or of features that a frozen backbone gave once and for all."""

from collections.abc import Callable
from dataclasses import dataclass

from manylabel.classifier import Classifier
from manylabel.data import ImageLoader, eval_transform, train_transform
from manylabel.features import CachedFeatures, FeatureCache, FeatureLoader, FeaturePlan
from manylabel.heads.traits import PooledInput, pooled_input
from manylabel.recipes.sets import TrainAndVal
from manylabel.settings import LoopSettings, RecipeSettings
from manylabel.system import default_workers
from manylabel.training.fit import Loaders, find_device
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


@dataclass(frozen=True)
class CachedSets:
    """Features of the training and of the validation set."""

    train: CachedFeatures
    val: CachedFeatures


@dataclass(frozen=True, eq=False)
class SetsPlan:
    """Features that a run needs: of the training and of the validation set.

    Args:
        cache: Where they are.
        train: Those of the training set.
        val: Those of the validation set.
    """

    cache: FeatureCache
    train: FeaturePlan
    val: FeaturePlan

    @property
    def missing(self) -> int:
        """Number of images, each view counted, that are not cached yet."""
        return self.train.missing + self.val.missing

    @property
    def pooling(self) -> PooledInput:
        """What is kept of a map."""
        return self.train.specs[0].pooling

    def pooled(self, pooling: PooledInput) -> "SetsPlan":
        """Return the same plan with another pooling."""
        return SetsPlan(self.cache, self.cache.pooled(self.train, pooling), self.cache.pooled(self.val, pooling))


def plan_sets(model: Classifier, sets: TrainAndVal, settings: RecipeSettings) -> SetsPlan:
    """Plan the features of a run: whole maps where an earlier run left more of them, else as little as will do.

    Args:
        model: The classifier.
        sets: The images.
        settings: Views and workers.
    """
    cache = FeatureCache(model.backbone, input_spec=model.input_spec, num_workers=num_workers(settings))
    enough, views = pooled_input(model.head), settings.num_views(len(sets.train))
    train, val = cache.plan(sets.train, pooling=enough, views=views), cache.plan(sets.val, pooling=enough)
    pooled = SetsPlan(cache, train, val)
    whole = pooled if enough == "none" else pooled.pooled("none")
    return whole if whole.missing < pooled.missing else pooled  # not "none are missing": bad images always are


def cache_sets(
    model: Classifier,
    sets: TrainAndVal,
    settings: RecipeSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> CachedSets:
    """Pass every image through a frozen backbone, or find the features where an earlier run left them.

    Args:
        model: The classifier.
        sets: The images.
        settings: Views and workers.
        progress: Called after every batch with the number of views that are done, and of all.
    """
    model.backbone.to(find_device(settings))
    plan = plan_sets(model, sets, settings)
    cached = CachedSets(*(plan.cache.fill(part, progress=progress) for part in (plan.train, plan.val)))
    model.backbone.to("cpu")  # the head trains alone
    return cached


def feature_loaders(cached: CachedSets, settings: LoopSettings, share: Share) -> Loaders:
    """Return loaders of cached features for one process; training draws one of the views at random."""
    order = shared_sampler(len(cached.train), share, shuffle=True, seed=settings.seed)
    part = shared_sampler(len(cached.val), share, shuffle=False, even=False)
    size = settings.batch_size
    return Loaders(
        train=FeatureLoader(cached.train, batch_size=size, sampler=order, seed=settings.seed),
        val=FeatureLoader(cached.val, batch_size=size, sampler=part, view=0),
    )


def image_loaders(
    model: Classifier, sets: TrainAndVal, settings: LoopSettings, share: Share, *, augment: bool
) -> Loaders:
    """Return loaders that decode images, for one process.

    Args:
        model: The classifier, for how it wants its images.
        sets: The images.
        settings: Batch size, seed and workers.
        share: The process.
        augment: Augment training images.
    """
    plain = eval_transform(model.input_spec)
    order = shared_sampler(len(sets.train), share, shuffle=True, seed=settings.seed)
    part = shared_sampler(len(sets.val), share, shuffle=False, even=False)
    size, workers = settings.batch_size, num_workers(settings)
    return Loaders(
        train=ImageLoader(
            sets.train,
            transform=train_transform(model.input_spec) if augment else plain,
            batch_size=size,
            sampler=order,
            num_workers=workers,
            seed=settings.seed,
        ),
        val=ImageLoader(sets.val, transform=plain, batch_size=size, sampler=part, num_workers=workers),
    )


def num_workers(settings: LoopSettings) -> int:
    """Return the number of processes that decode images."""
    return default_workers(on_gpu=find_device(settings) != "cpu") if settings.workers is None else settings.workers
