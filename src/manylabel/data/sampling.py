"""Samplers: every image once per epoch, or images with rare labels more often.

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


class EpochSampler(Sampler[int]):
    """Sample new image positions each epoch, reproducibly for a seed and epoch.

    Args:
        draw: Draws the positions of one epoch.
        num_samples: Number of positions per epoch.
        seed: Seed of all draws.

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
        """Set the epoch of the next pass."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw(np.random.default_rng([self.seed, self.epoch])).tolist())


def every_image(num_images: int, *, shuffle: bool = True, seed: int = 0) -> EpochSampler:
    """Return a sampler that draws every image once per epoch.

    Args:
        num_images: Number of images.
        shuffle: Whether to reshuffle every epoch.
        seed: Seed of the order.

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
    """Return a class-aware sampler: draws a label, then an image that has it, to oversample rare labels.

    An epoch repeats some images and omits others. Labels without positives are never drawn. Images without any (known)
    label are drawn as often as they occur: a tenth of the draws, if they are a tenth of the images.

    Args:
        targets: Labels of each image, ``[N, L]``.
        seed: Seed of all draws.
        power: Exponent of label frequency: a label is drawn with probability proportional to (its number of images) **
            `power`; 0 draws all labels equally often, 1 as often as they occur.
        num_samples: Draws per epoch (default: the number of images).

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
        raise ConfigError("there are no images to sample from; pass targets of at least one image")
    if not 0 <= power <= 1:
        raise ConfigError(f"power must be between 0 (all labels equally often) and 1 (as in the data), got {power}")
    if total < 1:
        raise ConfigError(f"num_samples must be at least 1, got {total}")

    by_label = targets.present.tocsc()
    unlabelled = np.flatnonzero(targets.labels_per_image == 0)
    images: NDArray[np.int64] = np.concatenate(
        [by_label.indices, unlabelled]
    )  # images of label 0, of label 1, ..., unlabelled
    starts = by_label.indptr.astype(np.int64)  # [L + 1], the last is the start of the unlabelled images
    counts = np.append(targets.positives, len(unlabelled))  # [L + 1]
    probabilities = _probabilities(counts, power=power, unlabelled_fraction=len(unlabelled) / len(targets))

    def draw(generator: np.random.Generator) -> NDArray[np.int64]:
        labels = generator.choice(len(probabilities), size=total, p=probabilities)
        drawn: NDArray[np.int64] = images[starts[labels] + generator.integers(counts[labels])]
        return drawn

    return EpochSampler(draw, num_samples=total, seed=seed)


def _probabilities(counts: NDArray[np.int64], *, power: float, unlabelled_fraction: float) -> NDArray[np.float64]:
    """Return the probability of each label and, last, of the unlabelled images, ``[L + 1]``."""
    weights = np.where(counts > 0, np.maximum(counts, 1) ** power, 0.0)[:-1]
    labelled = weights * (1 - unlabelled_fraction) / max(weights.sum(), 1.0)
    return np.append(labelled, unlabelled_fraction)


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampled image position, and the seed of its augmentation."""

    index: int
    seed: int


class SeededBatches(Sampler[list[Draw]]):
    """Batches of draws, each seeded from the seed, the epoch and its position in the epoch.

    Augmentation therefore depends neither on the number of workers nor on what was loaded before.

    Args:
        sampler: Sampler of image positions.
        batch_size: Images per batch.
        seed: Base seed.

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
        """Epoch of the next pass; that of the sampler, if it has one."""
        return int(getattr(self.sampler, "epoch", self._epoch))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self._epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def skip(self, num_batches: int) -> None:
        """Skip the first batches of the next pass, to resume a run mid-epoch."""
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
            # Mix in the position: distributed processes share the seed but not the images.
            yield [Draw(index, seed ^ index) for index, seed in zip(batch, seeds.tolist(), strict=True)]
