"""Loaders that a run can leave and come back to, in one process or in several.

The batches of an epoch follow from the seed and the epoch alone, so the place in the run is two numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from manylabel.data import EpochSampler
from manylabel.data.sampling import SeededBatches

__all__ = ["ResumableLoader", "SeededLoader", "Share", "shared_sampler"]

AnyBatch = TypeVar("AnyBatch", covariant=True)


class SeededLoader(Protocol[AnyBatch]):
    """A loader whose order and chance come from `batches`: of images or of cached features.

    Attributes:
        batches: What is drawn.
        num_empty: Batches of the present pass that were left out, since all their images are bad.
    """

    batches: SeededBatches
    num_empty: int

    def __iter__(self) -> Iterator[AnyBatch]: ...

    def __len__(self) -> int: ...


class ResumableLoader(Generic[AnyBatch]):
    """Gives the batches of one epoch after the other, and goes on from any place without loading what comes before.

    Every epoch has its full length: in place of a batch whose images are all bad, the next one comes twice; in place
    of the last, the first of the epoch. A resumed run can do the same, and processes that train together stay together.

    Args:
        loader: A loader of images or of cached features.

    Examples:
        >>> class Positions(list):
        ...     batches = SeededBatches(EpochSampler(lambda generator: np.arange(6), num_samples=6), batch_size=2)
        ...     num_empty = 0
        ...     __iter__ = lambda self: ([draw.index for draw in batch] for batch in self.batches)
        ...     __len__ = lambda self: len(self.batches)
        >>> loader = ResumableLoader(Positions())
        >>> loader.load_state_dict({"epoch": 4, "batch": 1})
        >>> list(loader), loader.state_dict()
        ([[2, 3], [4, 5]], {'epoch': 5, 'batch': 0})
    """

    def __init__(self, loader: SeededLoader[AnyBatch]) -> None:
        self.loader = loader
        self.epoch = 0
        self.batch = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[AnyBatch]:
        self.load_state_dict(self.state_dict())  # a pass that was left after its last batch is over
        for place, batch in self._good_batches(self.batch):
            while self.batch <= place:
                self.batch += 1
                yield batch
        for _, batch in islice(self._good_batches(0), int(self.batch < len(self))):
            while self.batch < len(self):
                self.batch += 1
                yield batch
        self.batch = len(self)

    def state_dict(self) -> dict[str, int]:
        """Return the place of the next batch."""
        over = self.batch >= len(self)
        return {"epoch": self.epoch + over, "batch": 0 if over else self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a place."""
        self.epoch, self.batch = state["epoch"], state["batch"]

    def _good_batches(self, first: int) -> Iterator[tuple[int, AnyBatch]]:
        """Yield the batches of the epoch from a place on, with their places, without those whose images are bad."""
        self.loader.batches.set_epoch(self.epoch)
        self.loader.batches.skip(first)
        for number, batch in enumerate(self.loader):
            yield first + number + self.loader.num_empty, batch


@dataclass(frozen=True)
class Share:
    """Part of the images that a process works on: that of number `rank` of `world_size`."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def of_process(cls, world_size: int) -> Share:
        """Return the part of this process, by the variables that torchrun, SLURM and Lightning set.

        Examples:
            >>> Share.of_process(1)
            Share(rank=0, world_size=1)
        """
        names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
        ranks = [int(os.environ[name]) for name in names if name in os.environ]
        return cls(ranks[0], world_size) if ranks and world_size > 1 else cls()


def shared_sampler(num_images: int, share: Share, *, shuffle: bool, seed: int = 0, even: bool = True) -> EpochSampler:
    """Return a sampler of the images that one of several processes works on.

    Args:
        num_images: Images of the dataset.
        share: Which process, of how many.
        shuffle: Whether their order is random, another one each epoch.
        seed: Fixes the order; must be the same in all processes.
        even: Whether all get the same number, some images twice if need be: training needs it, a metric cannot
            have it.

    Examples:
        >>> [list(shared_sampler(5, Share(rank, 2), shuffle=False)) for rank in (0, 1)]
        [[0, 2, 4], [1, 3, 0]]
    """
    total = -(-num_images // share.world_size) * share.world_size if even else num_images

    def draw(generator: np.random.Generator) -> NDArray[np.int64]:
        order = generator.permutation(num_images) if shuffle else np.arange(num_images)
        return np.resize(order, total)[share.rank :: share.world_size]

    return EpochSampler(draw, num_samples=len(range(share.rank, total, share.world_size)), seed=seed)
