"""Engines and the steps from an image to its scores: images are named, prepared, and scored in batches.

`Classifier.predict`, the commands, the server and Ray all use this module, so they give the same scores and report
unreadable images the same way. Nothing here needs torch.

Letters in shape comments: B images of a batch, L labels, H and W pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.errors import ConfigError, DataError, ImageError
from manylabel.image_files import expand
from manylabel.images import ImageLike, Pixels, prepare
from manylabel.page import plural
from manylabel.predictions import InferenceSpec, Predictions
from manylabel.types import BadImage, InputSpec

if TYPE_CHECKING:
    from manylabel.progress import ProgressBar


class ImageSource(Protocol):
    """Encoded images by position, as in `manylabel.data.ImageSource`, which needs polars."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Path | bytes: ...
    def name(self, index: int) -> str:
        """Return the name of an image."""
        ...


class Dataset(Protocol):
    """Images and, possibly, their labels, as in `manylabel.data.ImageDataset`."""

    @property
    def images(self) -> ImageSource:
        """The images."""
        ...


Images: TypeAlias = "ImageLike | Iterable[ImageLike] | Dataset"
"""One image, several, a folder or a dataset."""

NamedImage: TypeAlias = "tuple[str, ImageLike | ImageError]"
"""Name and image, or the error that prevented fetching it."""


class Engine(ABC):
    """Model that predicts tags: an exported file in onnxruntime, or a classifier in torch.

    Attributes:
        spec: Labels, preprocessing and thresholds.
        on_gpu: Whether the model runs on a GPU; images are then decoded by more processes.
    """

    spec: InferenceSpec
    on_gpu = False

    @abstractmethod
    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for images ``[B, H, W, 3]``."""

    @abstractmethod
    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return logits ``[B, L]`` before calibration."""

    def predict(self, images: Images, *, batch_size: int = 32) -> Predictions:
        """Predict the tags of one or more images, in this process.

        Args:
            images: A file, a folder (recursively), encoded bytes, a PIL image, a uint8 array ``[H, W, 3]``, a tensor
                ``[3, H, W]`` (uint8 or 0..1), any mix of these in a list, or a dataset of `manylabel.data`.
            batch_size: Number of images per batch.

        Returns:
            Scores of every image and label; an unreadable image is recorded at its position. Images in memory are
            retained, to show and draw them, unless they come from an iterator or a dataset.

        Raises:
            DataError: A folder contains no images.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        named, total = name_images(images), None
        is_lazy = isinstance(images, Iterator) or _source_of(images) is not None
        if not is_lazy:
            listed = list(named)
            named, total = iter(listed), len(listed)
        elif isinstance(images, Sized):
            total = len(images)
        parts: list[Predictions] = []
        with nullcontext() if total is not None and total <= batch_size else _progress_bar() as bar:
            while batch := list(islice(named, batch_size)):
                prepared = prepare_batch(batch, self.spec.input_spec)
                parts.append(score_batch(self, prepared, sources=[_kept(image, is_lazy) for _, image in batch]))
                if bar is not None:
                    bar.update(sum(map(len, parts)), total)
        return join_predictions(parts, self.spec)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({plural(len(self.spec.labels), 'label')})"


def _kept(image: ImageLike | ImageError, is_lazy: bool) -> ImageLike | None:
    """Return what to show and draw an image from."""
    is_file = isinstance(image, str | Path)
    return None if isinstance(image, ImageError) or (is_lazy and not is_file) else image


def _progress_bar() -> ProgressBar:
    from manylabel.progress import ProgressBar  # imports rich, which a single batch does not need

    return ProgressBar("tagging images")


class Uncalibrated(Engine):
    """Engine without its model's calibration, for `tune` to find a new one.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.spec = engine.spec

    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return logits ``[B, L]``."""
        return self.engine.logits(pixels)

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return the uncalibrated probabilities ``[B, L]``."""
        logits = self.engine.logits(pixels).astype(np.float64)
        if self.spec.single_label:
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            return np.asarray(odds / odds.sum(axis=1, keepdims=True), dtype=np.float32)
        return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)), dtype=np.float32)  # numerically stable sigmoid


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """Images ready for an engine.

    Args:
        names: Name of each image.
        pixels: ``[B, H, W, 3]``, of the readable images.
        errors: Reason why each image could not be read; None if it could.
    """

    names: tuple[str, ...]
    pixels: Pixels
    errors: tuple[str | None, ...]


