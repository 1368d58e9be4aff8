"""The pictures of a run: those to train on and those to judge by."""

import logging
from dataclasses import dataclass

from manylabel.data import PictureDataset, hold_out, load
from manylabel.errors import DataError
from manylabel.recipes.settings import RecipeSettings

__all__ = ["TrainAndVal", "open_sets", "trained_sets"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainAndVal:
    """Pictures to train on and pictures to judge by, of the same labels.

    Args:
        train: To train on.
        val: To judge by.

    Raises:
        DataError: A part is empty, or the labels differ.

    Examples:
        >>> from manylabel.data import scenes
        >>> sets = TrainAndVal(scenes(10, split="train"), scenes(10, split="val"))
        >>> len(sets.train), len(sets.val)
        (8, 2)
    """

    train: PictureDataset
    val: PictureDataset

    def __post_init__(self) -> None:
        for what, part in (("train on", self.train), ("judge by", self.val)):
            if not len(part):
                raise DataError(f"there are no pictures to {what} in {part.name}")
        missing = [name for name in self.train.labels if name not in self.val.labels]
        if missing:
            raise DataError(
                f"the validation pictures ({self.val.name}) do not know {len(missing)} of the training labels: "
                f"{', '.join(missing[:5])}; both need the same labels"
            )
        if self.val.labels.names != self.train.labels.names:
            object.__setattr__(self, "val", self.val.select_labels(self.train.labels.names))


def open_sets(settings: RecipeSettings) -> TrainAndVal:
    """Read the pictures that the settings name.

    What to judge by is, in this order: `val`; the data's own split whose name begins with "val", beside one that
    begins with "train"; a held-out share of the pictures, stratified over the labels: of the one split that begins
    with "train", if there is one, else of all. Where `val` is given, that one split is what is trained on, too.

    Args:
        settings: Those of a recipe.

    Returns:
        Both parts.

    Raises:
        DataError: The data cannot be read, or the parts do not fit each other.
    """
    data = load(settings.data)
    if settings.val is not None:
        train, val = _train_split(data), load(settings.val)
    elif (names := _own_splits(data)) is not None:
        train, val = data.split(names[0]), data.split(names[1])
    else:
        data = hold_out(data, val_fraction=settings.val_fraction)
        train, val = data.split("train"), data.split("val")
        if aside := ", ".join(name for name in data.splits if name not in ("train", "val")):
            logger.warning("%s: what to judge by is held out of what to train on; left aside: %s", data.name, aside)
    return TrainAndVal(hold_out(train, limit=settings.limit), hold_out(val, limit=settings.limit))


def trained_sets(settings: RecipeSettings, sets: TrainAndVal) -> TrainAndVal:
    """Return what of the pictures a recipe trains on, and judges by while it does: all, or only some of the labels.

    Args:
        settings: Those of a recipe.
        sets: All pictures, with all labels.
    """
    return TrainAndVal(settings.train_part(sets.train), sets.val)


def _train_split(data: PictureDataset) -> PictureDataset:
    """Return the data's own split to train on, if it is plain which it is, else all."""
    names = [name for name, members in data.splits.items() if len(members)]
    train = [name for name in names if name.startswith("train")]
    if len(train) != 1:
        return data
    if aside := ", ".join(name for name in names if name not in train):
        logger.warning("%s: trained on is its split %s; left aside: %s", data.name, train[0], aside)
    return data.split(train[0])


def _own_splits(data: PictureDataset) -> tuple[str, str] | None:
    """Return the names of the data's own splits, if it is plain which is which."""
    train = [name for name, members in data.splits.items() if name.startswith("train") and len(members)]
    val = [name for name, members in data.splits.items() if name.startswith("val") and len(members)]
    return (train[0], val[0]) if len(train) == len(val) == 1 else None
