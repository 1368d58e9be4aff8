"""The pass of all pictures through a backbone, from decoding to the writer of a store.

Letters in shape comments: B pictures of a batch, C channels, H and W cells of a map.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from manylabel.backbone import Backbone
from manylabel.data.dataset import PictureDataset
from manylabel.data.feature_store import FeatureRequest, Pooling, StoreWriter
from manylabel.data.loading import DecodedPictures, collate, explained_worker_deaths, too_many_bad
from manylabel.data.sampling import Draw
from manylabel.data.transforms import PictureTransform
from manylabel.errors import ConfigError
from manylabel.training.engine import Engine, ready
from manylabel.types import Batch

__all__ = ["FeaturePass", "FeatureProgress", "pool"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeatureProgress:
    """How far the pass is.

    Args:
        done: Views of pictures that are on disk, those of earlier runs included.
        total: Views of pictures in all.
        pictures_per_second: Speed of this run; 0 before the first batch.
        seconds_left: At this speed.
        num_bytes: What all of it takes on disk.
    """

    done: int
    total: int
    pictures_per_second: float
    seconds_left: float
    num_bytes: int


class FeaturePass:
    """Passes pictures through a backbone and hands the features to writers.

    Args:
        backbone: The frozen backbone.
        dataset: The pictures.
        requests: All that is to be computed, one per view.
        engine: What runs the backbone.
        exports: Where exported backbones are kept.
        batch_size: Pictures per pass through the backbone.
        num_workers: Processes that decode; chosen from the number of cores when None.
        max_bad_share: The share of the pictures that may be bad.
        progress: Called after every batch.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(
        self,
        backbone: Backbone,
        dataset: PictureDataset,
        requests: Sequence[FeatureRequest],
        *,
        engine: Engine,
        exports: Path,
        batch_size: int,
        num_workers: int | None,
        max_bad_share: float,
        progress: Callable[[FeatureProgress], None] | None,
    ) -> None:
        if batch_size < 1 or (num_workers or 0) < 0:
            raise ConfigError(f"batch_size must be at least 1 and num_workers 0, got {batch_size} and {num_workers}")
        if not 0 <= max_bad_share <= 1:
            raise ConfigError(f"max_bad_share must be in 0..1, got {max_bad_share}")
        self.backbone = backbone
        self.dataset = dataset
        self.requests = tuple(requests)
        self.engine = engine
        self.exports = exports
        self.batch_size = batch_size
        self.device = next(backbone.parameters()).device
        self.num_workers = _workers(self.device) if num_workers is None else num_workers
        self.max_bad_share = max_bad_share
        self.progress = progress
        self._run: Callable[[Tensor], list[Tensor]] | None = None  # made ready when first needed
        self._done = 0  # of all views
        self._own = 0  # of this run
        self._seconds = 0.0

    def fill(self, writer: StoreWriter, transform: PictureTransform) -> None:
        """Compute what a store lacks.

        Args:
            writer: Where the features go; it knows where to go on.
            transform: Makes the view.

        Raises:
            BadPicturesError: Too many pictures cannot be decoded.
            ConfigError: The features do not fit into float16.
            DataError: A process that decodes died.
        """
        self._count(writer.position)
        loader = self._loader(writer, transform)
        start = time.perf_counter()
        with explained_worker_deaths(loader):
            for batch in loader:
                end = writer.position + len(batch) + len(batch.bad)
                writer.append(self._features(batch, writer.request), end=end, bad=batch.bad)
                self._account(writer, batch)
                self._count(len(batch) + len(batch.bad), seconds=time.perf_counter() - start)
                start = time.perf_counter()

    def skip(self, request: FeatureRequest) -> None:
        """Count a store that was whole already."""
        self._done = max(self._done, (request.view + 1) * request.num_pictures)

    def _features(self, batch: Batch, request: FeatureRequest) -> list[NDArray[np.float16]]:
        """Return float16 maps ``[B, C, H, W]`` per stage."""
        if not len(batch):
            return [np.empty((0, *shape), dtype=np.float16) for shape in request.shapes]
        if self._run is None:
            left = sum(request.num_pictures for request in self.requests) - self._done
            self._run = ready(self.backbone, batch.images, engine=self.engine, exports=self.exports, num_pictures=left)
        with torch.inference_mode():
            maps = [stage.half().cpu() for stage in pool(self._run(batch.images), request.pooling)]
        if not all(bool(stage.isfinite().all()) for stage in maps):
            raise ConfigError(f"{request.backbone} gives features that float16 cannot hold; train it without the cache")
        return [stage.contiguous().numpy() for stage in maps]

    def _loader(self, writer: StoreWriter, transform: PictureTransform) -> DataLoader[Any]:
        """Return batches of the pictures that are left, in order; the chance in a view is each picture's own."""
        request, start = writer.request, writer.position
        seeds = np.random.SeedSequence([request.seed, request.view]).generate_state(request.num_pictures)
        draws = [Draw(index, int(seeds[index])) for index in range(start, request.num_pictures)]
        workers = min(self.num_workers, -(-len(draws) // self.batch_size))
        return DataLoader(
            DecodedPictures(self.dataset, transform=transform),
            batch_sampler=[draws[first : first + self.batch_size] for first in range(0, len(draws), self.batch_size)],
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # its own: a run goes on the same whether features were there or not
        )

    def _account(self, writer: StoreWriter, batch: Batch) -> None:
        """Name the bad pictures, and stop if there are too many."""
        for picture in batch.bad:
            logger.warning("bad picture %r: %s", picture.name, picture.reason)
        bad, total = writer.journal.bad, writer.request.num_pictures
        if batch.bad and len(bad) > self.max_bad_share * total:
            raise too_many_bad(bad, num_pictures=total, max_bad_share=self.max_bad_share)

    def _count(self, pictures: int, *, seconds: float = 0.0) -> None:
        self._done += pictures
        self._own += pictures if seconds else 0
        self._seconds += seconds
        if self.progress is None:
            return
        total = sum(request.num_pictures for request in self.requests)
        speed = self._own / self._seconds if self._seconds else 0.0
        left = (total - self._done) / speed if speed else 0.0
        num_bytes = sum(request.num_bytes for request in self.requests)
        self.progress(FeatureProgress(self._done, total, speed, left, num_bytes))


def pool(maps: Sequence[Tensor], pooling: Pooling) -> list[Tensor]:
    """Reduce maps to one cell, or leave them whole.

    Args:
        maps: ``[B, C, H, W]`` each.
        pooling: How.

    Returns:
        Maps, ``[B, C, 1, 1]`` if pooled.

    Example:
        >>> pool([torch.tensor([[[[1.0, 3.0]]]])], "average")
        [tensor([[[[2.]]]])]
    """
    if pooling == "average":
        return [stage.mean((2, 3), keepdim=True) for stage in maps]
    if pooling == "max":
        return [stage.amax((2, 3), keepdim=True) for stage in maps]
    return list(maps)


def _workers(device: torch.device) -> int:
    """Return how many processes decode: on a CPU a few, because the backbone needs the cores."""
    cores = os.cpu_count() or 1
    return max(1, cores // 4) if device.type == "cpu" else min(8, cores)
