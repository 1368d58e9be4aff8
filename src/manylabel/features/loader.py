"""Cached features as a dataset, a loader of feature batches, and channel dropout.

Letters in shape comments: B images of a batch, V views, N images, L labels, C channels, H and W positions of a map.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import dropout2d
from torch.utils.data import Sampler

from manylabel.data.dataset import ImageDataset
from manylabel.data.sampling import Draw, SeededBatches, every_image
from manylabel.errors import ConfigError
from manylabel.features.store import FeatureStore
from manylabel.targets import Targets
from manylabel.types import BadImage, FeatureBatch


@dataclass(frozen=True, eq=False)
class CachedFeatures:
    """Features of a dataset's images, on disk.

    Args:
        dataset: The images that have features, in order, with their labels.
        stores: The features, one store per view; view 0 is the image as in evaluation.
        rows: ``[V, N]``, the row of each image in each store.
        bad: The images skipped because they could not be decoded.

    Examples:
        >>> import tempfile
        >>> from manylabel import data
        >>> from manylabel.backbone import Backbone
        >>> from manylabel.features import FeatureCache
        >>> from manylabel.types import InputSpec
        >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
        >>> cache = FeatureCache(backbone, input_spec=InputSpec(size=(64, 64)), root=tempfile.mkdtemp(), num_workers=0)
        >>> cached = cache.fill(cache.plan(data.scenes(3)))
        >>> len(cached), cached.channels, cached.read([2, 0])[0].shape
        (3, (512,), torch.Size([2, 512, 2, 2]))
        >>> [len(batch) for batch in FeatureLoader(cached, batch_size=2, shuffle=True)]
        [2, 1]
    """

    dataset: ImageDataset
    stores: tuple[FeatureStore, ...]
    rows: NDArray[np.int64]
    bad: tuple[BadImage, ...] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        shapes = self.stores[0].spec.shapes
        return f"CachedFeatures({self.dataset.name!r}: {len(self)} images, {self.num_views} views, shapes={shapes})"

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels per stage."""
        return tuple(channels for channels, _, _ in self.stores[0].spec.shapes)

    @property
    def num_views(self) -> int:
        """Number of views per image."""
        return len(self.stores)

    def read(self, indices: ArrayLike, view: int | ArrayLike = 0) -> list[Tensor]:
        """Read the features of some images.

        Args:
            indices: ``[B]``, positions in `dataset`, in any order.
            view: View of all images, or of each ``[B]``.

        Returns:
            A float32 map ``[B, C, H, W]`` per stage, finest first; pooled ones are ``[B, C, 1, 1]``.

        Raises:
            ConfigError: There is no such view.
        """
        chosen, views = np.asarray(indices, dtype=np.int64), np.asarray(view, dtype=np.int64)
        if views.size and not 0 <= views.min() <= views.max() < self.num_views:
            raise ConfigError(f"view must be 0 to {self.num_views - 1}, got {view!r}; cache more views")
        if views.ndim == 0 or self.num_views == 1:
            only = int(views.max(initial=0))
            return self.stores[only].read(self.rows[only, chosen])
        features = [torch.empty(len(chosen), *shape) for shape in self.stores[0].spec.shapes]
        for number, store in enumerate(self.stores):
            members = np.flatnonzero(views == number)
            for stage, part in zip(features, store.read(self.rows[number, chosen[members]]), strict=True):
                stage[torch.from_numpy(members)] = part
        return features

    def subset(self, indices: ArrayLike) -> "CachedFeatures":
        """Return some of the images, in the order given, without computing or copying features.

        Args:
            indices: Positions in `dataset`, or a boolean mask over the images.
        """
        chosen = np.asarray(indices)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        return replace(self, dataset=self.dataset.subset(chosen), rows=self.rows[:, chosen])


class FeatureLoader:
    """Load batches of cached features.

    The first pass is epoch 0, each further pass the next epoch; `set_epoch` selects any other. Order and views depend
    only on the seed and the epoch, as with `manylabel.data.ImageLoader`.

    Args:
        cached: The features.
        batch_size: Images per batch.
        shuffle: Whether to reshuffle the images every epoch.
        seed: Seed of order and views.
        sampler: Sampler of image positions, instead of `shuffle`.
        view: ``"random"`` for each image and epoch, or the number of a view.

    Raises:
        ConfigError: A setting is invalid.
    """

    num_empty = 0  # only readable images have features

    def __init__(
        self,
        cached: CachedFeatures,
        *,
        batch_size: int = 32,
        shuffle: bool = False,
        seed: int = 0,
        sampler: Sampler[int] | None = None,
        view: int | Literal["random"] = "random",
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        if shuffle and sampler is not None:
            raise ConfigError("pass shuffle or a sampler, not both: a sampler sets the order")
        if view != "random" and not (isinstance(view, int) and 0 <= view < cached.num_views):
            raise ConfigError(f"view must be 'random' or 0 to {cached.num_views - 1}, got {view!r}; cache more views")
        self.cached = cached
        self.view = view
        sampler = every_image(len(cached), shuffle=shuffle, seed=seed) if sampler is None else sampler
        self.batches = SeededBatches(sampler, batch_size=batch_size, seed=seed)

    @property
    def dataset_targets(self) -> Targets:
        """Targets of all images of the dataset."""
        return self.cached.dataset.targets

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self.batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[FeatureBatch]:
        return map(self._read, self.batches)

    def _read(self, draws: Sequence[Draw]) -> FeatureBatch:
        indices = np.array([draw.index for draw in draws], dtype=np.int64)
        random = np.array([draw.seed for draw in draws], dtype=np.int64) % self.cached.num_views
        views = random if self.view == "random" else np.full_like(indices, self.view)
        targets, known = map(torch.from_numpy, self.cached.dataset.targets.dense(indices))  # [B, L]
        features = self.cached.read(indices, views if self.view == "random" else self.view)
        return FeatureBatch(tuple(features), targets, known, torch.from_numpy(indices), torch.from_numpy(views))


@contextmanager
def dropped_channels(head: nn.Module, *, fraction: float) -> Iterator[None]:
    """Apply channel dropout to a head's inputs during training, to reduce overfitting.

    Args:
        head: Head that takes a list of maps ``[B, C, H, W]``.
        fraction: Fraction of channels to drop, chosen per image; the others are scaled up to compensate.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> head, maps = LinearClassifier(8, 2), [torch.ones(4, 8, 3, 3)]
        >>> with dropped_channels(head, fraction=0.5):
        ...     torch.equal(head(maps), head(maps)), torch.equal(head.eval()(maps), head(maps))
        (False, True)
    """

    def drop(module: nn.Module, inputs: tuple[Sequence[Tensor]]) -> tuple[list[Tensor]]:
        return ([dropout2d(maps, fraction, training=module.training) for maps in inputs[0]],)

    handle = head.register_forward_pre_hook(drop)
    try:
        yield
    finally:
        handle.remove()
