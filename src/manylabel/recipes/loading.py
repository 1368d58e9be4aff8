"""Batches for a recipe: of pictures, or of features that a frozen backbone gave once and for all."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import ImageLoader, eval_transform, train_transform
from manylabel.data.feature_store import Pooling
from manylabel.heads import ConvexCombinationHead, LinearHead, Mixing, RepresentationMixupHead, TextMapHead
from manylabel.recipes.sets import TrainAndVal
from manylabel.recipes.settings import RecipeSettings
from manylabel.system import available_cores
from manylabel.training.cached_features import CachedFeatures, FeatureLoader
from manylabel.training.feature_progress import FeatureProgress
from manylabel.training.features import cache_features, plan_features
from manylabel.training.fit import Loaders
from manylabel.training.loaders import Share, shared_sampler
from manylabel.training.settings import LoopSettings
from manylabel.training.trainer import find_device

__all__ = [
    "CachedSets",
    "cache_sets",
    "choose_pooling",
    "feature_loaders",
    "missing_pictures",
    "num_workers",
    "picture_loaders",
    "pooling_for",
]


@dataclass(frozen=True)
class CachedSets:
    """Features of the pictures to train on and of those to judge by."""

    train: CachedFeatures
    val: CachedFeatures


def cache_sets(
    model: Classifier,
    sets: TrainAndVal,
    settings: RecipeSettings,
    *,
    progress: Callable[[FeatureProgress], None] | None = None,
) -> CachedSets:
    """Pass every picture through a frozen backbone, or find the features where an earlier run left them.

    Args:
        model: The classifier.
        sets: The pictures.
        settings: Views and workers.
        progress: Told how far it is.
    """
    pooling = choose_pooling(settings, model, sets)
    model.backbone.to(find_device(settings))
    train, val = (
        cache_features(
            model.backbone,
            part,
            input_spec=model.input_spec,
            pooling=pooling,
            views=views,
            num_workers=num_workers(settings),
            progress=progress,
        )
        for part, views in ((sets.train, settings.num_views(len(sets.train))), (sets.val, 1))
    )
    model.backbone.to("cpu")  # the head trains alone
    return CachedSets(train, val)


def choose_pooling(settings: RecipeSettings, model: Classifier, sets: TrainAndVal) -> Pooling:
    """Choose what to keep of a map: whole maps where an earlier run left more of them, else as little as will do."""
    enough = pooling_for(model.head)
    if enough == "none":
        return "none"
    whole, pooled = (missing_pictures(settings, model, sets, pooling=kind) for kind in ("none", enough))
    return "none" if whole < pooled else enough  # not "none are missing": bad pictures always are


def missing_pictures(settings: RecipeSettings, model: Classifier, sets: TrainAndVal, *, pooling: Pooling) -> int:
    """Return how many pictures, views counted each, are not cached yet.

    Args:
        settings: Views.
        model: The classifier.
        sets: The pictures.
        pooling: What is kept of a map.
    """
    plans = [
        plan_features(model.backbone, part, input_spec=model.input_spec, pooling=pooling, views=views)
        for part, views in ((sets.train, settings.num_views(len(sets.train))), (sets.val, 1))
    ]
    return sum(plan.missing for plan in plans)


def feature_loaders(cached: CachedSets, settings: LoopSettings, share: Share) -> Loaders:
    """Return loaders of cached features for one process; training draws one of the views at random."""
    order = shared_sampler(len(cached.train), share, shuffle=True, seed=settings.seed)
    part = shared_sampler(len(cached.val), share, shuffle=False, even=False)
    size = settings.batch_size
    return Loaders(
        train=FeatureLoader(cached.train, batch_size=size, sampler=order, seed=settings.seed),
        val=FeatureLoader(cached.val, batch_size=size, sampler=part, view=0),
    )


def picture_loaders(
    model: Classifier, sets: TrainAndVal, settings: LoopSettings, share: Share, *, augment: bool
) -> Loaders:
    """Return loaders that decode pictures, for one process.

    Args:
        model: The classifier, for how it wants its pictures.
        sets: The pictures.
        settings: Batch size, seed and workers.
        share: Which process.
        augment: Whether training pictures are changed at random.
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


def pooling_for(head: nn.Module) -> Pooling:
    """Say what is enough to keep of a feature map for a head: a number per channel where it pools anyway.

    Examples:
        >>> pooling_for(LinearHead(8, 2, pooling="max")), pooling_for(LinearHead(8, 2, pooling="generalised_mean"))
        ('max', 'none')
    """
    if isinstance(head, LinearHead | TextMapHead | ConvexCombinationHead) and head.pooling != "generalised_mean":
        return head.pooling
    if isinstance(head, Mixing) and head.summary == "convolution":
        return "average" if isinstance(head, RepresentationMixupHead) else "earlier"
    return "none"


def num_workers(settings: LoopSettings) -> int:
    """Return how many processes decode pictures: what is asked for, or one per core, up to 8; none on a single core."""
    if settings.workers is not None:
        return settings.workers
    cores = available_cores()
    return min(cores, 8) if cores > 1 else 0
