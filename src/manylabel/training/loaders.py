"""Resumable loaders for one or several processes.

The batches of an epoch depend only on the seed and the epoch: epoch and batch define the position in a run.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from manylabel.data import EpochSampler
from manylabel.data.sampling import SeededBatches
from manylabel.targets import Targets

AnyBatch = TypeVar("AnyBatch", covariant=True)


class SeededLoader(Protocol[AnyBatch]):
    """Loader of images or cached features whose order and randomness come from `batches`.

    Attributes:
        batches: Sampler of batches.
        dataset_targets: Targets of all images of the dataset.
        num_empty: Batches skipped in the current pass because all their images are unreadable.
    """

    batches: SeededBatches
    num_empty: int

    @property
    def dataset_targets(self) -> Targets:
        """Targets of all images of the dataset."""
        ...

    def __iter__(self) -> Iterator[AnyBatch]: ...

    def __len__(self) -> int: ...


class ResumableLoader(Generic[AnyBatch]):
    """Yield the batches of successive epochs, resumable at any position without loading earlier batches.

    Every epoch has its full length: a batch whose images are all unreadable is replaced by the next one, the last by
    the first of the epoch. Resumed runs and parallel processes stay in step.

    Args:
        loader: Loader of images or cached features.

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
        self.load_state_dict(self.state_dict())  # a pass stopped after its last batch is complete
        for position, batch in self._good_batches(self.batch):
            while self.batch <= position:
                self.batch += 1
                yield batch
        for _, batch in islice(self._good_batches(0), int(self.batch < len(self))):
            while self.batch < len(self):
                self.batch += 1
                yield batch
        self.batch = len(self)

    def state_dict(self) -> dict[str, int]:
        """Return the position of the next batch."""
        over = self.batch >= len(self)
        return {"epoch": self.epoch + over, "batch": 0 if over else self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a position."""
        self.epoch, self.batch = state["epoch"], state["batch"]

    def _good_batches(self, first: int) -> Iterator[tuple[int, AnyBatch]]:
        """Yield the readable batches of the epoch from a position on, with their positions."""
        self.loader.batches.set_epoch(self.epoch)
        self.loader.batches.skip(first)
        for number, batch in enumerate(self.loader):
            yield first + number + self.loader.num_empty, batch


@dataclass(frozen=True)
class Share:
    """Part of the images for the process `rank` of `world_size`."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def of_process(cls, world_size: int) -> "Share":
        """Return the part of this process, from the environment of torchrun, SLURM or Lightning.

        Examples:
            >>> Share.of_process(1)
            Share(rank=0, world_size=1)
        """
        names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
        ranks = [int(os.environ[name]) for name in names if name in os.environ]
        return cls(ranks[0], world_size) if ranks and world_size > 1 else cls()


def shared_sampler(sampler: EpochSampler, share: Share, *, even: bool = True) -> EpochSampler:
    """Return a sampler of the images of one process.

    Args:
        sampler: Sampler of the images of all processes; must be the same in each.
        share: Part of this process.
        even: Give all processes the same number of images, repeating some if necessary: required in training, wrong
            for metrics.

    Examples:
        >>> from manylabel.data.sampling import every_image
        >>> [list(shared_sampler(every_image(5, shuffle=False), Share(rank, 2))) for rank in (0, 1)]
        [[0, 2, 4], [1, 3, 0]]
    """
    total = -(-len(sampler) // share.world_size) * share.world_size if even else len(sampler)

    def draw(generator: np.random.Generator) -> NDArray[np.int64]:
        return np.resize(sampler.draw(generator), total)[share.rank :: share.world_size]

    return EpochSampler(draw, num_samples=len(range(share.rank, total, share.world_size)), seed=sampler.seed)
