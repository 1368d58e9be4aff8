"""`ServedModel`: what a server asks of a model: scores of batches, new labels and explanations.

Letters in shape comments: B pictures, H and W pixels, L labels.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from manylabel.builtin import DEFAULT_MODEL, local_model
from manylabel.errors import ConfigError, DataError, LabelError, MissingExtraError, list_choices
from manylabel.images import Pixels, check_size, decode, prepare
from manylabel.inference.engine import EngineName, shown_name
from manylabel.inference.predictor import Predictor
from manylabel.predictions import Engine, InferenceSpec
from manylabel.server.settings import MOST_PIXELS

if TYPE_CHECKING:  # torch is loaded when it is needed first
    from manylabel.classifier import Classifier
    from manylabel.explain import Explanation

__all__ = ["ServedModel"]

logger = logging.getLogger(__name__)

LONGEST = 640  # pixels that an explained picture keeps, if it is a JPEG file


class ServedModel:
    """A model that answers a server.

    Args:
        predictor: Tags pictures.
        name: What callers are told that the model is called.
        folder: The folder of the torch model, for explanations and new labels; without it there are none.
        max_pixels: Pictures with more are refused before they are decoded.

    Examples:
        >>> import tempfile
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearHead, labels=["cat", "dog"], pretrained=False)
        >>> served = ServedModel.open(model.save(Path(tempfile.mkdtemp()) / "pets"), engine="torch")
        >>> served.name, served.takes_new_labels
        ('pets', False)
    """

    def __init__(
        self, predictor: Predictor, *, name: str, folder: Path | None = None, max_pixels: int = MOST_PIXELS
    ) -> None:
        self.predictor = predictor
        self.name = name
        self.folder = folder
        self.max_pixels = max_pixels
        self._engine_of = lru_cache(maxsize=4)(self._open_engine)

    @classmethod
    def open(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        engine: EngineName = "auto",
        device: str | None = None,
        num_threads: int | None = None,
        max_pixels: int = MOST_PIXELS,
    ) -> ServedModel:
        """Open a model by its name; the arguments are those of `open_engine` and of the class."""
        predictor = Predictor.load(model, engine=engine, device=device, num_threads=num_threads)
        folder = None if Path(model).suffix.lower() == ".onnx" else local_model(model)
        if folder is None and Path(model).suffix.lower() != ".onnx":
            from manylabel.classifier import find_model

            folder = find_model(model)
        return cls(predictor, name=shown_name(model), folder=folder, max_pixels=max_pixels)

    @property
    def explains(self) -> bool:
        """Whether the model can be explained."""
        return self.folder is not None

    @cached_property
    def takes_new_labels(self) -> bool:
        """Whether the model answers for labels that it was not trained on."""
        if self.folder is None:
            return False
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return bool(config.get("text"))

    def prepare(self, content: bytes, *, name: str) -> Pixels:
        """Decode and resize a picture to bytes ``[H, W, 3]``.

        Raises:
            ImageError: It cannot be read, or has too many pixels.
        """
        check_size(content, name=name, max_pixels=self.max_pixels)
        return prepare(content, self.predictor.spec.input_spec, name=name)

    def score(self, pixels: list[Pixels]) -> NDArray[np.float32]:
        """Return scores ``[B, L]`` for the model's own labels."""
        return self.predictor.scores(np.stack(pixels))

    def columns(self, labels: Sequence[str]) -> list[int] | None:
        """Return where labels stand among the model's own.

        Args:
            labels: Names or display names.

        Returns:
            Their places, each once; nothing where some are new, which the model takes.

        Raises:
            LabelError: Some are new, which the model does not take.
        """
        known = self.predictor.labels
        shown = {display: name for name, display in known.display_names.items()}
        names = [name if name in known else shown.get(name, name) for name in labels]
        new = [name for name in names if name not in known]
        if not new:
            return list(dict.fromkeys(map(known.index, names)))
        if self.takes_new_labels:
            return None
        choices = list_choices(new[0], known)
        raise LabelError(f"no label {new[0]!r}, and this model takes no new ones; {choices}")

    def spec(self, columns: Sequence[int]) -> InferenceSpec:
        """Return what the model says of itself, for some of its labels only."""
        spec = self.predictor.spec
        labels = spec.labels.subset([spec.labels[column] for column in columns])
        limits = spec.thresholds
        return replace(spec, labels=labels, thresholds=limits and tuple(limits[column] for column in columns))

    def ask(self, pixels: list[Pixels], labels: Sequence[str]) -> tuple[NDArray[np.float32], InferenceSpec]:
        """Return scores ``[B, L]`` for labels of which some are new, and the labels as the model understood them.

        Raises:
            LabelError: They cannot be encoded.
        """
        engine = self._engine_of(tuple(labels))
        return engine.scores(np.stack(pixels)), engine.spec

    def explain(self, content: bytes, labels: Sequence[str] | None, *, name: str) -> list[Explanation]:
        """Return where the model looks for labels, new ones included, or else for those that it finds.

        Raises:
            LabelError: There is no such label.
            ImageError: The picture cannot be read.
        """
        from manylabel.explain import explain

        check_size(content, name=name, max_pixels=self.max_pixels)
        columns = None if labels is None else self.columns(labels)
        size = self.predictor.spec.input_spec.size
        image = decode(content, name=name, at_least=(max(LONGEST, size[0]), max(LONGEST, size[1])))
        if columns is None and labels is not None:
            asked = self._asked(labels)
            return explain(asked, image, labels=asked.labels.names)
        known = self.predictor.labels
        names = None if columns is None else [known[column] for column in columns]
        return explain(self._classifier, image, labels=names)

    @cached_property
    def _classifier(self) -> Classifier:
        from manylabel.classifier import Classifier

        if self.folder is None:
            raise ConfigError("an exported file has no torch model")
        return Classifier.load(self.folder)

    def _asked(self, labels: Sequence[str]) -> Classifier:
        try:
            return self._classifier.with_labels(list(labels))
        except (ConfigError, DataError, LabelError, MissingExtraError) as error:
            logger.warning("new labels cannot be encoded: %s", error)  # may name files, which callers must not see
            raise LabelError("the text encoder of this model does not know these labels; try others") from error

    def _open_engine(self, labels: tuple[str, ...]) -> Engine:
        from manylabel.classifier import TorchEngine

        return TorchEngine(self._asked(labels))
