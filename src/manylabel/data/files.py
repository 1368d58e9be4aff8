"""Pictures without labels, for prediction: files, folders and patterns."""

from collections.abc import Sequence
from glob import glob
from pathlib import Path

from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset
from manylabel.data.layout import IMAGE_ENDINGS, existing, picture_names
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
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
        root, names = Path(several[0]), _inside(Path(several[0]))
    else:
        root, names = Path(), [name for path in several for name in _expand(path, alone=alone)]
    names = list(dict.fromkeys(names))
    nothing = csr_array((len(names), 0), dtype=bool)
    return ImageDataset(Files(root, names), Targets(nothing), LabelSpace([]), name=str(several[0]))


def _expand(path: str | Path, *, alone: bool) -> list[str]:
    """Return the pictures that one path stands for."""
    if Path(path).is_dir():
        return [(Path(path) / name).as_posix() for name in _inside(Path(path))]
    if not Path(path).exists() and set(str(path)) & set("*?["):
        matches = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
        found = [name for name in matches if _is_picture(name) and Path(name).is_file()]
        if not found:
            raise DataError(f"no picture matches {path}; a picture ends in {', '.join(sorted(IMAGE_ENDINGS))}")
        return found
    return [str(path)] if _is_picture(path) and not alone else [str(existing(path))]


def _inside(folder: Path) -> list[str]:
    names = picture_names(folder)
    if not names:
        inside = list_choices("", (entry.name for entry in folder.iterdir()))
        raise DataError(f"no pictures in {folder}: none of {', '.join(sorted(IMAGE_ENDINGS))}; in it {inside}")
    return names


def _is_picture(path: str | Path) -> bool:
    return Path(path).suffix.lower() in IMAGE_ENDINGS
