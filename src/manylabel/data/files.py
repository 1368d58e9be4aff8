"""Pictures without labels, for prediction: files, folders and patterns."""

from collections.abc import Sequence
from pathlib import Path

from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset
from manylabel.data.layout import IMAGE_ENDINGS, existing, picture_names
from manylabel.data.sources import Files
from manylabel.errors import DataError
from manylabel.image_files import expand
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = ["files"]


def files(paths: str | Path | Sequence[str | Path]) -> ImageDataset:
    """Read pictures without labels.

    Args:
        paths: A file, a folder (with all below it), a pattern such as ``photos/**/*.jpg``, or a list of these. In
            folders and patterns a picture is known by its ending; a file given by its own name may end as it likes.

    Returns:
        The data set, with no labels; a picture that is given twice is in it once. A folder alone names its pictures
        relative to itself, anything else as given.

    Raises:
        DataError: Nothing is there, or a folder holds no pictures. One missing picture in a list of several is kept:
            whoever opens it reports it.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> (root / "a.jpg").touch()
        >>> photos = files(root)
        >>> photos.pictures.name(0), photos.targets.shape
        ('a.jpg', (1, 0))
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not several:
        raise DataError("the list of pictures is empty; give files, folders or patterns such as photos/*.jpg")
    alone = len(several) == 1
    if alone and Path(several[0]).is_dir():
        root, names = Path(several[0]), picture_names(Path(several[0]))
        if not names:
            list(expand(str(root)))  # raises, and says what is there
    else:
        root, names = Path(), [name for path in several for name in _expand(str(path), alone=alone)]
    names = list(dict.fromkeys(names))
    nothing = csr_array((len(names), 0), dtype=bool)
    return ImageDataset(Files(root, names), Targets(nothing), LabelSpace([]), name=str(several[0]))


def _expand(path: str, *, alone: bool) -> list[str]:
    """Return the images that one path stands for; one that is given by name among others need not exist."""
    is_pattern = bool(set(path) & set("*?["))
    if not is_pattern and (alone or Path(path).suffix.lower() not in IMAGE_ENDINGS):
        existing(path)
    return sorted(Path(name).as_posix() for name in expand(path))
