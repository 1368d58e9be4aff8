"""What cached features are of: pictures, transform, weights, stages; and the key that follows from all of it."""

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

__all__ = ["DTYPE", "FeatureRequest", "Pooling", "checksum"]

FORMAT_VERSION = 1
DTYPE = np.dtype("<f2")  # half the disk of float32; the same byte order on every machine

Pooling = Literal["none", "average", "max"]
"""Whether a map is kept whole, or only its average or maximum over the cells."""


@dataclass(frozen=True)
class FeatureRequest:
    """Everything that features on disk follow from, of one view of each picture.

    Args:
        pictures: Fingerprint of the pictures and their order.
        num_pictures: How many there are.
        weights: Fingerprint of the backbone's weights.
        transform: The transform, as its `repr` describes it.
        stages: The backbone's stages, from the front.
        shapes: Channels, height and width per stage, as stored.
        pooling: Whether maps are kept whole.
        view: 0 is the picture as in evaluation, others are augmented.
        seed: Fixes the augmentation; 0 for view 0, which has none.
        dataset: What to call the data set in a list; no part of the key.
        backbone: What to call the backbone in a list; no part of the key.

    Example:
        >>> request = FeatureRequest(
        ...     "a1", 3, weights="b2", transform="Resize", stages=(3,), shapes=((512, 7, 7),), pooling="none",
        ...     view=0, seed=0, dataset="pets", backbone="resnet10t",
        ... )
        >>> len(request.key), request.bytes_per_picture
        (16, 50176)
    """

    pictures: str
    num_pictures: int
    weights: str
    transform: str
    stages: tuple[int, ...]
    shapes: tuple[tuple[int, int, int], ...]
    pooling: Pooling
    view: int
    seed: int
    dataset: str
    backbone: str

    @cached_property
    def key(self) -> str:
        """Name of the store: 16 letters and digits that change with anything the features follow from."""
        content = {name: value for name, value in self.to_dict().items() if name not in ("dataset", "backbone")}
        return checksum({"format": FORMAT_VERSION, **content})[:16]

    @property
    def bytes_per_picture(self) -> int:
        """Bytes that one picture takes on disk."""
        return sum(map(prod, self.shapes)) * DTYPE.itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes that all pictures take on disk."""
        return self.num_pictures * self.bytes_per_picture

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureRequest:
        """Make the request again that `to_dict` described.

        Raises:
            CacheError: Something is missing or of another version.
        """
        try:
            shapes = tuple((int(channels), int(height), int(width)) for channels, height, width in values["shapes"])
            return cls(**{**values, "stages": tuple(values["stages"]), "shapes": shapes})
        except (KeyError, TypeError, ValueError) as error:
            raise CacheError(f"this describes no cached features that this version knows: {error}") from error


def checksum(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of values, whatever the order of their names.

    Example:
        >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
