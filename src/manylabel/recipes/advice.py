"""What a run should be told before it begins: labels that cannot be learned, a head too big for the data."""

from torch import nn

from manylabel.data import ImageDataset
from manylabel.recipes.sets import TrainAndVal

__all__ = ["advise", "advise_on_head", "advise_on_labels"]

PARAMETERS_PER_PICTURE = 10_000


def advise(head: nn.Module, sets: TrainAndVal) -> list[str]:
    """Return all there is to say.

    Args:
        head: The head to train.
        sets: The pictures.
    """
    return [
        *advise_on_labels(sets.train, what="train on", effect="so it cannot be learned"),
        *advise_on_labels(sets.val, what="judge by", effect="so it is left out of mAP"),
        *advise_on_head(head, num_pictures=len(sets.train)),
    ]


def advise_on_labels(dataset: ImageDataset, *, what: str, effect: str, at_most: int = 10) -> list[str]:
    """Name the labels that no picture has.

    Args:
        dataset: The pictures.
        what: What they are for.
        effect: What follows for one label.
        at_most: How many labels to name.

    Examples:
        >>> from manylabel.data import scenes
        >>> len(advise_on_labels(scenes(3), what="train on", effect="so it cannot be learned"))
        1
    """
    empty = [label for label, count in zip(dataset.labels, dataset.targets.positives, strict=True) if not count]
    if not empty:
        return []
    more = f" and {len(empty) - at_most} more" if len(empty) > at_most else ""
    named = ", ".join(map(repr, empty[:at_most])) + more
    if len(empty) == 1:
        return [f"no picture to {what} has the label {named}, {effect}"]
    return [f"no picture to {what} has one of {len(empty)} labels, {_of_several(effect)}: {named}"]


def _of_several(words: str) -> str:
    """Say of several labels what is said of one."""
    return words.replace("it is", "they are").replace("it cannot", "they cannot")


def advise_on_head(head: nn.Module, *, num_pictures: int) -> list[str]:
    """Warn of a head with very many parameters for the pictures there are.

    Args:
        head: The head to train.
        num_pictures: Pictures to train on.

    Examples:
        >>> advise_on_head(nn.Linear(1000, 1000), num_pictures=10)
        ['the head trains 1.0 million parameters on 10 pictures, 100,100 for each, and will learn them by heart; ...']
    """
    parameters = sum(each.numel() for each in head.parameters() if each.requires_grad)
    if parameters <= PARAMETERS_PER_PICTURE * num_pictures:
        return []
    return [
        f"the head trains {parameters / 1e6:.1f} million parameters on {num_pictures} pictures, "
        f"{parameters // num_pictures:,} for each, and will learn them by heart; take a smaller head "
        "(--head csra or linear) or more pictures"
    ]
