"""Which labels a zero-shot run never sees: named lists, the usual ones of the papers, or a seeded draw."""

import numpy as np

from manylabel.data import ImageDataset, nus_wide_zero_shot_labels
from manylabel.data.readers.layout import read_label_list
from manylabel.data.spec import spec_path
from manylabel.errors import ConfigError, DataError
from manylabel.types import LabelSpace

__all__ = ["NAMED_SPLITS", "choose_unseen", "seen_part"]

NAMED_SPLITS: dict[str, tuple[str, ...]] = {
    # Rahman et al., "Polarity Loss for Zero-shot Object Detection", https://arxiv.org/abs/1811.08982
    "coco_65_15": (
        "airplane",
        "train",
        "parking meter",
        "cat",
        "bear",
        "suitcase",
        "frisbee",
        "snowboard",
        "fork",
        "sandwich",
        "hot dog",
        "toilet",
        "mouse",
        "toaster",
        "hair drier",
    ),
}
"""Unseen labels that papers agreed on, by the name of the split."""


def choose_unseen(unseen: str, labels: LabelSpace, *, data: str = "", seed: int = 0) -> tuple[str, ...]:
    """Return the unseen labels that a setting names, in the order of the data.

    Args:
        unseen: ``none``; ``random:15`` (so many) or ``random:0.2`` (a share); ``coco_65_15``; ``nus_wide`` (the 81
            concepts, beside the 925 tags); a file with a label in each line; or names joined by ``|``.
        labels: The labels of the data.
        data: The data spec, where ``nus_wide`` looks for the lists.
        seed: Another seed, another draw.

    Raises:
        ConfigError: No label, or every label, would be seen.
        LabelError: A label is not in the data.

    Examples:
        >>> choose_unseen("dog|cat", LabelSpace(["cat", "cow", "dog"]))
        ('cat', 'dog')
        >>> len(choose_unseen("random:0.25", LabelSpace(["cat", "cow", "dog", "hen"])))
        1
    """
    if unseen == "none":
        return ()
    kind, _, amount = unseen.partition(":")
    if kind == "random":
        names = _draw(amount, labels, seed=seed)
    elif unseen == "nus_wide":
        names = nus_wide_zero_shot_labels(spec_path(data))[1]
    else:
        names = list(NAMED_SPLITS.get(unseen) or read_label_list(unseen))
    positions = sorted({labels.index(name) for name in names})
    if not 0 < len(positions) < len(labels):
        raise ConfigError(
            f"unseen={unseen!r} leaves {len(labels) - len(positions)} of {len(labels)} labels to train on; "
            "some must be seen and some unseen, or say none"
        )
    return tuple(labels[position] for position in positions)


def seen_part(dataset: ImageDataset, unseen: tuple[str, ...], *, pictures: str) -> ImageDataset:
    """Return what of a data set is trained on: only seen labels, and only some pictures.

    Args:
        dataset: The pictures, with all labels.
        unseen: The labels that must not be seen.
        pictures: ``with_seen`` keeps pictures with a seen label, ``without_unseen`` those with no unseen one, ``all``
            every picture.

    Raises:
        DataError: No picture is left.

    Examples:
        >>> from manylabel.data import scenes
        >>> part = seen_part(scenes(20), ("cloud",), pictures="without_unseen")
        >>> len(part.labels), len(part) < 20
        (23, True)
    """
    if not unseen:
        return dataset
    seen = dataset.select_labels([name for name in dataset.labels if name not in set(unseen)])
    keep = np.ones(len(dataset), dtype=bool)
    if pictures == "with_seen":
        keep = seen.targets.labels_per_picture > 0
    elif pictures == "without_unseen":
        keep = dataset.select_labels(unseen).targets.labels_per_picture == 0
    if not keep.any():
        raise DataError(f"no picture of {dataset.name} is left to train on with pictures={pictures}; say pictures=all")
    return seen if keep.all() else seen.subset(keep)


def _draw(amount: str, labels: LabelSpace, *, seed: int) -> list[str]:
    try:
        number = float(amount)
    except ValueError:
        raise ConfigError(f"unseen=random:N needs a number of labels or a share, got {amount!r}") from None
    count = round(number * len(labels)) if 0 < number < 1 else int(number)
    if not 0 < count < len(labels):
        raise ConfigError(f"unseen=random:{amount} must leave some of {len(labels)} labels unseen and some seen")
    drawn = np.random.default_rng(seed).choice(len(labels), size=count, replace=False)
    return [labels[int(position)] for position in drawn]