def prepare_batch(images: Sequence[NamedImage], spec: InputSpec) -> PreparedBatch:
    """Prepare images of any kind; unreadable ones are recorded.

    Examples:
        >>> prepare_batch([("a.jpg", "no_such.jpg")], InputSpec(size=(8, 8))).errors
        ('there is no such file',)
    """
    pixels: list[Pixels] = []
    errors: list[str | None] = []
    for name, image in images:
        try:
            if isinstance(image, ImageError):
                raise image
            pixels.append(prepare(image, spec, name=name))
            errors.append(None)
        except ImageError as error:
            errors.append(error.reason)
    stacked = np.stack(pixels) if pixels else np.empty((0, *spec.size, 3), dtype=np.uint8)
    return PreparedBatch(tuple(name for name, _ in images), stacked, tuple(errors))


def score_batch(engine: Engine, batch: PreparedBatch, *, sources: Sequence[ImageLike | None] = ()) -> Predictions:
    """Score prepared images.

    Args:
        engine: Engine that scores pixels.
        batch: The images.
        sources: The images as given (default: the files called by their names).
    """
    spec = engine.spec
    scores = np.full((len(batch.names), len(spec.labels)), np.nan, dtype=np.float32)
    if len(batch.pixels):
        scores[[row for row, error in enumerate(batch.errors) if error is None]] = engine.scores(batch.pixels)
    bad = [
        BadImage(row, name, error)
        for row, (name, error) in enumerate(zip(batch.names, batch.errors, strict=True))
        if error is not None
    ]
    return Predictions(scores, spec.labels, batch.names, spec.thresholds, spec.single_label, tuple(bad), sources)


def name_images(images: Images) -> Iterator[NamedImage]:
    """Yield each image with a name: its path, its name in a dataset, or its position; a folder is expanded.

    Args:
        images: One image, several, or a dataset; consumed lazily.

    Raises:
        DataError: It is none of these, or a folder contains no images.

    Examples:
        >>> [name for name, _ in name_images(["a.jpg", b"..."])]
        ['a.jpg', 'image 1']
    """
    source = _source_of(images)
    if source is not None:
        yield from ((source.name(position), _fetched(source, position)) for position in range(len(source)))
        return
    # an array or tensor is one image; a stack of them, or a column of a table, is several
    is_one = isinstance(images, str | Path | bytes | Image.Image) or getattr(images, "ndim", None) in (2, 3)
    listed = cast("Iterable[ImageLike]", [images] if is_one else images)
    if not hasattr(listed, "__iter__") and not hasattr(listed, "__getitem__"):
        kinds = "a file, a folder, a dataset, bytes, a PIL image, an array, a tensor or a list of these"
        raise DataError(f"images must be {kinds}, got {type(images).__name__}")
    for position, image in enumerate(listed):
        if isinstance(image, str | Path):
            yield from ((path, path) for path in expand(str(image)))
        else:
            yield str(getattr(image, "filename", "") or f"image {position}"), image


def _source_of(images: object) -> ImageSource | None:
    """Return the images of a dataset; None for anything else."""
    source: Any = getattr(images, "images", None)
    return source if callable(getattr(source, "name", None)) else None


def _fetched(source: ImageSource, position: int) -> Path | bytes | ImageError:
    try:
        return source[position]
    except Exception as error:  # noqa: BLE001 - a source may fail in any way; that is recorded like a bad image
        reason = f"it could not be fetched: {type(error).__name__}: {error}"
        return ImageError(source.name(position), reason)


def join_predictions(parts: Sequence[Predictions], spec: InferenceSpec) -> Predictions:
    """Concatenate the predictions of several batches."""
    names: list[str] = []
    bad: list[BadImage] = []
    sources: list[ImageLike | None] = []
    for part in parts:
        sources += part.sources or [None] * len(part)
        bad += (BadImage(len(names) + image.index, image.name, image.reason) for image in part.bad)
        names += part.names
    scores = np.concatenate([np.empty((0, len(spec.labels)), np.float32), *(part.scores for part in parts)])
    return Predictions(scores, spec.labels, names, spec.thresholds, spec.single_label, tuple(bad), sources)
