"""Loaders of a recipe: images, or cached features of a frozen backbone."""

from dataclasses import dataclass, replace
from functools import partial

from manylabel.classifier import Classifier
from manylabel.data import ImageLoader, class_aware_sampler, eval_transform, train_transform
from manylabel.data.sampling import every_image
from manylabel.errors import ConfigError
from manylabel.features import CachedFeatures, FeatureCache, FeatureLoader, FeaturePlan
from manylabel.heads.head import pooled_input
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.setup import Setup, TrainAndVal, Transform
from manylabel.settings import LoopSettings, RecipeSettings
from manylabel.system import default_workers, find_device
from manylabel.training.fit import Loaders
from manylabel.training.loaders import Share, shared_sampler


@dataclass(frozen=True)
class CachedSets:
    """Cached features of the training and validation set."""

    train: CachedFeatures
    val: CachedFeatures


def plan_sets(setup: Setup[RecipeSettings]) -> tuple[FeatureCache, list[FeaturePlan]]:
    """Plan the features of a run: whole maps if an earlier run cached more of those, else the pooling the head needs.

    Returns:
        The cache, and the plans for the training and the validation set.

    Raises:
        ConfigError: The transform cannot be told from others, which the cache requires.
    """
    model, sets, transform = setup.model, setup.sets, setup.parts.transform
    if transform is not None and " at 0x" in repr(transform):
        raise ConfigError(
            f"features cannot be cached with the transform {transform!r}, whose repr does not describe it; use a "
            "torchvision transform, define __repr__, or train on images (cache=False, or finetune)"
        )
    backbone = setup.cached or model.backbone
    cache = FeatureCache(backbone, input_spec=model.input_spec, num_workers=num_workers(setup.settings))
    enough = pooled_input(model.head) if backbone is model.backbone else "none"
    views = setup.settings.num_views(len(sets.train))
    train = cache.plan(sets.train, pooling=enough, views=views, augmentation=transform)
    pooled = [train, cache.plan(sets.val, pooling=enough)]
    whole = [cache.pooled(plan, "none") for plan in pooled]
    # not `missing == 0`: unreadable images are always missing
    return cache, min(pooled, whole, key=lambda plans: sum(plan.missing for plan in plans))


def cache_sets(setup: Setup[RecipeSettings], reporter: Reporter) -> CachedSets:
    """Extract features of all images with the frozen part of the backbone, reusing cached ones."""
    backbone = setup.cached or setup.model.backbone
    backbone.to(find_device(setup.settings.device, count=setup.settings.devices))
    cache, plans = plan_sets(setup)
    cached = [cache.fill(plan, progress=partial(reporter.progress, "features")) for plan in plans]
    backbone.to("cpu")  # it is not trained
    return CachedSets(*cached)


def make_loaders(
    sets: CachedSets | TrainAndVal,
    settings: LoopSettings,
    *,
    model: Classifier,
    augment: bool = False,
    transform: Transform | None = None,
) -> Loaders:
    """Return loaders for this process.

    Args:
        sets: Cached features, of which training samples a random view per image, or images.
        settings: Batch size, sampler, seed, devices and workers.
        model: Classifier, for its input spec.
        augment: Augment training images.
        transform: Training transform of images (default: that of the papers).
    """
    share, size, seed = Share.of_process(settings.devices), settings.batch_size, settings.seed
    images = sets.train.dataset.for_training() if isinstance(sets, CachedSets) else sets.train.for_training()
    by_label = settings.sampler == "class_aware"
    order = class_aware_sampler(images.targets, seed=seed) if by_label else every_image(len(images), seed=seed)
    order = shared_sampler(order, share)
    part = shared_sampler(every_image(len(sets.val), shuffle=False), share, even=False)
    if isinstance(sets, CachedSets):
        return Loaders(
            train=FeatureLoader(replace(sets.train, dataset=images), batch_size=size, sampler=order, seed=seed),
            val=FeatureLoader(sets.val, batch_size=size, sampler=part, view=0),
        )
    plain, workers = eval_transform(model.input_spec), num_workers(settings)
    transform = transform or (train_transform(model.input_spec) if augment else plain)
    load = partial(ImageLoader, batch_size=size, num_workers=workers)
    return Loaders(
        train=load(images, transform=transform, sampler=order, seed=seed),
        val=load(sets.val, transform=plain, sampler=part),
    )


def num_workers(settings: LoopSettings) -> int:
    """Return the number of image-decoding processes."""
    if settings.workers is not None:
        return settings.workers
    return default_workers(on_gpu=find_device(settings.device, count=settings.devices).type != "cpu")
