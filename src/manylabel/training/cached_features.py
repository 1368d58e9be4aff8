"""Cached features as a data set, and batches of them.

Letters in shape comments: B pictures of a batch, V views of a picture, N pictures, L labels, C channels, H and W cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from manylabel.data.dataset import ImageDataset
from manylabel.data.feature_store import FeatureStore
from manylabel.data.sampling import Draw, SeededBatches, every_picture
from manylabel.errors import ConfigError
from manylabel.types import BadImage, FeatureBatch

__all__ = ["CachedFeatures", "FeatureLoader"]


@dataclass(frozen=True, eq=False)
class CachedFeatures:
    """Features of the pictures of a data set, on disk.

    Args:
        dataset: The pictures that have features, in order, with their labels.
        stores: The features, one store per view; view 0 is the picture as in evaluation.
        rows: ``[V, N]``, where each picture stands in each store.
        bad: The pictures that were left out because they could not be decoded.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from manylabel import data
        >>> from manylabel.backbone import Backbone
        >>> from manylabel.training import cache_features
        >>> from manylabel.types import InputSpec
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> cached = cache_features(
        ...     backbone, data.scenes(3), input_spec=InputSpec(size=(64, 64)), root=Path(tempfile.mkdtemp()),
        ...     engine="torch", num_workers=0,
        ... )
        >>> len(cached), cached.channels, cached.read([2, 0])[0].shape
        (3, (512,), torch.Size([2, 512, 2, 2]))
    """

    dataset: ImageDataset
    stores: tuple[FeatureStore, ...]
    rows: NDArray[np.int64]
    bad: tuple[BadImage, ...] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        shapes = self.stores[0].kind.shapes
        return f"CachedFeatures({self.dataset.name!r}: {len(self)} pictures, {self.num_views} views, shapes={shapes})"

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels per stage."""
        return tuple(channels for channels, _, _ in self.stores[0].kind.shapes)

    @property
    def num_views(self) -> int:
        """Views of each picture."""
        return len(self.stores)

    def read(self, indices: ArrayLike, view: int | ArrayLike = 0) -> list[Tensor]:
        """Return features of some pictures.

        Args:
            indices: ``[B]``, positions in `dataset`, in any order.
            view: Which view; one for all, or one for each picture ``[B]``.

        Returns:
            A float32 map ``[B, C, H, W]`` per stage, finest first; pooled ones are ``[B, C, 1, 1]``.

        Raises:
            ConfigError: There is no such view.
        """
        chosen, views = np.asarray(indices, dtype=np.int64), np.asarray(view, dtype=np.int64)
        if views.size and not 0 <= views.min() <= views.max() < self.num_views:
            raise ConfigError(f"there are the views 0 to {self.num_views - 1}, got {view!r}; cache more views")
        if views.ndim == 0:
            return self.stores[int(views)].read(self.rows[int(views), chosen])
        if self.num_views == 1:
            return self.stores[0].read(self.rows[0, chosen])
        features = [torch.empty(len(chosen), *shape) for shape in self.stores[0].kind.shapes]
        for number, store in enumerate(self.stores):
            members = np.flatnonzero(views == number)
            for stage, part in zip(features, store.read(self.rows[number, chosen[members]]), strict=True):
                stage[torch.from_numpy(members)] = part
        return features

    def subset(self, indices: ArrayLike) -> CachedFeatures:
        """Return some of the pictures, in the order given; nothing is computed or copied.

        Args:
            indices: Positions in `dataset`, or a mask with one truth value per picture.
        """
        chosen = np.asarray(indices)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        return replace(self, dataset=self.dataset.subset(chosen), rows=self.rows[:, chosen])


class FeatureLoader(DataLoader[Any]):
    """Yields batches of cached features.

    The first pass is epoch 0, each further pass the next epoch; `set_epoch` goes to any other. Order and choice of
    views follow from the seed and the epoch alone, as with `manylabel.data.ImageLoader`.

    Args:
        cached: The features.
        batch_size: Pictures per batch.
        shuffle: Whether the order is random, another one each epoch.
        seed: Fixes order and views.
        sampler: Which pictures in which order, instead of `shuffle`.
        view: ``"random"`` draws one for each picture and epoch; a number takes that one.
        pin_memory: Whether batches come in page-locked memory, from where they reach a GPU faster.

    Raises:
        ConfigError: A setting is wrong.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from manylabel import data
        >>> from manylabel.backbone import Backbone
        >>> from manylabel.training import cache_features
        >>> from manylabel.types import InputSpec
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> cached = cache_features(
        ...     backbone, data.scenes(3), input_spec=InputSpec(size=(64, 64)), root=Path(tempfile.mkdtemp()),
        ...     engine="torch", num_workers=0,
        ... )
        >>> [len(batch) for batch in FeatureLoader(cached, batch_size=2, shuffle=True)]
        [2, 1]
    """

    def __init__(
        self,
        cached: CachedFeatures,
        *,
        batch_size: int = 32,
        shuffle: bool = False,
        seed: int = 0,
        sampler: Sampler[int] | None = None,
        view: int | Literal["random"] = "random",
        pin_memory: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        if shuffle and sampler is not None:
            raise ConfigError("give shuffle or a sampler, not both: the sampler decides on the order")
        if view != "random" and not (isinstance(view, int) and 0 <= view < cached.num_views):
            raise ConfigError(f"view must be 'random' or 0 to {cached.num_views - 1}, got {view!r}; cache more views")
        self.cached = cached
        self.view = view
        self.seed = seed
        self.num_empty = 0  # features were only kept of good pictures
        self.batches = SeededBatches(
            every_picture(len(cached), shuffle=shuffle, seed=seed) if sampler is None else sampler,
            batch_size=batch_size,
            seed=seed,
        )
        super().__init__(
            _DrawnFeatures(cached, view),
            batch_sampler=self.batches,
            collate_fn=_as_it_is,
            pin_memory=pin_memory,
            generator=torch.Generator(),  # its own: else each pass would move torch's, on which training depends
        )

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[FeatureBatch]:  # type: ignore[override] # torch promises its own class
        yield from super().__iter__()


class _DrawnFeatures(Dataset[FeatureBatch]):
    """Reads a whole batch at once."""

    def __init__(self, cached: CachedFeatures, view: int | Literal["random"]) -> None:
        self.cached = cached
        self.view = view

    def __len__(self) -> int:
        return len(self.cached)

    def __getitem__(self, draw: Draw) -> FeatureBatch:
        return self.__getitems__([draw])

    def __getitems__(self, draws: Sequence[Draw]) -> FeatureBatch:
        indices = np.array([draw.index for draw in draws], dtype=np.int64)
        random = np.array([draw.seed for draw in draws], dtype=np.int64) % self.cached.num_views
        views = random if self.view == "random" else np.full(len(draws), self.view, dtype=np.int64)
        targets, known = map(torch.from_numpy, self.cached.dataset.targets.dense(indices))  # [B, L]
        features = self.cached.read(indices, random if self.view == "random" else self.view)
        return FeatureBatch(tuple(features), targets, known, torch.from_numpy(indices), torch.from_numpy(views))


def _as_it_is(batch: Any) -> Any:  # noqa: ANN401 - torch expects a list here, but hands on what the data set gives
    return batch
