"""Thumbnails of a data set's pictures."""

from manylabel.data import ImageDataset, decode
from manylabel.errors import ImageError
from manylabel.page import Picture

__all__ = ["thumbnail"]

_HEIGHT = 112


def thumbnail(dataset: ImageDataset, index: int, caption: str) -> Picture:
    """Return a thumbnail of one picture; only its caption where it cannot be read any more.

    Args:
        dataset: The data set.
        index: The picture's position.
        caption: What stands below it.

    Examples:
        >>> from manylabel.data import scenes
        >>> thumbnail(scenes(1), 0, "a scene").caption
        'a scene'
    """
    try:
        return Picture.of(decode(dataset.pictures[index], at_least=(_HEIGHT, _HEIGHT)), caption, height=_HEIGHT)
    except (ImageError, OSError):
        return Picture(b"", caption)
