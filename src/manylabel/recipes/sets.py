"""Training and validation set of a run."""

import hashlib
import logging
from dataclasses import dataclass

from manylabel.data import ImageDataset, hold_out, load
from manylabel.errors import DataError
from manylabel.settings import DataSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainAndVal:
    """Training and validation set with the same labels.

    Args:
        train: Training set.
        val: Validation set; training labels that it lacks are absent from its images, its other labels are ignored.

    Raises:
        DataError: A set is empty, or the sets have no label in common.

    Examples:
        >>> from manylabel.data import scenes
        >>> sets = TrainAndVal(scenes(10, split="train"), scenes(10, split="val"))
        >>> len(sets.train), len(sets.val)
        (8, 2)
    """

    train: ImageDataset
    val: ImageDataset

    def __post_init__(self) -> None:
        for what, part in (("training", self.train), ("validation", self.val)):
            if not len(part):
                raise DataError(f"there are no {what} images in {part.name}")
        if self.val.labels.names != self.train.labels.names:
            object.__setattr__(self, "val", self.val.align_labels(self.train.labels))


def open_sets(settings: DataSettings, *, data: object = None, val: object = None) -> TrainAndVal:
    """Load the training and validation set that the settings name.

    The validation set is the first of: `val`; the split of the dataset whose name begins with "val", if another begins
    with "train"; a held-out fraction, stratified by label, of the split that begins with "train", else of all images.
    With `val`, too, the training set is the split that begins with "train", if there is exactly one.

    Args:
        settings: Settings of a recipe.
        data: Training set, in any form that `load` takes (default: the one the settings name).
        val: Validation set, likewise.

    Raises:
        DataError: The dataset cannot be read, or the labels of the sets differ.
    """
    images, others = _open(settings.data, data), _open(settings.val, val)
    if images is None:
        raise DataError("there is no training set; set data")
    if not len(images.labels):
        raise DataError(f"{images.name} has no labels to train on; use images with tags, such as a table")
    if others is not None:
        sets = _train_split(images), others
    elif len(train := images.splits_like("train")) == len(val_split := images.splits_like("val")) == 1:
        sets = images.split(train[0]), images.split(val_split[0])
    else:
        sets = _held_out(images, settings.val_fraction)
    return TrainAndVal(*(hold_out(part, limit=settings.limit) for part in sets))


def _held_out(data: ImageDataset, val_fraction: float) -> tuple[ImageDataset, ImageDataset]:
    """Return the training split, else all images, without a held-out fraction, and that fraction."""
    named = data.splits_like("")
    if len(named) > 1 and len(data.splits_like("train")) != 1:
        logger.warning(
            "%s has the splits %s, and the training split is ambiguous, so validation images are held out of all "
            "of them; set the training split with split=NAME in DATA, the validation set with --val",
            data.name,
            ", ".join(named),
        )
    data = hold_out(data, val_fraction=val_fraction)
    if aside := ", ".join(name for name in data.splits if name not in ("train", "val")):
        logger.warning("%s: validation images are held out of the training split; ignoring %s", data.name, aside)
    return data.split("train"), data.split("val")


def _open(name: str | None, given: object) -> ImageDataset | None:
    """Load a dataset that was passed from Python, or else the one of a name."""
    if given is None and name is not None and name.startswith("<"):
        raise DataError(f"the run trained on a Python object, {name}, which its settings cannot hold; pass it again")
    return None if given is None and name is None else load(name if given is None else given)


def describe_images(sets: TrainAndVal) -> dict[str, object]:
    """Return the sizes of both sets, and a fingerprint of the image names.

    Examples:
        >>> from manylabel.data import scenes
        >>> described = describe_images(TrainAndVal(scenes(10, split="train"), scenes(10, split="val")))
        >>> described["train"], described["val"], len(described["fingerprint"])
        (8, 2, 16)
    """
    digest = hashlib.sha256()
    for part in (sets.train, sets.val):
        digest.update("\0".join(part.images.name(index) for index in range(len(part))).encode(errors="surrogatepass"))
        digest.update(b"\0\0")
    return {"train": len(sets.train), "val": len(sets.val), "fingerprint": digest.hexdigest()[:16]}


def _train_split(data: ImageDataset) -> ImageDataset:
    """Return the training split of a dataset if it is unambiguous, else all images."""
    train = data.splits_like("train")
    if len(train) != 1:
        return data
    if aside := ", ".join(name for name in data.splits_like("") if name not in train):
        logger.warning("%s: training on split %s; ignoring %s", data.name, train[0], aside)
    return data.split(train[0])
