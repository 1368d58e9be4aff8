"""Which scores become tags: the best few, or all that reach a threshold.

Letters in shape comments: B pictures, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ConfigError
from manylabel.inference.inference_spec import InferenceSpec
from manylabel.types import Tag

__all__ = ["TagChoice"]


@dataclass(frozen=True)
class TagChoice:
    """How tags are chosen; with neither setting, by the model's own thresholds, or 0.5 where it has none.

    Args:
        top: Take so many labels of each picture, the surest.
        threshold: Take the labels that reach it; ``"tuned"`` wants the model's own thresholds, one for each label.

    Raises:
        ConfigError: A setting is wrong, or both are given.

    Examples:
        >>> from manylabel.types import InputSpec, LabelSpace
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

    def limits(self, spec: InferenceSpec) -> float | tuple[float, ...]:
        """Return the threshold that a model's scores must reach, or one for each label.

        Raises:
            ConfigError: Tuned thresholds are wanted and the model has none.
        """
        if isinstance(self.threshold, int | float):
            return float(self.threshold)
        if self.threshold == "tuned" and spec.thresholds is None:
            none = "the model has no tuned thresholds"
            if spec.single_label:
                raise ConfigError(f"{none}, as it names the surest label of each picture; leave the threshold out")
            raise ConfigError(f"{none}; find them with: manylabel tune MODEL --data SPEC")
        return 0.5 if spec.thresholds is None else spec.thresholds

    def pick(self, scores: NDArray[np.float32], spec: InferenceSpec) -> list[tuple[Tag, ...]]:
        """Return each picture's tags, the surest first.

        Args:
            scores: ``[B, L]``, probabilities.
            spec: The labels and thresholds of the model.
        """
        order = np.argsort(-scores, axis=1, kind="stable")  # [B, L]
        ranked = np.take_along_axis(scores, order, axis=1)
        top = 1 if spec.single_label and self.threshold is None and self.top is None else self.top
        if top is not None:
            counts = np.full(len(scores), min(top, scores.shape[1]))
            return [_tags(spec, *row) for row in zip(order, ranked, counts, strict=True)]
        chosen = np.take_along_axis(scores >= np.asarray(self.limits(spec), scores.dtype), order, axis=1)
        kept = zip(order, ranked, chosen, strict=True)
        return [_tags(spec, places[mask], values[mask], int(mask.sum())) for places, values, mask in kept]


def _tags(spec: InferenceSpec, places: NDArray[np.int64], values: NDArray[np.float32], count: int) -> tuple[Tag, ...]:
    pairs = zip(places[:count].tolist(), values[:count].tolist(), strict=True)
    return tuple(Tag(spec.labels[place], round(value, 6)) for place, value in pairs)
