"""A frozen backbone sees every picture once: its features go to disk, and heads train on them.

Letters in shape comments: B pictures of a batch, C channels, H and W cells of a map.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from manylabel.backbone import Backbone, fingerprint_weights
from manylabel.data.dataset import ImageDataset
from manylabel.data.feature_store import (
    EXPORTS,
    FeatureKind,
    FeatureStore,
    Pooling,
    StoreWriter,
    check_room,
    default_root,
    picture_ids,
)
from manylabel.data.transforms import ImageTransform, eval_transform, train_transform
from manylabel.errors import BusyError, CacheError, ConfigError, DataError, list_choices
from manylabel.training.cached_features import CachedFeatures
from manylabel.training.engine import Engine
from manylabel.training.feature_pass import FeaturePass, pool
from manylabel.training.feature_progress import FeatureProgress, Meter
from manylabel.types import BadImage, InputSpec

__all__ = ["FeaturePlan", "cache_features", "plan_features"]

logger = logging.getLogger(__name__)

SMALLEST_CROP = 0.35  # of the area
POLL_SECONDS = 0.5  # how often to look whether another process is done


def cache_features(
    backbone: Backbone,
    dataset: ImageDataset,
    *,
    input_spec: InputSpec,
    pooling: Pooling = "none",
    views: int = 1,
    augmentation: ImageTransform | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    batch_size: int = 32,
    num_workers: int | None = None,
    engine: Engine = "auto",
    max_bad_share: float = 0.01,
    progress: Callable[[FeatureProgress], None] | None = None,
) -> CachedFeatures:
    """Pass every picture through a frozen backbone once and keep the features on disk.

    What is there already, for the same transform and weights, is found again picture by picture, so another split, a
    part of the pictures or more views cost only what is new. A run that was killed goes on where it was. Where another
    process computes the same, this one waits for it.

    Args:
        backbone: A frozen backbone; it gives the stages that are kept.
        dataset: The pictures.
        input_spec: How the pictures are resized and normalised.
        pooling: ``"none"`` keeps whole maps, ``"average"`` and ``"max"`` one vector per stage, ``"earlier"`` the final
            map and the averages of the others.
        views: How many views of each picture; the first is the picture as in evaluation, the others are augmented.
        augmentation: Makes the views behind the first; random crops and mirror images when left out.
        seed: Fixes the augmentation.
        root: Folder for all features; `default_root` when left out.
        batch_size: Pictures per pass through the backbone.
        num_workers: Processes that decode; chosen from the number of cores when left out.
        engine: What runs the backbone; ``"auto"`` takes onnxruntime on a CPU where it is installed and agrees.
        max_bad_share: The share of the pictures that may be bad; they are left out.
        progress: Called after every batch.

    Returns:
        The features.

    Raises:
        ConfigError: A setting is wrong, or the backbone is not frozen.
        CacheError: The disk is full or cannot be written to.
        BadImagesError: Too many pictures cannot be decoded.
        MissingExtraError: The engine is ``"onnx"`` and onnxruntime is not installed.

    Examples:
        >>> import tempfile
        >>> from manylabel import data
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(0, -1))
        >>> cached = cache_features(
        ...     backbone, data.scenes(3), input_spec=InputSpec(size=(64, 64)), pooling="average", views=2,
        ...     root=tempfile.mkdtemp(), engine="torch", num_workers=0,
        ... )
        >>> [stage.shape for stage in cached.read([0, 1, 2], view=1)]
        [torch.Size([3, 64, 1, 1]), torch.Size([3, 512, 1, 1])]
    """
    if engine not in get_args(Engine):
        raise ConfigError(f"engine cannot be {engine!r}; {list_choices(engine, get_args(Engine))}")
    root = default_root() if root is None else Path(root)
    plan = plan_features(
        backbone,
        dataset,
        input_spec=input_spec,
        pooling=pooling,
        views=views,
        augmentation=augmentation,
        seed=seed,
        root=root,
    )
    check_room(root, num_bytes=plan.missing_bytes)
    logger.info("features take %.2f GB in %s, %.2f of them new", plan.num_bytes / 1e9, root, plan.missing_bytes / 1e9)
    work = FeaturePass(
        backbone,
        dataset,
        plan.ids,
        engine=engine,
        exports=root / EXPORTS,
        batch_size=batch_size,
        num_workers=num_workers,
        max_bad_share=max_bad_share,
        meter=Meter(total=views * len(dataset), num_bytes=plan.num_bytes, report=progress),
    )
    transforms = _transforms(input_spec, augmentation, views)
    parts = [_complete(root, kind, work, transform) for kind, transform in zip(plan.kinds, transforms, strict=True)]
    return _join(dataset, plan.ids, parts)


@dataclass(frozen=True, eq=False)
class FeaturePlan:
    """What `cache_features` would do.

    Args:
        kinds: What the features are, per view.
        ids: The pictures' numbers, ``[N]``.
        missing: How many views of pictures are to be computed.
    """

    kinds: tuple[FeatureKind, ...]
    ids: NDArray[np.uint64]
    missing: int

    @property
    def num_bytes(self) -> int:
        """What all features take on disk."""
        return len(self.kinds) * len(self.ids) * self.kinds[0].bytes_per_picture

    @property
    def missing_bytes(self) -> int:
        """What the features that are to be computed take on disk."""
        return self.missing * self.kinds[0].bytes_per_picture


def plan_features(
    backbone: Backbone,
    dataset: ImageDataset,
    *,
    input_spec: InputSpec,
    pooling: Pooling = "none",
    views: int = 1,
    augmentation: ImageTransform | None = None,
    seed: int = 0,
    root: str | Path | None = None,
) -> FeaturePlan:
    """Tell what `cache_features` would compute and what it takes on disk, before anything is computed.

    Args:
        backbone: As in `cache_features`, like all the others.
        dataset: The pictures.
        input_spec: How the pictures are resized and normalised.
        pooling: Whether maps are kept whole.
        views: How many views of each picture.
        augmentation: Makes the views behind the first.
        seed: Fixes the augmentation.
        root: Folder for all features.

    Returns:
        The plan.

    Raises:
        ConfigError: A setting is wrong, or the backbone is not frozen.

    Examples:
        >>> from manylabel import data
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> plan = plan_features(backbone, data.scenes(100), input_spec=InputSpec(size=(224, 224)), views=2)
        >>> plan.missing, plan.num_bytes
        (200, 10035200)
    """
    if not backbone.frozen:
        raise ConfigError("features are only the same each time if the backbone is frozen; build it with frozen=True")
    if pooling not in get_args(Pooling):
        raise ConfigError(f"pooling cannot be {pooling!r}; {list_choices(pooling, get_args(Pooling))}")
    if views < 1:
        raise ConfigError(f"views must be at least 1, got {views}")
    root = default_root() if root is None else Path(root)
    ids, weights = picture_ids(dataset.pictures), fingerprint_weights(backbone)
    shapes = _feature_shapes(backbone, input_spec, pooling)
    kinds = tuple(
        FeatureKind(
            dataset=dataset.name,
            backbone=backbone.name,
            weights=weights,
            transform=repr(transform),
            stages=backbone.stages,
            shapes=shapes,
            pooling=pooling,
            view=view,
            seed=seed if view else 0,
        )
        for view, transform in enumerate(_transforms(input_spec, augmentation, views))
    )
    stores = [_open(root / kind.key, level=logging.DEBUG) for kind in kinds]
    there = sum(int((store.find(ids) >= 0).sum()) for store in stores if store is not None)
    return FeaturePlan(kinds, ids, missing=views * len(dataset) - there)


def _transforms(spec: InputSpec, augmentation: ImageTransform | None, views: int) -> list[ImageTransform]:
    """Return the transform of each view."""
    changed = augmentation or train_transform(spec, crop=SMALLEST_CROP, cutout=0, randaugment=False)
    return [eval_transform(spec), *[changed] * (views - 1)]


def _feature_shapes(backbone: Backbone, spec: InputSpec, pooling: Pooling) -> tuple[tuple[int, int, int], ...]:
    """Return channels, height and width per stage, found with one black picture."""
    device = next(backbone.parameters()).device
    with torch.inference_mode():
        maps = pool(backbone(torch.zeros(1, 3, *spec.size, device=device)), pooling)
    return tuple((stage.shape[1], stage.shape[2], stage.shape[3]) for stage in maps)


def _open(folder: Path, *, level: int = logging.WARNING) -> FeatureStore | None:
    """Open a store; None if there is none, or a damaged one, which is logged."""
    try:
        return FeatureStore(folder)
    except CacheError as error:
        if (folder / "journal.jsonl").exists():
            logger.log(level, "%s; what is damaged is computed again", error)
        return None


def _complete(
    root: Path, kind: FeatureKind, work: FeaturePass, transform: ImageTransform
) -> tuple[FeatureStore, list[BadImage]]:
    """Open a store after computing what it lacks; where another process is at it, wait for that."""
    folder, waiting = root / kind.key, False
    while True:
        store = _open(folder)
        if store is not None and (store.find(work.ids) >= 0).all():
            work.meter.count(len(work.ids))
            return store, []
        try:
            with StoreWriter(folder, kind, repair=store is None) as writer:
                rows = FeatureStore(folder).find(work.ids)
                work.meter.count(int((rows >= 0).sum()))
                bad = work.fill(writer, np.flatnonzero(rows < 0), transform)
            return FeatureStore(folder), bad
        except BusyError as busy:
            if not waiting:
                logger.warning("these features are being computed already, waiting: %s", busy)
            waiting = True
            time.sleep(POLL_SECONDS)


def _join(
    dataset: ImageDataset, ids: NDArray[np.uint64], parts: Sequence[tuple[FeatureStore, list[BadImage]]]
) -> CachedFeatures:
    """Put the views of pictures together; a picture that is bad in one of them is left out of all."""
    rows = np.stack([store.find(ids) for store, _ in parts])  # [V, N]
    good = np.flatnonzero((rows >= 0).all(axis=0))
    if not len(good):
        raise DataError(f"none of the {len(dataset)} pictures of {dataset.name} can be read")
    bad = {picture.index: picture for _, pictures in parts for picture in pictures}
    return CachedFeatures(
        dataset=dataset.subset(good),
        stores=tuple(store for store, _ in parts),
        rows=rows[:, good],
        bad=tuple(bad[index] for index in sorted(bad)),
    )
