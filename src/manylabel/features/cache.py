"""Feature cache: plan which features a dataset needs, compute the missing ones in one pass, and store them on disk.

Letters in shape comments: B images of a batch, V views, N images, C channels, H and W positions of a map.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.filesize import decimal
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d
from torch.utils.data import DataLoader

from manylabel.backbone import Backbone, fingerprint_weights
from manylabel.data.dataset import ImageDataset
from manylabel.data.loading import BadImages, DecodedImages, collate, explained_worker_deaths
from manylabel.data.sampling import Draw
from manylabel.data.transforms import eval_transform, train_transform
from manylabel.errors import BusyError, CacheError, ConfigError, DataError, list_choices
from manylabel.features.catalog import default_root, remove_leftovers
from manylabel.features.key import FeatureSpec, image_ids
from manylabel.features.loader import CachedFeatures
from manylabel.features.runtime import Run, export_path, prepare_backbone
from manylabel.features.store import FeatureStore, StoreWriter, check_room
from manylabel.heads.head import PooledInput
from manylabel.inference.engine import EngineName
from manylabel.lock import WriterLock
from manylabel.system import default_workers
from manylabel.types import Batch, InputSpec

logger = logging.getLogger(__name__)

Transform: TypeAlias = Callable[[Image.Image], Tensor]
Progress: TypeAlias = Callable[[int, int], None]

SMALLEST_CROP = 0.35  # of the area
POLL_SECONDS = 0.5  # between checks on another process that computes the same features


@dataclass(frozen=True, eq=False)
class FeaturePlan:
    """Features that a dataset needs, and how many of them are missing.

    Args:
        dataset: The images.
        ids: Image ids, ``[N]``.
        specs: Feature spec of each view.
        transforms: Transform of each view.
        missing: Number of views that are not cached.
    """

    dataset: ImageDataset
    ids: NDArray[np.uint64]
    specs: tuple[FeatureSpec, ...]
    transforms: tuple[Transform, ...]
    missing: int

    @property
    def num_bytes(self) -> int:
        """Size of all features in bytes."""
        return len(self.specs) * len(self.ids) * self.specs[0].bytes_per_image

    @property
    def missing_bytes(self) -> int:
        """Size of the missing features in bytes."""
        return self.missing * self.specs[0].bytes_per_image


class FeatureCache:
    """Disk cache of a frozen backbone's output.

    Features are looked up image by image for the same transform and weights, so another split, a subset or more views
    cost only what is new. A killed run resumes where it stopped. If another process computes the same features, this
    one waits for it. Features are verified before use and recomputed if damaged.

    Args:
        backbone: A frozen backbone, whose stages are cached. It must not change afterwards.
        input_spec: Resizing and normalisation (default: the backbone's, without its centre crop, as in `Classifier`).
        root: Cache folder (default: `default_root`).
        batch_size: Images per batch.
        num_workers: Number of decoding processes (default: see `manylabel.system.default_workers`).
        engine: Engine that runs the backbone; ``"auto"`` uses onnxruntime on a CPU if it is installed and agrees with
            torch.
        max_bad_fraction: Fraction of unreadable images to tolerate; they are skipped.

    Raises:
        ConfigError: A setting is invalid, or the backbone is not frozen.

    Examples:
        >>> import tempfile
        >>> from manylabel import data
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(0, -1))
        >>> cache = FeatureCache(backbone, input_spec=InputSpec(size=(64, 64)), root=tempfile.mkdtemp(), num_workers=0)
        >>> plan = cache.plan(data.scenes(3), pooling="average", views=2)
        >>> plan.missing, plan.num_bytes
        (6, 6912)
        >>> [stage.shape for stage in cache.fill(plan).read([0, 1, 2], view=1)]
        [torch.Size([3, 64, 1, 1]), torch.Size([3, 512, 1, 1])]
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        input_spec: InputSpec | None = None,
        root: str | Path | None = None,
        batch_size: int = 32,
        num_workers: int | None = None,
        engine: EngineName = "auto",
        max_bad_fraction: float = 0.01,
    ) -> None:
        if not backbone.frozen:
            raise ConfigError("the feature cache needs a frozen backbone; build it with frozen=True")
        if batch_size < 1 or (num_workers or 0) < 0:
            raise ConfigError(f"batch_size must be at least 1 and num_workers 0, got {batch_size} and {num_workers}")
        if engine not in get_args(EngineName):
            raise ConfigError(f"engine cannot be {engine!r}; {list_choices(engine, get_args(EngineName))}")
        self.backbone = backbone
        self.input_spec = input_spec or backbone.input_spec.uncropped()
        self.root = default_root() if root is None else Path(root)
        self.batch_size = batch_size
        on_gpu = next(backbone.parameters()).device.type != "cpu"
        self.num_workers = default_workers(on_gpu=on_gpu) if num_workers is None else num_workers
        self.engine = engine
        self.max_bad_fraction = max_bad_fraction
        self._run: Run | None = None  # prepared on first use

    def plan(
        self,
        dataset: ImageDataset,
        *,
        pooling: PooledInput = "none",
        views: int = 1,
        augmentation: Transform | None = None,
        seed: int = 0,
    ) -> FeaturePlan:
        """Find which features of a dataset are cached and which are missing.

        Args:
            dataset: The images.
            pooling: ``"none"`` stores whole maps, ``"average"`` and ``"max"`` one vector per stage, ``"earlier"`` the
                final map and the averages of the others; others as in `manylabel.heads.head.PooledInput`.
            views: Number of views per image; the first is the image as in evaluation, the others are augmented.
            augmentation: Transform of the views after the first (default: random crops and flips).
            seed: Seed of the augmentation.

        Raises:
            ConfigError: A setting is invalid.
        """
        if views < 1:
            raise ConfigError(f"views must be at least 1, got {views}")
        augmentation = augmentation or train_transform(self.input_spec, crop=SMALLEST_CROP, cutout=0, randaugment=False)
        transforms: list[Transform] = [eval_transform(self.input_spec), *[augmentation] * (views - 1)]
        specs = tuple(
            FeatureSpec(
                dataset=dataset.name,
                backbone=self.backbone.name,
                weights=self._weights,
                transform=repr(transform),
                stages=self.backbone.stages,
                shapes=self._shapes(pooling),
                pooling=pooling,
                view=view,
                seed=seed if view else 0,
            )
            for view, transform in enumerate(transforms)
        )
        return self._counted(FeaturePlan(dataset, image_ids(dataset.images), specs, tuple(transforms), missing=0))

    def pooled(self, plan: FeaturePlan, pooling: PooledInput) -> FeaturePlan:
        """Return the same plan with another pooling, without hashing the images again."""
        shapes = self._shapes(pooling)
        specs = tuple(replace(spec, pooling=pooling, shapes=shapes) for spec in plan.specs)
        return self._counted(replace(plan, specs=specs))

    def fill(self, plan: FeaturePlan, *, progress: Progress | None = None) -> CachedFeatures:
        """Compute the missing features, and return all features of a plan.

        Args:
            plan: Result of `plan`.
            progress: Called after every batch with the number of views done and the total.

        Raises:
            CacheError: The disk is full, not writable, or returns damaged data.
            BadImagesError: Too many images cannot be decoded.
            DataError: No image can be decoded, or a decoding process died.
        """
        remove_leftovers(self.root)
        check_room(self.root, num_bytes=plan.missing_bytes)
        logger.info("features take %s in %s, %s new", decimal(plan.num_bytes), self.root, decimal(plan.missing_bytes))
        work = _Pass(self, plan, progress)
        stores = tuple(work.complete(view) for view in range(len(plan.specs)))
        rows = np.stack([store.find(plan.ids) for store in stores])  # [V, N]
        good = np.flatnonzero((rows >= 0).all(axis=0))  # an image that is bad in one view is dropped from all
        if not len(good):
            raise DataError(f"none of the {len(plan.dataset)} images of {plan.dataset.name} can be read")
        bad = sorted(work.bad, key=lambda image: image.index)
        return CachedFeatures(plan.dataset.subset(good), stores, rows[:, good], tuple(bad))

    def averages(self, dataset: ImageDataset, *, progress: Progress | None = None) -> tuple[CachedFeatures, Tensor]:
        """Compute the average features of a dataset's images, from whole maps if more of those are cached.

        Args:
            dataset: The images.
            progress: As in `fill`.

        Returns:
            The features on disk, with the readable images, and the averages of the final stage, ``[N, C]``.
        """
        plan = self.plan(dataset, pooling="average")
        cached = self.fill(min(plan, self.pooled(plan, "none"), key=lambda each: each.missing), progress=progress)
        parts = np.array_split(np.arange(len(cached)), len(cached) // 1024 + 1)
        return cached, torch.cat([cached.read(part)[-1].mean((2, 3)) for part in parts])

    def maps(self, batch: Batch, spec: FeatureSpec, *, num_images: int) -> list[NDArray[np.float16]]:
        """Return float16 maps ``[B, C, H, W]`` per stage.

        Args:
            batch: Decoded images.
            spec: Spec of the features.
            num_images: Number of remaining images, which determines the engine.
        """
        if self._run is None:
            export = export_path(self.backbone, weights=self._weights, size=self.input_spec.size)
            self._run = prepare_backbone(
                self.backbone, batch.images, engine=self.engine, export=export, num_images=num_images
            )
        with torch.inference_mode():
            maps = [stage.half().cpu() for stage in pool(self._run(batch.images), spec.pooling)]
        if not all(bool(stage.isfinite().all()) for stage in maps):
            raise ConfigError(f"{spec.backbone} has features beyond the range of float16; train without the cache")
        return [stage.contiguous().numpy() for stage in maps]

    @cached_property
    def _weights(self) -> str:
        return fingerprint_weights(self.backbone)

    @cached_property
    def _whole_maps(self) -> list[Tensor]:
        """Maps of one black image, for their shapes."""
        device = next(self.backbone.parameters()).device
        with torch.inference_mode():
            return list(self.backbone(torch.zeros(1, 3, *self.input_spec.size, device=device)))

    def _shapes(self, pooling: PooledInput) -> tuple[tuple[int, int, int], ...]:
        if pooling not in get_args(PooledInput):
            raise ConfigError(f"pooling cannot be {pooling!r}; {list_choices(pooling, get_args(PooledInput))}")
        maps = pool(self._whole_maps, pooling)
        return tuple((stage.shape[1], stage.shape[2], stage.shape[3]) for stage in maps)

    def _counted(self, plan: FeaturePlan) -> FeaturePlan:
        stores = [FeatureStore(self.root / spec.key, spec) for spec in plan.specs]
        return replace(plan, missing=sum(int((store.find(plan.ids) < 0).sum()) for store in stores))


class _Pass:
    """One pass over the images of a plan, view by view."""

    def __init__(self, cache: FeatureCache, plan: FeaturePlan, progress: Progress | None) -> None:
        self.cache = cache
        self.plan = plan
        self.progress = progress
        self.total = len(plan.specs) * len(plan.ids)
        self.done = 0
        self.bad = BadImages(len(plan.dataset), max_bad_fraction=cache.max_bad_fraction)

    def complete(self, view: int) -> FeatureStore:
        """Compute what the store of a view lacks, or wait for another process that does, and open it."""
        spec, ids = self.plan.specs[view], self.plan.ids
        folder = self.cache.root / spec.key
        while True:
            store = FeatureStore(folder, spec)
            store.check(store.find(ids))
            if (store.find(ids) >= 0).all():
                self._count(len(ids))
                return store
            if store.damaged:
                logger.warning("some features in %s are damaged; recomputing those batches", folder)
            try:
                with StoreWriter(folder, spec, damaged=store.damaged) as writer:
                    self._fill(writer, view)
                break
            except BusyError as busy:
                logger.warning("another process is computing these features, waiting: %s", busy)
                while WriterLock(folder / "lock").holder() is not None:
                    time.sleep(POLL_SECONDS)
        store = FeatureStore(folder, spec)
        if store.check(store.find(ids)):
            raise CacheError(f"{folder} returns damaged data after writing; the disk may be faulty")
        return store

    def _fill(self, writer: StoreWriter, view: int) -> None:
        """Compute the features that a store lacks; an image that was bad in another view is not retried."""
        ids, missing = self.plan.ids, writer.store.find(self.plan.ids) < 0
        missing[[image.index for image in self.bad]] = False
        self._count(len(ids) - int(missing.sum()))
        loader = self._loader(np.flatnonzero(missing), view)
        with explained_worker_deaths(loader):
            for batch in loader:
                if len(batch):
                    features = self.cache.maps(batch, writer.spec, num_images=self.total - self.done)
                    writer.append(features, ids=ids[batch.indices.numpy()])
                self.bad.add(batch.bad)
                self._count(len(batch) + len(batch.bad))

    def _loader(self, positions: NDArray[np.int64], view: int) -> DataLoader[Any]:
        """Return a loader of some images; each image's augmentation is independent of the rest of its batch."""
        size, spec = self.cache.batch_size, self.plan.specs[view]
        salt = np.random.SeedSequence([spec.seed, view]).generate_state(1, np.uint64)
        seeds = (self.plan.ids[positions] ^ salt) >> np.uint64(1)  # torch takes 63 bits
        draws = [Draw(index, seed) for index, seed in zip(positions.tolist(), seeds.tolist(), strict=True)]
        workers = min(self.cache.num_workers, len(draws) // size)  # none for a handful of images
        return DataLoader(
            DecodedImages(self.plan.dataset, transform=self.plan.transforms[view]),
            batch_sampler=[draws[first : first + size] for first in range(0, len(draws), size)],
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # private: training must not depend on whether features were cached
        )

    def _count(self, num_images: int) -> None:
        self.done += num_images
        if self.progress is not None:
            self.progress(self.done, self.total)


def pool(maps: Sequence[Tensor], pooling: PooledInput) -> list[Tensor]:
    """Pool feature maps.

    Args:
        maps: ``[B, C, H, W]`` each.
        pooling: Pooling mode; see `FeatureCache.plan`.

    Returns:
        Maps, ``[B, C, 1, 1]`` if pooled.

    Examples:
        >>> pool([torch.tensor([[[[1.0, 3.0]]]])], "average")
        [tensor([[[[2.]]]])]
        >>> [tuple(stage.shape) for stage in pool([torch.zeros(1, 8, 4, 4), torch.zeros(1, 16, 2, 2)], "earlier")]
        [(1, 8, 1, 1), (1, 16, 2, 2)]
    """
    if pooling == "average":
        return [stage.mean((2, 3), keepdim=True) for stage in maps]
    if pooling == "max":
        return [stage.amax((2, 3), keepdim=True) for stage in maps]
    if pooling == "earlier":
        return [*pool(maps[:-1], "average"), maps[-1]]
    if pooling == "max_average":
        return [*pool(maps[:-1], "max"), *pool(maps[-1:], "average")]
    if pooling == "max_cells":
        return [*(adaptive_max_pool2d(stage, maps[-1].shape[2:]) for stage in maps[:-1]), maps[-1]]
    return list(maps)
