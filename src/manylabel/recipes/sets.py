"""The pictures of a run: those to train on and those to judge by."""

import hashlib
import logging
from dataclasses import dataclass

from manylabel.data import ImageDataset, hold_out, load
from manylabel.errors import DataError
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.run_folder import RunFolder

__all__ = ["TrainAndVal", "describe_pictures", "open_sets", "sets_of_run", "trained_sets"]

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

    train: ImageDataset
    val: ImageDataset

    def __post_init__(self) -> None:
        for what, part in (("train on", self.train), ("judge by", self.val)):
            if not len(part):
                raise DataError(f"there are no pictures to {what} in {part.name}")
        missing = [name for name in self.train.labels if name not in self.val.labels]
        if missing:
            raise DataError(
                f"the validation pictures ({self.val.name}) do not know {len(missing)} of the training labels: "
                f"{', '.join(missing[:5])}; both need the same labels; for tables or Open Images, list them "
                "in a file, one in each line, and add labels=FILE to both specs"
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
        named = data.splits_like("")
        if len(named) > 1 and len(data.splits_like("train")) != 1:
            logger.warning(
                "%s has the splits %s, and it is not plain which to train on, so pictures to judge by are held out of "
                "all of them; name one to train on with split=NAME in the data, one to judge by with --val",
                data.name,
                ", ".join(named),
            )
        data = hold_out(data, val_fraction=settings.val_fraction)
        train, val = data.split("train"), data.split("val")
        if aside := ", ".join(name for name in data.splits if name not in ("train", "val")):
            logger.warning("%s: what to judge by is held out of what to train on; left aside: %s", data.name, aside)
    return TrainAndVal(hold_out(train, limit=settings.limit), hold_out(val, limit=settings.limit))


def sets_of_run(settings: RecipeSettings, given: TrainAndVal | None, run: RunFolder) -> TrainAndVal:
    """Return the pictures of a run, and write down in its folder which they are.

    Args:
        settings: Those of a recipe.
        given: The pictures, instead of those that the settings name.
        run: The run's folder.

    Raises:
        ConfigError: The run goes on, and began with other pictures.
    """
    sets = given or open_sets(settings)
    run.remember_pictures(describe_pictures(sets))
    return sets


def describe_pictures(sets: TrainAndVal) -> dict[str, object]:
    """Return how many pictures there are in both parts, and a fingerprint of their names.

    Examples:
        >>> from manylabel.data import scenes
        >>> described = describe_pictures(TrainAndVal(scenes(10, split="train"), scenes(10, split="val")))
        >>> described["train"], described["val"], len(described["fingerprint"])
        (8, 2, 16)
    """
    digest = hashlib.sha256()
    for part in (sets.train, sets.val):
        digest.update("\0".join(part.pictures.name(index) for index in range(len(part))).encode(errors="surrogatepass"))
        digest.update(b"\0\0")
    return {"train": len(sets.train), "val": len(sets.val), "fingerprint": digest.hexdigest()[:16]}


def trained_sets(settings: RecipeSettings, sets: TrainAndVal) -> TrainAndVal:
    """Return what of the pictures a recipe trains on, and judges by while it does: all, or only some of the labels.

    Args:
        settings: Those of a recipe.
        sets: All pictures, with all labels.
    """
    return TrainAndVal(settings.train_part(sets.train), sets.val)


def _train_split(data: ImageDataset) -> ImageDataset:
    """Return the data's own split to train on, if it is plain which it is, else all."""
    train = data.splits_like("train")
    if len(train) != 1:
        return data
    if aside := ", ".join(name for name in data.splits_like("") if name not in train):
        logger.warning("%s: trained on is its split %s; left aside: %s", data.name, train[0], aside)
    return data.split(train[0])


def _own_splits(data: ImageDataset) -> tuple[str, str] | None:
    """Return the names of the data's own splits, if it is plain which is which."""
    train, val = data.splits_like("train"), data.splits_like("val")
    return (train[0], val[0]) if len(train) == len(val) == 1 else None
