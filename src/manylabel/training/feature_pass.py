"""The pass of all pictures through a backbone, from decoding to the writer of a store.

Letters in shape comments: B pictures of a batch, C channels, H and W cells of a map.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from manylabel.backbone import Backbone
from manylabel.data.dataset import ImageDataset
from manylabel.data.feature_store import FeatureKind, Pooling, StoreWriter
from manylabel.data.loading import DecodedImages, collate, explained_worker_deaths, most_bad, too_many_bad
from manylabel.data.sampling import Draw
from manylabel.errors import ConfigError
from manylabel.system import available_cores
from manylabel.training.engine import Engine, ready
from manylabel.training.feature_progress import Meter
from manylabel.types import BadImage, Batch

__all__ = ["FeaturePass", "pool"]

logger = logging.getLogger(__name__)


class FeaturePass:
    """Passes pictures through a backbone and hands the features to the writer of a store.

    Args:
        backbone: The frozen backbone.
        dataset: The pictures.
        ids: The pictures' numbers, ``[N]``.
        engine: What runs the backbone.
        exports: Where exported backbones are kept.
        batch_size: Pictures per pass through the backbone.
        num_workers: Processes that decode; chosen from the number of cores when None.
        max_bad_share: The share of the pictures that may be bad.
        meter: Told how far it is.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(
        self,
        backbone: Backbone,
        dataset: ImageDataset,
        ids: NDArray[np.uint64],
        *,
        engine: Engine,
        exports: Path,
        batch_size: int,
        num_workers: int | None,
        max_bad_share: float,
        meter: Meter,
    ) -> None:
        if batch_size < 1 or (num_workers or 0) < 0:
            raise ConfigError(f"batch_size must be at least 1 and num_workers 0, got {batch_size} and {num_workers}")
        if not 0 <= max_bad_share <= 1:
            raise ConfigError(f"max_bad_share must be in 0..1, got {max_bad_share}")
        self.backbone = backbone
        self.dataset = dataset
        self.ids = ids
        self.engine = engine
        self.exports = exports
        self.batch_size = batch_size
        self.num_workers = _workers(next(backbone.parameters()).device) if num_workers is None else num_workers
        self.max_bad_share = max_bad_share
        self.meter = meter
        self._run: Callable[[Tensor], list[Tensor]] | None = None  # made ready when first needed

    def fill(
        self, writer: StoreWriter, missing: NDArray[np.int64], transform: Callable[[Image.Image], Tensor]
    ) -> list[BadImage]:
        """Compute the features of some pictures and add them to a store.

        Args:
            writer: Where the features go.
            missing: Positions of the pictures.
            transform: Makes the view.

        Returns:
            The pictures that could not be decoded.

        Raises:
            BadImagesError: There are too many of them.
            ConfigError: The features do not fit into float16.
            DataError: A process that decodes died.
        """
        bad: list[BadImage] = []
        loader = self._loader(missing, transform, writer.kind)
        with explained_worker_deaths(loader):
            for batch in loader:
                features = self._features(batch, writer.kind)
                writer.append(features, ids=self.ids[batch.indices.numpy()], bad=batch.bad)
                self._account(bad, batch.bad)
                self.meter.count(len(batch) + len(batch.bad), timed=True)
        return bad

    def _features(self, batch: Batch, kind: FeatureKind) -> list[NDArray[np.float16]]:
        """Return float16 maps ``[B, C, H, W]`` per stage."""
        if not len(batch):
            return [np.empty((0, *shape), dtype=np.float16) for shape in kind.shapes]
        if self._run is None:
            left = self.meter.total - self.meter.done
            self._run = ready(self.backbone, batch.images, engine=self.engine, exports=self.exports, num_pictures=left)
        with torch.inference_mode():
            maps = [stage.half().cpu() for stage in pool(self._run(batch.images), kind.pooling)]
        if not all(bool(stage.isfinite().all()) for stage in maps):
            raise ConfigError(f"{kind.backbone} gives features that float16 cannot hold; train it without the cache")
        return [stage.contiguous().numpy() for stage in maps]

    def _loader(
        self, positions: NDArray[np.int64], transform: Callable[[Image.Image], Tensor], kind: FeatureKind
    ) -> DataLoader[Any]:
        """Return batches of some pictures; the chance in a view is each picture's own, whatever its neighbours."""
        salt = np.random.SeedSequence([kind.seed, kind.view]).generate_state(1, np.uint64)
        seeds = (self.ids[positions] ^ salt) >> np.uint64(1)  # torch takes 63 bits
        draws = [Draw(index, seed) for index, seed in zip(positions.tolist(), seeds.tolist(), strict=True)]
        workers = min(self.num_workers, len(draws) // self.batch_size)  # none for a handful of pictures
        return DataLoader(
            DecodedImages(self.dataset, transform=transform),
            batch_sampler=[draws[first : first + self.batch_size] for first in range(0, len(draws), self.batch_size)],
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # its own: training goes on the same whether features were there or not
        )

    def _account(self, bad: list[BadImage], new: Sequence[BadImage]) -> None:
        """Name the bad pictures, and stop if there are too many."""
        for picture in new:
            logger.warning("bad picture %r: %s", picture.name, picture.reason)
        bad.extend(new)
        if new and len(bad) > most_bad(len(self.dataset), self.max_bad_share):
            raise too_many_bad(bad, num_pictures=len(self.dataset), max_bad_share=self.max_bad_share)


def pool(maps: Sequence[Tensor], pooling: Pooling) -> list[Tensor]:
    """Reduce maps to one cell, or leave them whole.

    Args:
        maps: ``[B, C, H, W]`` each.
        pooling: How.

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
    return list(maps)


def _workers(device: torch.device) -> int:
    """Return how many processes decode: on a CPU a few, because the backbone needs the cores."""
    cores = available_cores()
    return max(1, cores // 4) if device.type == "cpu" else min(8, cores)
