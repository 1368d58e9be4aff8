"""Holding out a part of a data set, or only some of its pictures: what every format can do."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.splits import stratified_split
from manylabel.errors import ConfigError

__all__ = ["hold_out"]


def hold_out(
    dataset: ImageDataset,
    *,
    val_fraction: float | None = None,
    part: Literal["train", "val"] | None = None,
    seed: int = 0,
    limit: int | None = None,
) -> ImageDataset:
    """Hold out some pictures for validation, stratified over the labels, or keep only some of them.

    Pictures to test on stay that: of data with one split to train on (its name begins with "train") and none to
    validate on, only that one is divided.

    Args:
        dataset: Any pictures with labels.
        val_fraction: The share of pictures to hold out; they become the split ``val``, the rest ``train``, instead
            of the splits there were; where only one split is divided, the others stay.
        part: Return only this one of the two.
        seed: Another seed, another draw.
        limit: Then keep at most this many pictures, drawn at random, in their old order.

    Returns:
        The data set; as it was when nothing is asked for.

    Raises:
        ConfigError: `part` without `val_fraction`, or a number out of range.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> from manylabel.targets import Targets
        >>> from manylabel.types import LabelSpace
        >>> pictures = Files("photos", [f"{number}.jpg" for number in range(10)])
        >>> targets = Targets.from_lists([[number % 2] for number in range(10)], num_labels=2)
        >>> dataset = ImageDataset(pictures, targets, LabelSpace(["cat", "dog"]))
        >>> len(hold_out(dataset, val_fraction=0.2, part="train")), len(hold_out(dataset, limit=3))
        (8, 3)
    """
    if part is not None and val_fraction is None:
        raise ConfigError(f"part={part} needs val_fraction, the share to hold out; write val_fraction=0.2,part={part}")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1 picture, got {limit}")
    if val_fraction is not None:
        divided, others = _to_divide(dataset)
        train, val = stratified_split(dataset.targets[divided], val_fraction=val_fraction, seed=seed)
        dataset = replace(dataset, splits={"train": divided[train], "val": divided[val], **others})
    if part is not None:
        dataset = dataset.split(part)
    if limit is not None and limit < len(dataset):
        drawn = np.random.default_rng(seed).choice(len(dataset), size=limit, replace=False)
        dataset = dataset.subset(np.sort(drawn))
    return dataset


def _to_divide(dataset: ImageDataset) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """Return the positions of the pictures to hold out from, and the splits that stay as they are."""
    splits = {name: members for name, members in dataset.splits.items() if len(members)}
    train = dataset.splits_like("train")
    if len(train) != 1 or dataset.splits_like("val"):
        return np.arange(len(dataset)), {}
    return np.sort(splits[train[0]]), {name: members for name, members in splits.items() if name != train[0]}
