"""`Predictor`: tags for images; with an exported model it needs neither torch nor the dataset."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manylabel.builtin import DEFAULT_MODEL
from manylabel.images import ImageLike, Pixels
from manylabel.inference.engine import EngineName, open_engine
from manylabel.inference.pipeline import prepare_batches
from manylabel.predictions import Engine, InferenceSpec, Predictions, predict_images, score_batch
from manylabel.types import LabelSpace

__all__ = ["Predictor"]

logger = logging.getLogger(__name__)


class Predictor:
    """Predicts the tags of images.

    Args:
        engine: What turns pixels into scores; `load` opens one.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
        >>> predictor = Predictor.load(model.save(Path(tempfile.mkdtemp()) / "model"), engine="torch")
        >>> image, bad = predictor.predict([Image.new("RGB", (64, 48)), b"no image"])
        >>> image.error, bad.error
        (None, "it is not an image in a supported format ...")
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
        num_images: int | None = None,
        notify: Callable[[str], object] = logger.info,
    ) -> Predictor:
        """Open a model; the arguments are those of `open_engine`."""
        return cls(
            open_engine(
                model,
                engine=engine,
                labels=labels,
                device=device,
                num_threads=num_threads,
                num_images=num_images,
                notify=notify,
            )
        )

    @property
    def spec(self) -> InferenceSpec:
        """Labels, thresholds, and how images are prepared."""
        return self.engine.spec

    @property
    def labels(self) -> LabelSpace:
        """The labels, in the order of the scores."""
        return self.spec.labels

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for prepared images ``[B, H, W, 3]``."""
        return self.engine.scores(pixels)

    def predict(self, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 32) -> Predictions:
        """Predict the tags of one or more images; the arguments are those of `predict_images`."""
        return predict_images(self.engine, images, batch_size=batch_size)

    def stream(self, names: Iterable[str], *, batch_size: int = 32, num_workers: int = 0) -> Iterator[Predictions]:
        """Predict the tags of many images, batch by batch: decoding and the model overlap, memory does not grow.

        Args:
            names: Paths and addresses; taken as they are needed.
            batch_size: Number of images that go through the model at once.
            num_workers: Processes that decode beside the main one; 0 decodes in a thread.

        Yields:
            The predictions of each batch; images that cannot be read are recorded in their place.

        Examples:
            >>> from manylabel.builtin import sample_photos
            >>> predictor = Predictor.load("builtin:coco80", engine="torch")
            >>> for batch in predictor.stream([*map(str, sample_photos()), "no_such.jpg"], batch_size=3):
            ...     print([image.error for image in batch])
            [None, None, None]
            ['there is no such file']
        """
        images = ((name, name) for name in names)
        for batch in prepare_batches(images, self.spec.input_spec, batch_size=batch_size, num_workers=num_workers):
            yield score_batch(self.engine, batch)
