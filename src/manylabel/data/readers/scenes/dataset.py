"""Demo scenes as a data set: drawn when asked for, the same for the same seed, without downloads.

Letters in shape comments: N pictures, L labels.
"""

from functools import partial
from importlib.metadata import version
from random import Random
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.scenes.catalogue import KINDS
from manylabel.data.readers.scenes.compositions import COMPOSITIONS, composed_areas, encode_composition
from manylabel.data.readers.scenes.layout import arrange
from manylabel.data.readers.scenes.painting import encode
from manylabel.data.readers.scenes.visibility import present_areas
from manylabel.data.sources import LazyBytes
from manylabel.errors import ConfigError, list_choices
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = ["scenes"]

LabelSet = Literal["things", "compositions"]
VAL_EVERY = 5  # every fifth picture is for validation


def scenes(
    n: int = 200,
    *,
    split: Literal["train", "val"] | None = None,
    seed: int = 0,
    size: int = 256,
    unknown: float = 0.0,
    min_visible: float = 0.3,
    labels: LabelSet = "things",
) -> ImageDataset:
    """Draw pictures of everyday things, several in each, with labels that are right by construction.

    There are 24 labels of things; or 256 compositions of a colour, a texture and a shape ("red striped star"), with
    which labels that were never seen have a right answer. Each scene of things follows a theme (beach, park, street,
    table, night) and mostly shows what belongs there, so that labels come in groups. Objects are 5 to 60 % as wide as
    the picture and hide one another. Picture number i of a seed is always the same, however many there are.

    Args:
        n: How many pictures.
        split: Every fifth picture is in ``val``, the others are in ``train``; both when left out.
        seed: Which pictures; another seed gives other ones.
        size: Width and height in pixels.
        unknown: The share of all entries, present or absent, to make unknown.
        min_visible: A label is present if at least this share of one of its objects is seen, neither hidden by
            another nor outside the picture.
        labels: ``things``, or ``compositions``: 2 to 6 shapes, side by side.

    Returns:
        The pictures, as JPEG files that are drawn when asked for; `areas` holds the share of the picture that is seen
        of a label's largest object.

    Raises:
        ConfigError: A number is out of range.

    Examples:
        >>> dataset = scenes(10, seed=3)
        >>> len(dataset), len(dataset.labels), len(dataset.split("val"))
        (10, 24, 2)
        >>> values, known = dataset.targets.dense([0])
        >>> [label for label, value in zip(dataset.labels, values[0]) if value]
        ['house', 'moon', 'rocket', 'star', 'tree']
    """
    _check(n=n, size=size, unknown=unknown, min_visible=min_visible, labels=labels)
    if labels == "compositions":
        rows, names = [composed_areas(seed, index) for index in range(n)], COMPOSITIONS
    else:
        rows = [present_areas(arrange(seed, index).placements, min_visible=min_visible) for index in range(n)]
        names = tuple(KINDS)
    areas = np.array([[row.get(label, 0.0) for label in names] for row in rows], dtype=np.float32)  # [N, L]
    blank = np.array([_draw_unknown(seed, index, share=unknown, count=len(names)) for index in range(n)])  # [N, L]
    areas[blank] = 0
    validation = np.arange(n) % VAL_EVERY == VAL_EVERY - 1
    pictures = LazyBytes(
        [f"scene-{index:05}.jpg" for index in range(n)],
        load=partial(_load_composition if labels == "compositions" else _load, seed=seed, size=size),
        identity=f"scenes of manylabel {version('manylabel')}, seed={seed}, size={size}"
        + (f", labels={labels}" if labels != "things" else ""),
    )
    dataset = ImageDataset(
        pictures=pictures,
        targets=Targets(csr_array(areas > 0), unknown=csr_array(blank) if unknown else None),
        labels=LabelSpace(names),
        name="scenes" if labels == "things" else labels,
        splits={"train": np.flatnonzero(~validation), "val": np.flatnonzero(validation)},
        areas=csr_array(areas),
    )
    return dataset if split is None else dataset.split(split)


def _draw_unknown(seed: int, index: int, *, share: float, count: int) -> NDArray[np.bool_]:
    """Choose which labels of a picture are made unknown, ``[L]``; the same ones and more for a larger share."""
    chance = Random(f"unknown {seed} {index}")
    return np.array([chance.random() < share for _ in range(count)])


def _load(index: int, *, seed: int, size: int) -> bytes:
    return encode(seed, index, size=size)


def _load_composition(index: int, *, seed: int, size: int) -> bytes:
    return encode_composition(seed, index, size=size)


def _check(*, n: int, size: int, unknown: float, min_visible: float, labels: str) -> None:
    if labels not in get_args(LabelSet):
        raise ConfigError(f"labels cannot be {labels!r}; {list_choices(labels, get_args(LabelSet))}")
    if n < 1:
        raise ConfigError(f"n must be at least 1 picture, got {n}")
    if size < 32:
        raise ConfigError(f"size must be at least 32 pixels, got {size}; smaller objects cannot be made out")
    if not 0 <= unknown < 1:
        raise ConfigError(f"unknown must be a share from 0 to below 1, got {unknown}")
    if not 0 < min_visible <= 1:
        raise ConfigError(f"min_visible must be a share above 0 and at most 1, got {min_visible}")
