"""Which images are drawn, in which order and with which chance: each once, or those with rare labels more often.

Letters in shape comments: N images, L labels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, Sampler

from manylabel.errors import ConfigError
from manylabel.seeds import seed_sequence
from manylabel.targets import Targets

__all__ = ["Draw", "EpochSampler", "SeededBatches", "class_aware_sampler", "every_image"]


class EpochSampler(Sampler[int]):
    """Positions of images, drawn anew for each epoch; the same for the same seed and epoch.

    Args:
        draw: Draws the positions of one epoch.
        num_samples: How many it draws.
        seed: Fixes all draws.

    Examples:
        >>> sampler = EpochSampler(lambda generator: generator.permutation(5), num_samples=5, seed=1)
        >>> first = list(sampler)
        >>> sampler.set_epoch(1)
        >>> list(sampler) == first, sorted(sampler) == sorted(first)
        (False, True)
    """

    def __init__(
        self, draw: Callable[[np.random.Generator], NDArray[np.int64]], *, num_samples: int, seed: int = 0
    ) -> None:
        self.draw = draw
        self.num_samples = num_samples
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose positions are drawn next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw(np.random.default_rng([self.seed, self.epoch])).tolist())


def every_image(num_images: int, *, shuffle: bool, seed: int = 0) -> EpochSampler:
    """Return a sampler that gives every image once.

    Args:
        num_images: How many images there are.
        shuffle: Whether their order is random, another one each epoch.
        seed: Fixes the order.

    Examples:
        >>> list(every_image(3, shuffle=False))
        [0, 1, 2]
    """

    def draw(generator: np.random.Generator) -> NDArray[np.int64]:
        return generator.permutation(num_images) if shuffle else np.arange(num_images)

    return EpochSampler(draw, num_samples=num_images, seed=seed)


def class_aware_sampler(
    targets: Targets, *, seed: int = 0, power: float = 0.0, num_samples: int | None = None
) -> EpochSampler:
    """Return a sampler that draws a label, then an image that has it, so that rare labels are seen more often.

    Images repeat within an epoch, and some are left out of it. Labels that no image has are never drawn. Images
    without any (known) label get their fair share: a tenth of the draws, if they are a tenth of the images.

    Args:
        targets: Which labels each image has, ``[N, L]``.
        seed: Fixes all draws.
        power: A label is drawn with a chance proportional to (images that have it) ** `power`: 0 draws all labels
            equally often, 1 as often as they are in the data, 0.5 is between.
        num_samples: Draws per epoch; as many as there are images when left out.

    Raises:
        ConfigError: There is no image, or a setting is out of range.

    Examples:
        >>> targets = Targets.from_lists([[0]] * 99 + [[1]], num_labels=2)
        >>> drawn = list(class_aware_sampler(targets, num_samples=1000))
        >>> 450 < drawn.count(99) < 550
        True
    """
    total = len(targets) if num_samples is None else num_samples
    if not len(targets):
        raise ConfigError("there is no image to draw from; give targets of at least one")
    if not 0 <= power <= 1:
        raise ConfigError(f"power must be 0 (all labels alike) to 1 (as in the data), got {power}")
    if total < 1:
        raise ConfigError(f"num_samples must be at least 1, got {total}")

    by_label = targets.present.tocsc()
    unlabelled = np.flatnonzero(targets.labels_per_image == 0)
    images: NDArray[np.int64] = np.concatenate(
        [by_label.indices, unlabelled]
    )  # those of label 0, of label 1, ..., of none
    starts = by_label.indptr.astype(np.int64)  # [L + 1], the last is where those of none start
    counts = np.append(targets.positives, len(unlabelled))  # [L + 1]
    chances = _chances(counts, power=power, unlabelled_share=len(unlabelled) / len(targets))

    def draw(generator: np.random.Generator) -> NDArray[np.int64]:
        labels = generator.choice(len(chances), size=total, p=chances)
        drawn: NDArray[np.int64] = images[starts[labels] + generator.integers(counts[labels])]
        return drawn

    return EpochSampler(draw, num_samples=total, seed=seed)


def _chances(counts: NDArray[np.int64], *, power: float, unlabelled_share: float) -> NDArray[np.float64]:
    """Return the chance of each label, and last that of none, ``[L + 1]``."""
    weights = np.where(counts > 0, np.maximum(counts, 1) ** power, 0.0)[:-1]
    labelled = weights * (1 - unlabelled_share) / max(weights.sum(), 1.0)
    return np.append(labelled, unlabelled_share)


@dataclass(frozen=True, slots=True)
class Draw:
    """Which image, and the seed of the chance in its transform."""

    index: int
    seed: int


class SeededBatches(Sampler[list[Draw]]):
    """Batches of draws, each with a seed that follows from the seed, the epoch and its place in the epoch.

    So the chance in a transform does not depend on how many processes load, nor on what was loaded before.

    Args:
        sampler: Which images, in which order.
        batch_size: Images per batch.
        seed: Fixes all seeds.

    Examples:
        >>> batches = SeededBatches(every_image(3, shuffle=False), batch_size=2)
        >>> [[draw.index for draw in batch] for batch in batches]
        [[0, 1], [2]]
    """

    def __init__(self, sampler: Sampler[int], *, batch_size: int, seed: int = 0) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.seed = seed
        self._epoch = 0
        self._first = 0

    @property
    def epoch(self) -> int:
        """The epoch that is drawn next; that of the sampler, if it has one."""
        return int(getattr(self.sampler, "epoch", self._epoch))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that is drawn next."""
        self._epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def skip(self, num_batches: int) -> None:
        """Leave out the first batches of the next pass, as if they had been drawn: a run that resumes begins there."""
        self._first = num_batches

    def __len__(self) -> int:
        return len(BatchSampler(self.sampler, self.batch_size, drop_last=False))

    def __iter__(self) -> Iterator[list[Draw]]:
        epoch, indices, first = self.epoch, iter(self.sampler), self._first
        self.set_epoch(epoch + 1)
        self.skip(0)
        batches = enumerate(BatchSampler(indices, self.batch_size, drop_last=False))
        for number, batch in islice(batches, first, None):
            seeds = seed_sequence("augmentation", self.seed, epoch, number).generate_state(len(batch))
            # The position is mixed in because processes that train together share the seed but not the images.
            yield [Draw(index, seed ^ index) for index, seed in zip(batch, seeds.tolist(), strict=True)]
