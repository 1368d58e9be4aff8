"""Batches of decoded images; unreadable images are skipped, counted and logged.

Letters in shape comments: B images of a batch, L labels, H and W pixels.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from manylabel.data.dataset import ImageDataset
from manylabel.data.sampling import Draw, SeededBatches, every_image
from manylabel.data.sources import fetch
from manylabel.errors import BadImagesError, ConfigError, DataError, ImageError
from manylabel.images import decode
from manylabel.targets import Targets
from manylabel.types import BadImage, Batch

logger = logging.getLogger(__name__)

MOST_LISTED = 20  # bad images in an error


@dataclass(frozen=True, eq=False)
class Sample:
    """A decoded image: its position, pixels ``[3, H, W]``, targets ``[L]`` and their known mask ``[L]``."""

    index: int
    image: Tensor
    targets: Tensor
    known: Tensor


class DecodedImages(Dataset[Sample | BadImage]):
    """Decode and transform the images of a dataset; an image that cannot be decoded becomes a `BadImage`.

    Args:
        dataset: The images and their labels.
        transform: Turns an RGB image into a tensor. If it has `at_least` (height, width), much larger JPEG files are
            decoded at reduced scale.

    Examples:
        >>> from manylabel import LabelSpace
        >>> from manylabel.data import Files, eval_transform
        >>> from manylabel.targets import Targets
        >>> from manylabel.types import InputSpec
        >>> targets = Targets.from_lists([[0]], num_labels=1)
        >>> dataset = ImageDataset(Files("nowhere", ["a.jpg"]), targets, LabelSpace(["cat"]))
        >>> DecodedImages(dataset, transform=eval_transform(InputSpec()))[0]
        BadImage(index=0, name='a.jpg', reason='there is no such file')
    """

    def __init__(self, dataset: ImageDataset, *, transform: Callable[[Image.Image], Tensor]) -> None:
        self.dataset = dataset
        self.transform = transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, draw: Draw | int) -> Sample | BadImage:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw | int]) -> list[Sample | BadImage]:
        """Return a whole batch, as torch's DataLoader asks for it; plain positions are seeded by torch's generator."""
        seeded = [draw if isinstance(draw, Draw) else Draw(draw, int(torch.randint(2**32, ()))) for draw in draws]
        targets, known = map(torch.from_numpy, self.dataset.targets.dense([draw.index for draw in seeded]))  # [B, L]
        with torch.random.fork_rng(devices=[]):
            return [self._sample(draw, *rows) for draw, *rows in zip(seeded, targets, known, strict=True)]

    def _sample(self, draw: Draw, targets: Tensor, known: Tensor) -> Sample | BadImage:
        name = self.dataset.images.name(draw.index)
        try:
            source = fetch(self.dataset.images, draw.index)
            image = decode(source, name=name, at_least=getattr(self.transform, "at_least", None))
        except ImageError as error:
            return BadImage(draw.index, name, error.reason)
        torch.default_generator.manual_seed(draw.seed)
        return Sample(draw.index, self.transform(image), targets, known)


def collate(samples: Sequence[Sample | BadImage]) -> Batch:
    """Collate samples into a batch; bad images are listed in its `bad`.

    Examples:
        >>> sample = Sample(7, torch.zeros(3, 2, 2), targets=torch.ones(1), known=torch.tensor([True]))
        >>> batch = collate([sample, BadImage(8, "b.jpg", "it is empty")])
        >>> batch.images.shape, batch.indices.tolist(), len(batch.bad)
        (torch.Size([1, 3, 2, 2]), [7], 1)
    """
    good = [sample for sample in samples if isinstance(sample, Sample)]
    bad = tuple(sample for sample in samples if isinstance(sample, BadImage))
    indices = torch.tensor([sample.index for sample in good], dtype=torch.int64)
    if not good:
        nothing = torch.empty(0)
        return Batch(images=nothing, targets=nothing, known=nothing.bool(), indices=indices, bad=bad)
    return Batch(
        images=torch.stack([sample.image for sample in good]),
        targets=torch.stack([sample.targets for sample in good]),
        known=torch.stack([sample.known for sample in good]),
        indices=indices,
        bad=bad,
    )


class BadImages:
    """Account of the unreadable images of a pass: each is logged once, and too many of them stop the pass.

    Args:
        num_images: Total number of images.
        max_bad_fraction: Fraction of bad images that is tolerated: 0 for none, 1 for all; see `most_bad`.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> bad = BadImages(2, max_bad_fraction=0.1)
        >>> bad.add([BadImage(0, "a.jpg", "it is empty")])
        Traceback (most recent call last):
        manylabel.errors.BadImagesError: 1 of 2 images cannot be read so far, more than max_bad_fraction=0.1 allows; ...
    """

    def __init__(self, num_images: int, *, max_bad_fraction: float = 0.01) -> None:
        if not 0 <= max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction must be in 0..1, got {max_bad_fraction}")
        self.num_images = num_images
        self.max_bad_fraction = max_bad_fraction
        self._by_index: dict[int, BadImage] = {}

    def __len__(self) -> int:
        return len(self._by_index)

    def __iter__(self) -> Iterator[BadImage]:
        return iter(self._by_index.values())

    def add(self, bad: Sequence[BadImage]) -> None:
        """Record bad images.

        Raises:
            BadImagesError: There are too many; the message lists the first.
        """
        for image in bad:
            if image.index not in self._by_index:
                logger.warning("bad image %r: %s", image.name, image.reason)
            self._by_index.setdefault(image.index, image)
        if bad and len(self) > most_bad(self.num_images, self.max_bad_fraction):
            raise BadImagesError("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        yield (
            f"{len(self)} of {self.num_images} images cannot be read so far, more than "
            f"max_bad_fraction={self.max_bad_fraction} allows; fix or remove them ('manylabel data check' finds all), "
            "or in Python raise max_bad_fraction:"
        )
        for image in islice(self, MOST_LISTED):
            yield f"  {image.name!r}: {image.reason}"
        if len(self) > MOST_LISTED:
            yield f"  and {len(self) - MOST_LISTED} more"


class ImageLoader(DataLoader[Any]):
    """Load batches of images and record those that cannot be decoded.

    A bad image is dropped from its batch without replacement; a batch left empty is not yielded. Each bad image is
    recorded once, whatever the number of epochs.

    The first pass is epoch 0, each further pass the next epoch; `set_epoch` selects any other. Order and augmentation
    depend only on the seed and the epoch, not on the number of workers.

    Args:
        dataset: The images and their labels.
        transform: Turns an RGB image into a tensor; see `DecodedImages`.
        batch_size: Images per batch.
        shuffle: Whether to reshuffle the images every epoch.
        sampler: Sampler of image positions, instead of `shuffle`; for example `class_aware_sampler`.
        num_workers: Number of decoding processes; 0 decodes in the main process.
        max_bad_fraction: Fraction of bad images that is tolerated: 0 for none, 1 for all; see `most_bad`.
        seed: Seed of order and augmentation.

    Raises:
        ConfigError: A setting is invalid.
        BadImagesError: While iterating: too many images are bad.
        DataError: While iterating: a worker died.

    Examples:
        >>> from manylabel import LabelSpace
        >>> from manylabel.data import Files, eval_transform
        >>> from manylabel.targets import Targets
        >>> from manylabel.types import InputSpec
        >>> targets = Targets.from_lists([[0], [0]], num_labels=1)
        >>> dataset = ImageDataset(Files("nowhere", ["a.jpg", "b.jpg"]), targets, LabelSpace(["cat"]))
        >>> loader = ImageLoader(dataset, transform=eval_transform(InputSpec()), batch_size=2, max_bad_fraction=1)
        >>> len(list(loader)), [image.name for image in loader.bad]
        (0, ['a.jpg', 'b.jpg'])
    """

    def __init__(
        self,
        dataset: ImageDataset,
        *,
        transform: Callable[[Image.Image], Tensor],
        batch_size: int = 32,
        shuffle: bool = False,
        sampler: Sampler[int] | None = None,
        num_workers: int = 0,
        max_bad_fraction: float = 0.01,
        seed: int = 0,
    ) -> None:
        if batch_size < 1 or num_workers < 0:
            raise ConfigError(f"batch_size must be above 0, num_workers at least 0, got {batch_size} and {num_workers}")
        if shuffle and sampler is not None:
            raise ConfigError("pass shuffle or a sampler, not both: a sampler sets the order")
        self.max_bad_fraction = max_bad_fraction
        self.seed = seed
        self._bad = BadImages(len(dataset), max_bad_fraction=max_bad_fraction)
        self.num_empty = 0
        self.batches = SeededBatches(
            every_image(len(dataset), shuffle=shuffle, seed=seed) if sampler is None else sampler,
            batch_size=batch_size,
            seed=seed,
        )
        super().__init__(
            DecodedImages(dataset, transform=transform),
            batch_sampler=self.batches,
            collate_fn=collate,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            generator=torch.Generator(),  # private: torch's global generator, which training uses, must not advance
        )

    @property
    def dataset_targets(self) -> Targets:
        """Targets of all images of the dataset."""
        images: ImageDataset = self.dataset.dataset  # type: ignore[attr-defined] # of `DecodedImages`
        return images.targets

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self.batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override] # torch promises its own class, users a `Batch`
        self.num_empty = 0
        with explained_worker_deaths(self):
            for batch in super().__iter__():
                self._bad.add(batch.bad)
                if len(batch):
                    yield batch
                else:
                    self.num_empty += 1

    @property
    def bad(self) -> list[BadImage]:
        """The bad images so far, each once, in the order found."""
        return list(self._bad)


@contextmanager
def explained_worker_deaths(loader: DataLoader[Any]) -> Iterator[None]:
    """Shut down a loader's workers when a pass fails, and explain the error if a worker died.

    Args:
        loader: The loader used inside the block; its workers are persistent.

    Raises:
        DataError: A worker was killed.
    """
    try:
        yield
    except Exception as error:
        _end_workers(loader)
        if not isinstance(error, RuntimeError) or "DataLoader worker (pid" not in str(error):
            raise
        raise DataError(
            f"an image-decoding worker was killed ({error}), most likely because memory ran out: "
            f"lower num_workers ({loader.num_workers}) or batch_size, or give the container more shared memory"
        ) from error


def most_bad(num_images: int, max_bad_fraction: float) -> float:
    """Return the number of bad images tolerated: the fraction, or in small datasets a tenth, up to five; 0 means none.

    Examples:
        >>> most_bad(10_000, 0.01), most_bad(80, 0.01), most_bad(20, 0.01), most_bad(80, 0.0)
        (100.0, 5, 2, 0.0)
    """
    tolerated = max_bad_fraction * num_images
    return max(tolerated, min(5, num_images // 10)) if max_bad_fraction else tolerated


def _end_workers(loader: DataLoader[Any]) -> None:
    """Shut workers down now: torch would wait seconds for them later, and raise at odd times if one is dead."""
    iterator, loader._iterator = loader._iterator, None
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        with suppress(RuntimeError):  # about the dead worker
            iterator._shutdown_workers()
