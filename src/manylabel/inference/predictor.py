"""`Predictor`: names what is in pictures; with an exported model it needs neither torch nor the data set.

Letters in shape comments: B pictures, H and W pixels, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manylabel.builtin import DEFAULT_MODEL
from manylabel.errors import ImageError
from manylabel.images import ImageLike, Pixels, prepare
from manylabel.inference.choosing import TagChoice
from manylabel.inference.engines import Engine
from manylabel.inference.inference_spec import InferenceSpec
from manylabel.inference.opening import EngineName, open_engine
from manylabel.types import LabelSpace, Tag

__all__ = ["Predictor", "TaggedImage"]


@dataclass(frozen=True)
class TaggedImage:
    """What a model says of one picture.

    Args:
        name: What the picture is called.
        tags: Its tags, the surest first.
        error: Why it could not be read; then it has no tags.

    Examples:
        >>> TaggedImage("a.jpg", (Tag("cat", 0.9),)).to_dict()
        {'picture': 'a.jpg', 'tags': [{'label': 'cat', 'score': 0.9}]}
    """

    name: str
    tags: tuple[Tag, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        if self.error is not None:
            return {"picture": self.name, "error": self.error}
        return {"picture": self.name, "tags": [tag._asdict() for tag in self.tags]}


class Predictor:
    """Names what is in pictures.

    Args:
        engine: What turns pixels into scores; `load` opens one.

    Examples:
        >>> import tempfile
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearHead, labels=["cat", "dog"], pretrained=False)
        >>> predictor = Predictor.load(model.save(Path(tempfile.mkdtemp()) / "model"), engine="torch")
        >>> picture, bad = predictor.predict([Image.new("RGB", (64, 48)), b"no picture"], top=1)
        >>> len(picture.tags), bad.error
        (1, "it is not an image in a supported format ...")
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    def load(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        engine: EngineName = "auto",
        labels: Sequence[str] | None = None,
        device: str | None = None,
        num_threads: int | None = None,
    ) -> Predictor:
        """Open a model; the arguments are those of `open_engine`."""
        opened = open_engine(model, engine=engine, labels=labels, device=device, num_threads=num_threads)
        return cls(opened)

    @property
    def spec(self) -> InferenceSpec:
        """Labels, thresholds, and how pictures are prepared."""
        return self.engine.spec

    @property
    def labels(self) -> LabelSpace:
        """The labels, in the order of the scores."""
        return self.spec.labels

    def prepare(self, picture: ImageLike, *, name: str | None = None) -> Pixels:
        """Decode and resize a picture to bytes ``[H, W, 3]``.

        Raises:
            ImageError: It cannot be read.
        """
        return prepare(picture, self.spec.input_spec, name=name)

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for prepared pictures ``[B, H, W, 3]``."""
        if not len(pixels):
            return np.empty((0, len(self.labels)), dtype=np.float32)
        return self.engine.scores(pixels)

    def predict(
        self,
        pictures: ImageLike | Sequence[ImageLike],
        *,
        top: int | None = None,
        threshold: float | None = None,
        batch_size: int = 32,
    ) -> list[TaggedImage]:
        """Name what is in one or more pictures; one that cannot be read says why.

        Args:
            pictures: A path, encoded bytes, a PIL image, an array ``[H, W, 3]`` of bytes, or a list of these.
            top: Take so many labels of each picture.
            threshold: Take the labels that reach it. With neither, the model's own thresholds decide.
            batch_size: How many pictures go through the model at once.

        Returns:
            The tags of each picture, in the order given.
        """
        listed = [pictures] if isinstance(pictures, str | Path | bytes | Image.Image | np.ndarray) else list(pictures)
        choice = TagChoice(top, threshold)
        results: list[TaggedImage] = []
        for start in range(0, len(listed), batch_size):
            results += self._predict(listed[start : start + batch_size], start, choice)
        return results

    def _predict(self, pictures: Sequence[ImageLike], start: int, choice: TagChoice) -> list[TaggedImage]:
        """Tag one batch, the first picture of which is number `start`."""
        names = [
            str(each) if isinstance(each, str | Path) else f"picture {start + place}"
            for place, each in enumerate(pictures)
        ]
        pixels: list[Pixels] = []
        reasons: list[str | None] = []
        for name, picture in zip(names, pictures, strict=True):
            try:
                pixels.append(self.prepare(picture, name=name))
                reasons.append(None)
            except ImageError as error:
                reasons.append(error.reason)
        return self.tag(names, np.stack(pixels) if pixels else np.empty((0,), np.uint8), reasons, choice)

    def tag(
        self, names: Sequence[str], pixels: Pixels, reasons: Sequence[str | None], choice: TagChoice
    ) -> list[TaggedImage]:
        """Tag a batch that is decoded.

        Args:
            names: What each picture is called.
            pixels: ``[B, H, W, 3]``, of those that could be read.
            reasons: Why a picture could not be read, for each name; nothing where it could.
            choice: Which scores become tags.
        """
        tags = iter(choice.pick(self.scores(pixels), self.spec))
        return [
            TaggedImage(name, next(tags)) if reason is None else TaggedImage(name, error=reason)
            for name, reason in zip(names, reasons, strict=True)
        ]
