"""A frozen backbone sees every picture once: its features go to disk, and heads train on them.

Letters in shape comments: B pictures of a batch, C channels, H and W cells of a map.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import torch

from manylabel.backbone import Backbone
from manylabel.data.dataset import PictureDataset
from manylabel.data.feature_store import (
    FeatureRequest,
    FeatureStore,
    Pooling,
    StoreWriter,
    check_room,
    default_root,
    fingerprint_pictures,
    missing_bytes,
)
from manylabel.data.loading import too_many_bad
from manylabel.data.transforms import PictureTransform, eval_transform, train_transform
from manylabel.errors import CacheBusyError, CacheError, ConfigError, list_choices
from manylabel.training.cached_features import CachedFeatures
from manylabel.training.engine import Engine
from manylabel.training.feature_pass import FeaturePass, FeatureProgress, pool
from manylabel.training.fingerprint import fingerprint_weights
from manylabel.types import InputSpec

__all__ = ["cache_features", "plan_features"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5  # how often to look whether another process is done


def cache_features(
    backbone: Backbone,
    dataset: PictureDataset,
    *,
    input_spec: InputSpec,
    pooling: Pooling = "none",
    views: int = 1,
    augmentation: PictureTransform | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    batch_size: int = 32,
    num_workers: int | None = None,
    engine: Engine = "auto",
    max_bad_share: float = 0.01,
    progress: Callable[[FeatureProgress], None] | None = None,
) -> CachedFeatures:
    """Pass every picture through a frozen backbone once and keep the features on disk.

    What is there already, for the same pictures, transform and weights, is not computed again; a run that was killed
    goes on where it was; and where another process computes the same, this one waits for it. Each view is kept on its
    own, so asking for more views later computes only the new ones.

    Args:
        backbone: A frozen backbone; it gives the stages that are kept.
        dataset: The pictures.
        input_spec: How the pictures are resized and normalised.
        pooling: ``"none"`` keeps whole maps, ``"average"`` and ``"max"`` one vector per stage.
        views: How many views of each picture; the first is the picture as in evaluation, the others are augmented.
        augmentation: Makes the views behind the first; `train_transform` of `input_spec` when left out.
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
        BadPicturesError: Too many pictures cannot be decoded.
        MissingExtraError: The engine is ``"onnx"`` and onnxruntime is not installed.

    Example:
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
    requests = plan_features(
        backbone,
        dataset,
        input_spec=input_spec,
        pooling=pooling,
        views=views,
        augmentation=augmentation,
        seed=seed,
    )
    root = default_root() if root is None else Path(root)
    check_room(root, num_bytes=sum(missing_bytes(root, request) for request in requests))
    work = FeaturePass(
        backbone,
        dataset,
        requests,
        engine=engine,
        exports=root / "onnx",
        batch_size=batch_size,
        num_workers=num_workers,
        max_bad_share=max_bad_share,
        progress=progress,
    )
    transforms = _transforms(input_spec, augmentation, views)
    stores = [
        _complete(root / request.key, request, work, transform)
        for request, transform in zip(requests, transforms, strict=True)
    ]
    cached = CachedFeatures.join(dataset, stores)
    if len(cached.bad) > max_bad_share * len(dataset):
        raise too_many_bad(cached.bad, num_pictures=len(dataset), max_bad_share=max_bad_share)
    return cached


def plan_features(
    backbone: Backbone,
    dataset: PictureDataset,
    *,
    input_spec: InputSpec,
    pooling: Pooling = "none",
    views: int = 1,
    augmentation: PictureTransform | None = None,
    seed: int = 0,
) -> list[FeatureRequest]:
    """Return what `cache_features` would keep, one request per view, before anything is computed.

    Args:
        backbone: As in `cache_features`, like all the others.
        dataset: The pictures.
        input_spec: How the pictures are resized and normalised.
        pooling: Whether maps are kept whole.
        views: How many views of each picture.
        augmentation: Makes the views behind the first.
        seed: Fixes the augmentation.

    Returns:
        The requests, which tell their keys and what they take on disk.

    Raises:
        ConfigError: A setting is wrong, or the backbone is not frozen.

    Example:
        >>> from manylabel import data
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> requests = plan_features(backbone, data.scenes(100), input_spec=InputSpec(size=(224, 224)), views=2)
        >>> sum(request.num_bytes for request in requests)
        10035200
    """
    if not backbone.frozen:
        raise ConfigError("features are only the same each time if the backbone is frozen; build it with frozen=True")
    if pooling not in get_args(Pooling):
        raise ConfigError(f"pooling cannot be {pooling!r}; {list_choices(pooling, get_args(Pooling))}")
    if views < 1:
        raise ConfigError(f"views must be at least 1, got {views}")
    pictures, weights = fingerprint_pictures(dataset.pictures), fingerprint_weights(backbone)
    shapes = _feature_shapes(backbone, input_spec, pooling)
    return [
        FeatureRequest(
            pictures=pictures,
            num_pictures=len(dataset),
            weights=weights,
            transform=repr(transform),
            stages=backbone.stages,
            shapes=shapes,
            pooling=pooling,
            view=view,
            seed=seed if view else 0,
            dataset=dataset.name,
            backbone=backbone.name,
        )
        for view, transform in enumerate(_transforms(input_spec, augmentation, views))
    ]


def _transforms(spec: InputSpec, augmentation: PictureTransform | None, views: int) -> list[PictureTransform]:
    """Return the transform of each view."""
    return [eval_transform(spec), *[augmentation or train_transform(spec)] * (views - 1)]


def _feature_shapes(backbone: Backbone, spec: InputSpec, pooling: Pooling) -> tuple[tuple[int, int, int], ...]:
    """Return channels, height and width per stage, found with one black picture."""
    device = next(backbone.parameters()).device
    with torch.inference_mode():
        maps = pool(backbone(torch.zeros(1, 3, *spec.size, device=device)), pooling)
    return tuple((stage.shape[1], stage.shape[2], stage.shape[3]) for stage in maps)


def _complete(folder: Path, request: FeatureRequest, work: FeaturePass, transform: PictureTransform) -> FeatureStore:
    """Open a store, after computing what is missing; or after another process has."""
    told = False
    while True:
        try:
            store = FeatureStore(folder)
        except CacheError as error:
            if (folder / "manifest.json").exists():
                logger.warning("%s; computing again from where it is damaged", error)
        else:
            work.skip(request)
            return store
        try:
            with StoreWriter(folder, request) as writer:
                work.fill(writer, transform)
                writer.finish()
        except CacheBusyError as busy:
            if not told:
                logger.warning("these features are being computed already, waiting: %s", busy)
            told = True
            time.sleep(POLL_SECONDS)
