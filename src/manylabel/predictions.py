"""Predictions and how they are made: images are prepared, an engine scores them, thresholds select tags.

`Classifier.predict`, the commands, the server and Ray all use this module, so they give the same scores and report
unreadable images the same way. Nothing here needs torch.

Letters in shape comments: N images, B images of a batch, L labels, H and W pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.errors import ConfigError, ImageError, LabelError, ModelFormatError
from manylabel.image_files import expand
from manylabel.images import ImageLike, Pixels, prepare
from manylabel.storage import decode_json
from manylabel.types import BadImage, InputSpec, LabelSpace, Tag

__all__ = [
    "METADATA_KEY",
    "Engine",
    "InferenceSpec",
    "NamedImage",
    "Prediction",
    "Predictions",
    "PreparedBatch",
    "TagChoice",
    "Uncalibrated",
    "name_images",
    "predict_images",
    "prepare_batch",
    "score_batch",
]

METADATA_KEY = "manylabel"
"""Metadata key of the `InferenceSpec` in an exported file."""

SPEC_VERSION = 2
MOST_SHOWN = 10  # images in a repr

NamedImage = tuple[str, ImageLike | ImageError]
"""Name and image, or the error that prevented fetching it."""


@dataclass(frozen=True)
class InferenceSpec:
    """Everything needed to turn an image into tags, except the weights.

    Args:
        labels: The labels, in the order of the scores.
        input_spec: Input size and resizing. Normalisation is part of the engine, which takes uint8 pixels.
        thresholds: Minimum score of each label to count as present (default: 0.5 for all).
        single_label: Whether every image has exactly one label.

    Examples:
        >>> spec = InferenceSpec(LabelSpace(["cat", "dog"]), InputSpec(size=(64, 64)), thresholds=(0.4, 0.6))
        >>> InferenceSpec.from_json(spec.to_json(), source="a.onnx") == spec
        True
    """

    labels: LabelSpace
    input_spec: InputSpec
    thresholds: tuple[float, ...] | None = None
    single_label: bool = False

    def to_json(self) -> str:
        """Serialise to JSON, for the metadata of a file."""
        fields = _SpecFields(SPEC_VERSION, self.labels.to_dict(), self.input_spec, self.thresholds, self.single_label)
        return msgspec.json.encode(fields).decode()

    @classmethod
    def from_json(cls, text: str, *, source: str) -> InferenceSpec:
        """Restore a spec from `to_json`.

        Args:
            text: The JSON.
            source: The file, for errors.

        Raises:
            ModelFormatError: The JSON is damaged, or from another version.
        """
        version = decode_json(text, _SpecVersion, source=source).version
        if version != SPEC_VERSION:
            raise ModelFormatError(f"{source} has format {version}, this version reads {SPEC_VERSION}; export it again")
        fields = decode_json(text, _SpecFields, source=source)
        try:
            labels = LabelSpace.from_dict(fields.labels)
        except LabelError as error:
            raise ModelFormatError(f"the labels of {source} are damaged ({error}); export it again") from error
        if fields.thresholds is not None and len(fields.thresholds) != len(labels):
            found = f"{len(fields.thresholds)} thresholds for {len(labels)} labels"
            raise ModelFormatError(f"{source} has {found}; export it again")
        return cls(labels, fields.input, thresholds=fields.thresholds, single_label=fields.single_label)


class _SpecVersion(msgspec.Struct):
    """Part of an `InferenceSpec` common to all versions."""

    version: int


class _SpecFields(msgspec.Struct, forbid_unknown_fields=True):
    """Schema of an `InferenceSpec` in files."""

    version: int
    labels: dict[str, Any]
    input: InputSpec
    thresholds: tuple[float, ...] | None
    single_label: bool
    images: str = "uint8 RGB, [batch, height, width, 3]"


@dataclass(frozen=True)
class TagChoice:
    """Rule that turns scores into tags (default: the model's thresholds, or 0.5 if it has none).

    Args:
        top: Number of most confident labels per image.
        threshold: Minimum score; ``"tuned"`` requires the model's own thresholds.

    Raises:
        ConfigError: A setting is invalid, or both are given.

    Examples:
        >>> spec = InferenceSpec(LabelSpace(["cat", "dog"]), InputSpec(), thresholds=(0.5, 0.1))
        >>> scores = np.array([[0.4, 0.2]], dtype=np.float32)
        >>> TagChoice().pick(scores, spec)
        [(Tag(label='dog', score=0.2),)]
        >>> TagChoice(top=1).pick(scores, spec), TagChoice(threshold=0.5).pick(scores, spec)
        ([(Tag(label='cat', score=0.4),)], [()])
    """

    top: int | None = None
    threshold: float | Literal["tuned"] | None = None

    def __post_init__(self) -> None:
        if self.top is not None and self.threshold is not None:
            raise ConfigError(f"give top or threshold, not both, got {self.top} and {self.threshold}")
        if self.top is not None and self.top < 1:
            raise ConfigError(f"top must be at least 1, got {self.top}")
        if isinstance(self.threshold, int | float) and not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold must be in 0..1 or 'tuned', got {self.threshold}")

    def limits(self, model: InferenceSpec | Predictions) -> float | tuple[float, ...]:
        """Return the threshold, or one for each label.

        Raises:
            ConfigError: Tuned thresholds are required and the model has none.
        """
        if isinstance(self.threshold, int | float):
            return float(self.threshold)
        if self.threshold == "tuned" and model.thresholds is None:
            none = "the model has no tuned thresholds"
            if model.single_label:
                raise ConfigError(f"{none}, as it gives the most confident label of each image; omit the threshold")
            raise ConfigError(f"{none}; find them with: manylabel tune MODEL --data SPEC")
        return 0.5 if model.thresholds is None else model.thresholds

    def pick(self, scores: NDArray[np.float32], model: InferenceSpec | Predictions) -> list[tuple[Tag, ...]]:
        """Return each image's tags, the most confident first.

        Args:
            scores: ``[B, L]``, probabilities.
            model: Labels and thresholds of the model.
        """
        top = self.top
        if model.single_label and self.threshold is None and top is None:
            top = 1
        if top is None:
            chosen = scores >= np.asarray(self.limits(model), scores.dtype)
        order = np.argsort(-scores, axis=1, kind="stable")  # [B, L]
        kept = (row[:top] if top is not None else row[chosen[i][row]] for i, row in enumerate(order))
        return [
            tuple(Tag(model.labels[column], round(float(row[column]), 6)) for column in columns.tolist())
            for row, columns in zip(scores, kept, strict=True)
        ]


@dataclass(frozen=True)
class Prediction:
    """Result for one image.

    Args:
        name: Name of the image.
        tags: Its tags, the most confident first.
        error: Reason why the image could not be read; it then has no tags.

    Examples:
        >>> Prediction("a.jpg", (Tag("cat", 0.9),))
        Prediction(a.jpg: cat 0.90)
        >>> Prediction("a.jpg", (Tag("cat", 0.9),)).to_dict()
        {'image': 'a.jpg', 'tags': [{'label': 'cat', 'score': 0.9}]}
    """

    name: str
    tags: tuple[Tag, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        if self.error is not None:
            return {"image": self.name, "error": self.error}
        return {"image": self.name, "tags": [tag._asdict() for tag in self.tags]}

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.name}: cannot be read: {self.error}"
        return f"{self.name}: {', '.join(f'{label} {score:.2f}' for label, score in self.tags) or 'no tags'}"

    def __repr__(self) -> str:
        return f"Prediction({self})"


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Sequence[Prediction]):
    """Results for a sequence of images, including unreadable ones, in order.

    Args:
        scores: ``[N, L]``, probabilities, never logits; NaN in the rows of unreadable images.
        labels: The labels, in the order of the columns.
        names: Name of each image.
        thresholds: Minimum score of each label to become a tag (default: 0.5 for all).
        single_label: Whether each image's only tag is its most confident label, whatever its score.
        bad: The unreadable images, with reasons.

    Raises:
        ConfigError: The shapes differ, or the scores are not probabilities.

    Examples:
        >>> scores = np.array([[0.9, 0.2], [0.6, 0.7], [np.nan, np.nan]])
        >>> bad = BadImage(2, "c.jpg", "it is empty")
        >>> result = Predictions(scores, LabelSpace(["cat", "dog"]), ["a.jpg", "b.jpg", "c.jpg"], bad=[bad])
        >>> result
        Predictions(3 images, 2 labels)
        a.jpg: cat 0.90
        b.jpg: dog 0.70, cat 0.60
        c.jpg: cannot be read: it is empty
        >>> result[0].tags, result.above(0.65)[1]
        ((Tag(label='cat', score=0.9),), (Tag(label='dog', score=0.7),))
    """

    scores: NDArray[np.float32]
    labels: LabelSpace
    names: Sequence[str]
    thresholds: tuple[float, ...] | None = None
    single_label: bool = False
    bad: Sequence[BadImage] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", np.asarray(self.scores, dtype=np.float32))
        if self.scores.shape != (len(self.names), len(self.labels)):
            expected = f"[{len(self.names)}, {len(self.labels)}] for {len(self.names)} names"
            raise ConfigError(f"scores must be {expected} and {len(self.labels)} labels, got {list(self.scores.shape)}")
        good = self.scores[self.readable]
        if good.size and not (good.min() >= 0 and good.max() <= 1):
            raise ConfigError("scores must be probabilities in 0..1; apply sigmoid or softmax to logits first")
        if self.thresholds is not None and len(self.thresholds) != len(self.labels):
            raise ConfigError(f"give one threshold for each of {len(self.labels)} labels, got {len(self.thresholds)}")

    @property
    def readable(self) -> NDArray[np.bool_]:
        """``[N]``, true for readable images."""
        mask = np.ones(len(self.names), dtype=bool)
        mask[[image.index for image in self.bad]] = False
        return mask

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prediction]: ...
    def __getitem__(self, index: int | slice) -> Prediction | list[Prediction]:
        if isinstance(index, slice):
            return self.tagged(rows=range(len(self))[index])
        return self.tagged(rows=[range(len(self))[index]])[0]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.tagged())

    def tagged(self, choice: TagChoice | None = None, *, rows: Sequence[int] | None = None) -> list[Prediction]:
        """Return the result of each image, with tags selected by a custom rule.

        Args:
            choice: Rule that turns scores into tags (default: the model's thresholds).
            rows: Positions of the images to return (default: all).
        """
        rows = range(len(self)) if rows is None else rows
        errors = {image.index: image.reason for image in self.bad}
        good = [row for row in rows if row not in errors]
        tags = dict(zip(good, (choice or TagChoice()).pick(self.scores[good], self), strict=True))
        return [Prediction(self.names[row], tags.get(row, ()), errors.get(row)) for row in rows]

    def above(self, threshold: float | Sequence[float] | None = None) -> list[tuple[Tag, ...]]:
        """Return each image's tags at or above a threshold, the most confident first.

        Args:
            threshold: One threshold for all labels, or one for each (default: the model's thresholds).
        """
        if threshold is None:
            return [image.tags for image in self]
        if isinstance(threshold, int | float):
            return [image.tags for image in self.tagged(TagChoice(threshold=threshold))]
        limits = tuple(map(float, threshold))
        own = Predictions(self.scores, self.labels, self.names, limits, bad=self.bad)
        return [image.tags for image in own]

    def top(self, k: int = 5) -> list[tuple[Tag, ...]]:
        """Return each image's `k` most confident tags, or all if there are fewer."""
        return [image.tags for image in self.tagged(TagChoice(top=k))]

    def __repr__(self) -> str:
        lines = [f"Predictions({len(self):,} images, {len(self.labels):,} labels)"]
        lines += map(str, self[:MOST_SHOWN])
        if len(self) > MOST_SHOWN:
            lines.append(f"... and {len(self) - MOST_SHOWN:,} more")
        return "\n".join(lines)


class Engine(Protocol):
    """Model that scores pixels: an exported file in onnxruntime, or a classifier in torch."""

    spec: InferenceSpec

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for images ``[B, H, W, 3]``."""
        ...

    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return logits ``[B, L]`` before calibration."""
        ...


class Uncalibrated:
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


def score_batch(engine: Engine, batch: PreparedBatch) -> Predictions:
    """Score prepared images."""
    spec = engine.spec
    scores = np.full((len(batch.names), len(spec.labels)), np.nan, dtype=np.float32)
    if len(batch.pixels):
        scores[[row for row, error in enumerate(batch.errors) if error is None]] = engine.scores(batch.pixels)
    bad = [
        BadImage(row, name, error)
        for row, (name, error) in enumerate(zip(batch.names, batch.errors, strict=True))
        if error is not None
    ]
    return Predictions(scores, spec.labels, batch.names, spec.thresholds, spec.single_label, tuple(bad))


def name_images(images: ImageLike | Iterable[ImageLike]) -> Iterator[NamedImage]:
    """Yield each image with a name, its path or position; a folder or pattern is expanded to its images.

    Examples:
        >>> [name for name, _ in name_images(["a.jpg", b"..."])]
        ['a.jpg', 'image 1']
    """
    listed = [images] if isinstance(images, str | Path | bytes | Image.Image | np.ndarray) else images
    for position, image in enumerate(listed):
        if isinstance(image, str | Path):
            yield from ((path, path) for path in expand(str(image)))
        else:
            yield f"image {position}", image


def predict_images(engine: Engine, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 32) -> Predictions:
    """Score images with an engine, in this process.

    Args:
        engine: Engine that scores pixels.
        images: A file, a folder (recursively), encoded bytes, a PIL image, a uint8 array ``[H, W, 3]``, or a list of
            these.
        batch_size: Number of images per batch.

    Returns:
        Scores of every image and label; an unreadable image is recorded at its position.

    Raises:
        DataError: A folder contains no images.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
    named = name_images(images)
    parts = []
    while batch := list(islice(named, batch_size)):
        parts.append(score_batch(engine, prepare_batch(batch, engine.spec.input_spec)))
    return join_predictions(parts, engine.spec)


def join_predictions(parts: Sequence[Predictions], spec: InferenceSpec) -> Predictions:
    """Concatenate the predictions of several batches."""
    names: list[str] = []
    bad: list[BadImage] = []
    for part in parts:
        bad += (BadImage(len(names) + image.index, image.name, image.reason) for image in part.bad)
        names += part.names
    scores = np.concatenate([np.empty((0, len(spec.labels)), np.float32), *(part.scores for part in parts)])
    return Predictions(scores, spec.labels, names, spec.thresholds, spec.single_label, tuple(bad))
