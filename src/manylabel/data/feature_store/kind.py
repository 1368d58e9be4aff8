"""What the features of one store have in common: backbone, transform, stages; and the key that follows from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from manylabel.errors import CacheError

__all__ = ["DTYPE", "FeatureKind", "Pooling"]

FORMAT_VERSION = 1
DTYPE = np.dtype("<f2")  # half the disk of float32; the same byte order on every machine

Pooling = Literal["none", "average", "max", "earlier"]
"""Whether maps are kept whole, or only their average or maximum over the cells; "earlier" keeps the average of all
stages but the final one, and that one whole."""


@dataclass(frozen=True)
class FeatureKind:
    """Everything that features follow from, but the pictures themselves.

    Args:
        dataset: Name of the data set; each has stores of its own, so that one can be removed.
        backbone: Name of the backbone.
        weights: Fingerprint of its weights.
        transform: The transform, as its `repr` describes it.
        stages: The backbone's stages, counted from the front.
        shapes: Channels, height and width per stage, as stored.
        pooling: Whether maps are kept whole.
        view: 0 is the picture as in evaluation, others are augmented.
        seed: Fixes the augmentation; 0 for view 0, which has none.

    Examples:
        >>> kind = FeatureKind(
        ...     dataset="pets", backbone="resnet10t", weights="b2", transform="Resize", stages=(3,),
        ...     shapes=((512, 7, 7),), pooling="none", view=0, seed=0,
        ... )
        >>> len(kind.key), kind.bytes_per_picture
        (16, 50176)
    """

    dataset: str
    backbone: str
    weights: str
    transform: str
    stages: tuple[int, ...]
    shapes: tuple[tuple[int, int, int], ...]
    pooling: Pooling
    view: int
    seed: int

    @cached_property
    def key(self) -> str:
        """Name of the store: 16 letters and digits that change with anything said here."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @property
    def bytes_per_picture(self) -> int:
        """Bytes that one picture takes on disk."""
        return sum(map(prod, self.shapes)) * DTYPE.itemsize

    def to_json(self) -> str:
        """Return text that `from_json` reads."""
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> FeatureKind:
        """Make the kind again that `to_json` described.

        Raises:
            CacheError: It is damaged, or of another version.
        """
        try:
            values: Mapping[str, Any] = json.loads(text)
            rest = {name: value for name, value in values.items() if name != "format"}
            shapes = tuple((int(channels), int(height), int(width)) for channels, height, width in values["shapes"])
            return cls(**{**rest, "stages": tuple(values["stages"]), "shapes": shapes})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CacheError(f"this describes no features that this version of manylabel knows: {error!r}") from error
