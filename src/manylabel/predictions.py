"""Predictions: scores of images, and the thresholds that select tags. Nothing here needs torch.

Letters in shape comments: N images, B images of a batch, L labels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.errors import ConfigError, ImageError, LabelError, ModelFormatError
from manylabel.image_files import fetch, is_address
from manylabel.images import ImageLike, decode
from manylabel.page import plural
from manylabel.storage import decode_json, free_path, replacing
from manylabel.system import require
from manylabel.tag_files import tag_columns, tag_table, write_tags
from manylabel.types import BadImage, InputSpec, LabelSpace, Tag, position_of

if TYPE_CHECKING:  # imported only when asked for
    import pandas as pd
    import polars as pl

METADATA_KEY = "manylabel"
"""Metadata key of the `InferenceSpec` in an exported file."""

MAX_SHOWN = 10  # images in a repr
MAX_FIGURES = 24  # images in a notebook
DRAWN, SHOWN, THUMBNAIL = 1280, 480, 200  # largest height and width in pixels: of a file, on a sheet, in a notebook

logger = logging.getLogger(__name__)


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
        fields = _SpecFields(self.labels.to_dict(), self.input_spec, self.thresholds, self.single_label)
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
        fields = decode_json(text, _SpecFields, source=source, advice="export it again")
        try:
            labels = LabelSpace.from_dict(fields.labels)
        except LabelError as error:
            raise ModelFormatError(f"the labels of {source} are damaged ({error}); export it again") from error
        if fields.thresholds is not None and len(fields.thresholds) != len(labels):
            found = f"{len(fields.thresholds)} thresholds for {len(labels)} labels"
            raise ModelFormatError(f"{source} has {found}; export it again")
        return cls(labels, fields.input, thresholds=fields.thresholds, single_label=fields.single_label)


class _SpecFields(msgspec.Struct, forbid_unknown_fields=True):
    """Schema of an `InferenceSpec` in files."""

    labels: dict[str, Any]
    input: InputSpec
    thresholds: tuple[float, ...] | None
    single_label: bool
    version: Literal[2] = 2
    images: str = "uint8 RGB, [batch, height, width, 3]"


@dataclass(frozen=True)
class TagChoice:
    """Rule that selects tags by their scores (default: the model's thresholds, or 0.5 if it has none).

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
            raise ConfigError(f"pass top or threshold, not both, got {self.top} and {self.threshold}")
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
                raise ConfigError(f"{none}, as it predicts the most confident label of each image; omit the threshold")
            raise ConfigError(f"{none}; find them with: manylabel tune DATA --model MODEL")
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


@dataclass(frozen=True, repr=False)
class ImagePrediction:
    """Result for one image.

    Args:
        name: Name of the image: its path as found, or its position for one in memory.
        tags: Its tags, the most confident first.
        error: Reason why the image could not be read; it then has no tags.
        labels: All labels of the model.
        row: ``[L]``, the score of each label.
        source: The image as given (default: the file called `name`).

    Examples:
        >>> image = ImagePrediction("a.jpg", (Tag("cat", 0.9),))
        >>> image
        a.jpg: cat 0.90
        >>> image.to_dict()
        {'image': 'a.jpg', 'tags': [{'label': 'cat', 'score': 0.9}]}
    """

    name: str
    tags: tuple[Tag, ...] = ()
    error: str | None = None
    labels: LabelSpace = field(default=LabelSpace([]), compare=False)
    row: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32), compare=False)
    source: ImageLike | None = field(default=None, compare=False)

    @property
    def scores(self) -> dict[str, float]:
        """Score of every label by name; empty for unreadable images."""
        return {} if self.error is not None else dict(zip(self.labels, self.row.tolist(), strict=True))

    @property
    def path(self) -> Path | None:
        """Path of the image; None for one in memory."""
        source = self.name if self.source is None else self.source
        return Path(source) if isinstance(source, str | Path) else None

    @property
    def image(self) -> Image.Image:
        """The decoded image, with its EXIF orientation applied.

        Raises:
            ImageError: The image cannot be read.
        """
        return self._decode()

    def draw(self) -> Image.Image:
        """Return the image, at most 1,280 pixels high and wide, with its tags on a bar below it.

        Raises:
            ImageError: The image cannot be read.
        """
        return self._drawn(DRAWN)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        if self.error is not None:
            return {"image": self.name, "error": self.error}
        return {"image": self.name, "tags": [tag._asdict() for tag in self.tags]}

    def __repr__(self) -> str:
        if self.error is not None:
            return f"{self.name}: cannot be read: {self.error}"
        return f"{self.name}: {', '.join(f'{label} {score:.2f}' for label, score in self._shown()) or 'no tags'}"

    def _shown(self) -> list[tuple[str, float]]:
        return [(self.labels.display(label), score) for label, score in self.tags]

    def _decode(self, *, longest: int | None = None) -> Image.Image:
        if self.error is not None:
            raise ImageError(self.name, self.error)
        source = self.name if self.source is None else self.source
        if isinstance(source, str) and is_address(source):
            source = fetch(source)
        image = decode(source, name=self.name, at_least=None if longest is None else (longest, longest))
        if longest is not None:
            image.thumbnail((longest, longest))
        return image

    def _drawn(self, longest: int) -> Image.Image:
        from manylabel.drawing import draw_tags

        return draw_tags(self._decode(longest=longest), self._shown())

    def _repr_html_(self) -> str:
        """Return a figure for notebooks, with inline styles only."""
        from manylabel.drawing import figure_html

        image = None
        with suppress(ImageError):  # listed without its thumbnail
            image = self._decode(longest=THUMBNAIL)
        return figure_html(self.name, image, self._shown(), error=self.error)


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Sequence[ImagePrediction]):
    """Results for a sequence of images, including unreadable ones, in order.

    In a notebook they are shown as thumbnails with tags, elsewhere as one line per image.

    Args:
        scores: ``[N, L]``, probabilities, never logits; NaN in the rows of unreadable images.
        labels: The labels, in the order of the columns.
        names: Name of each image.
        thresholds: Minimum score of each label to become a tag (default: 0.5 for all).
        single_label: Whether each image's only tag is its most confident label, whatever its score.
        bad: The unreadable images, with reasons.
        sources: The images as given, to show and draw them (default: the files called `names`).

    Raises:
        ConfigError: The shapes differ, or the scores are not probabilities.

    Examples:
        >>> scores = np.array([[0.9, 0.2], [0.6, 0.7], [np.nan, np.nan]])
        >>> bad = BadImage(2, "c.jpg", "it is empty")
        >>> result = Predictions(scores, LabelSpace(["cat", "dog"]), ["a.jpg", "b.jpg", "c.jpg"], bad=[bad])
        >>> result
        a.jpg: cat 0.90
        b.jpg: dog 0.70, cat 0.60
        c.jpg: cannot be read: it is empty
        [3 images, 1 unreadable, 2 labels]
        >>> result[0].tags, result.above(0.65)[1]
        ((Tag(label='cat', score=0.9),), (Tag(label='dog', score=0.7),))
        >>> [label for image in result for label, score in image.tags]
        ['cat', 'dog', 'cat']
        >>> result.to_polars().select("image", "tags").rows()
        [('a.jpg', ['cat']), ('b.jpg', ['dog', 'cat']), ('c.jpg', [])]
    """

    scores: NDArray[np.float32]
    labels: LabelSpace
    names: Sequence[str]
    thresholds: tuple[float, ...] | None = None
    single_label: bool = False
    bad: Sequence[BadImage] = ()
    sources: Sequence[ImageLike | None] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", np.asarray(self.scores, dtype=np.float32))
        if self.scores.shape != (len(self.names), len(self.labels)):
            expected = f"[{len(self.names)}, {len(self.labels)}] for {len(self.names)} names"
            raise ConfigError(f"scores must be {expected} and {len(self.labels)} labels, got {list(self.scores.shape)}")
        good = self.scores[self.readable]
        if good.size and not (good.min() >= 0 and good.max() <= 1):
            raise ConfigError("scores must be probabilities in 0..1; apply sigmoid or softmax to logits first")
        if self.thresholds is not None and len(self.thresholds) != len(self.labels):
            raise ConfigError(f"there must be {len(self.labels)} thresholds, one per label, got {len(self.thresholds)}")

    @property
    def readable(self) -> NDArray[np.bool_]:
        """``[N]``, true for readable images."""
        mask = np.ones(len(self.names), dtype=bool)
        mask[[image.index for image in self.bad]] = False
        return mask

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> ImagePrediction: ...
    @overload
    def __getitem__(self, index: slice) -> Predictions: ...
    def __getitem__(self, index: int | slice) -> ImagePrediction | Predictions:
        if isinstance(index, slice):
            return self._select(range(len(self))[index])
        return self._select([position_of(index, len(self))]).tagged()[0]

    def __iter__(self) -> Iterator[ImagePrediction]:
        return iter(self.tagged())

    def _select(self, rows: Sequence[int]) -> Predictions:
        errors = {image.index: image.reason for image in self.bad}
        return replace(
            self,
            scores=self.scores[rows],
            names=[self.names[row] for row in rows],
            bad=[BadImage(i, self.names[row], errors[row]) for i, row in enumerate(rows) if row in errors],
            sources=[self.sources[row] for row in rows] if self.sources else (),
        )

    def tagged(self, choice: TagChoice | None = None) -> list[ImagePrediction]:
        """Return the result of each image, with tags selected by a custom rule.

        Args:
            choice: Rule that selects tags by their scores (default: the model's thresholds).
        """
        errors = {image.index: image.reason for image in self.bad}
        tags = iter((choice or TagChoice()).pick(self.scores[self.readable], self))
        sources = self.sources or (None,) * len(self)
        return [
            ImagePrediction(name, () if i in errors else next(tags), errors.get(i), self.labels, row, source)
            for i, (name, row, source) in enumerate(zip(self.names, self.scores, sources, strict=True))
        ]

    def above(self, threshold: float | Sequence[float] | None = None) -> list[tuple[Tag, ...]]:
        """Return each image's tags at or above a threshold, the most confident first.

        Args:
            threshold: One threshold for all labels, or one for each (default: the model's thresholds).
        """
        if threshold is None or isinstance(threshold, int | float):
            return [image.tags for image in self.tagged(TagChoice(threshold=threshold))]
        own = replace(self, thresholds=tuple(map(float, threshold)), single_label=False)
        return [image.tags for image in own]

    def top(self, k: int = 5) -> list[tuple[Tag, ...]]:
        """Return each image's `k` most confident tags, or all if there are fewer."""
        return [image.tags for image in self.tagged(TagChoice(top=k))]

    def to_polars(self) -> pl.DataFrame:
        """Return a table with the columns image, tags and scores (lists, most confident first) and error."""
        return tag_table([image.to_dict() for image in self])

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of `to_polars` in pandas.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        frame: pd.DataFrame = require("pandas").DataFrame(tag_columns([image.to_dict() for image in self]))
        return frame

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the tags to a file, in the formats of `manylabel predict --out`.

        Args:
            path: Output file ending in ``.csv``, ``.jsonl``, ``.json`` or ``.parquet``; or in ``.fiftyone.json``,
                ``.label_studio.json`` or ``.cvat.xml``, for these annotation tools.
            overwrite: Whether to replace an existing file.

        Returns:
            The path.

        Raises:
            ConfigError: The extension is not supported.
            OutputExistsError: The file exists and `overwrite` is false.
        """
        return write_tags(path, self.tagged(), overwrite=overwrite)

    def draw(self, folder: str | Path) -> list[Path]:
        """Write a JPEG of each image with its tags below it.

        Existing files stay: a drawing whose name is taken gets a number. Unreadable images are skipped and logged.

        Args:
            folder: Folder for the drawings; created if missing.

        Returns:
            The files written.
        """
        return write_drawings(self, folder)

    def show(self, count: int = 12) -> None:
        """Show the first images with their tags: inline in a notebook, else in the system's image viewer.

        Args:
            count: Maximum number of images.
        """
        from manylabel.drawing import contact_sheet

        drawn = []
        for image in self[:count]:
            with suppress(ImageError):
                drawn.append(image._drawn(SHOWN))
        contact_sheet(drawn).show()

    def __repr__(self) -> str:
        half = MAX_SHOWN // 2
        is_long = len(self) > MAX_SHOWN
        head, tail = (self[:half], self[-half:]) if is_long else (self, ())
        lines = [_shorten(repr(image)) for image in head] + ["..."] * is_long
        lines += [_shorten(repr(image)) for image in tail]
        return "\n".join([*lines, f"[{self._summary()}]"])

    def _repr_html_(self) -> str:
        shown = self[:MAX_FIGURES]
        more = f"; the first {len(shown)} are shown" if len(shown) < len(self) else ""
        figures = "".join(image._repr_html_() for image in shown)
        return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{figures}</div><p>{self._summary()}{more}</p>'

    def _summary(self) -> str:
        unreadable = f", {len(self.bad):,} unreadable" if self.bad else ""
        return f"{plural(len(self), 'image')}{unreadable}, {plural(len(self.labels), 'label')}"


def write_drawings(images: Iterable[ImagePrediction], folder: str | Path) -> list[Path]:
    """Write a JPEG of each image with its tags below it; see `Predictions.draw`.

    Args:
        images: The images; unreadable ones are skipped and logged.
        folder: Folder for the drawings; created if missing.

    Returns:
        The files written.
    """
    written, failed = [], []
    for image in images:
        try:
            drawn = image.draw()
        except ImageError as error:
            failed.append(str(error))
            continue
        path = free_path(Path(folder) / f"{(image.path or Path(image.name)).stem}.jpg")
        with replacing(path) as temporary:
            drawn.save(temporary, "JPEG", quality=90)
        written.append(path)
    if failed:
        logger.warning("%s not drawn: %s", plural(len(failed), "image"), "; ".join(failed[:20]))
    return written


def _shorten(line: str, *, width: int = 160) -> str:
    """Cut a line of a table at a tag."""
    return line if len(line) <= width else f"{line[: line.rfind(',', 0, width - 5)]}, ..."
