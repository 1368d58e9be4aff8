"""Images in one folder per label, with or without a folder per split; and images without labels."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout
from manylabel.data.readers.layout import existing, list_images, subfolders
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
from manylabel.image_files import expand
from manylabel.images import IMAGE_ENDINGS
from manylabel.label_text import LABEL_FILE
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

SPLIT_FOLDERS = ("train", "val", "valid", "validation", "test")


def folder(path: str | Path, *, split: str | None = None) -> ImageDataset:
    """Read images in one folder per label, at any depth inside it.

    The labels are the folder names of all splits, sorted; a folder without images is a label without positives. A file
    ``.label`` in a folder overrides its label, percent-encoded. Folders called ``train``, ``val``, ``valid``,
    ``validation`` or ``test`` are splits if they contain folders, and if there are two of them or no other folders.

    Args:
        path: A folder with a folder per label or per split.
        split: Name of the split (default: all).

    Returns:
        The dataset, single-label.

    Raises:
        DataError: The folder or split is missing or has no images, or an image lies outside the label folders.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> for name in ("cat/a.jpg", "dog/b.jpg", "dog/old/c.jpg"):
        ...     (root / name).parent.mkdir(exist_ok=True)
        ...     (root / name).touch()
        >>> pets = folder(root)
        >>> pets.labels.names, pets.targets.positives.tolist()
        (('cat', 'dog'), [1, 2])
    """
    root = existing(path)
    if not root.is_dir():
        raise DataError(f"{root} is a file; pass a folder that contains one folder per label")
    splits = _find_splits(root)
    if split is not None and not splits:
        raise DataError(f"{root} has no split {split!r}, only the labels {', '.join(subfolders(root))}")
    folders = sorted({name for above in splits or [""] for name in subfolders(root / above)})
    labels = {name: _label(root, name, splits) for name in folders}
    if not splits:
        return _read(root, "", labels)
    wanted = layout.choose_splits(dict.fromkeys(splits), split, of=root)
    parts = {name: _read(root, f"{name}/", labels) for name in wanted}
    return ImageDataset.join(parts, name=" ".join(filter(None, (root.absolute().name, split))))


def _find_splits(root: Path) -> list[str]:
    """Return the existing splits, training first; none if the top-level folders are labels."""
    inside = subfolders(root)
    splits = [name for name in SPLIT_FOLDERS if name in inside and subfolders(root / name)]
    alone = set(inside) <= set(SPLIT_FOLDERS)  # else a lone folder `train` may be a label next to `bus` and `car`
    return splits if alone or len(splits) > 1 else []


def _label(root: Path, name: str, splits: list[str]) -> str:
    """Return the label of a folder: its name, or the content of the file that `manylabel predict --copy-to` wrote."""
    files = (root / above / name / LABEL_FILE for above in splits or [""])
    return next((unquote(file.read_text("utf-8"), errors="surrogatepass") for file in files if file.is_file()), name)


def _read(root: Path, prefix: str, label_of: dict[str, str]) -> ImageDataset:
    """Read the images of one split."""
    labels = LabelSpace(sorted(set(label_of.values())))
    names = list_images(root / prefix)
    if not names:
        raise DataError(f"no images in {root / prefix}; {list_choices('', subfolders(root / prefix), title='found')}")
    outside = [name for name in names if "/" not in name]
    if outside:
        raise DataError(
            f"{root / prefix / outside[0]} and {len(outside) - 1} more images lie outside the label folders; "
            "move each into the folder of its label, or read images without labels with files:PATH"
        )
    columns = np.array([labels.index(label_of[name.partition("/")[0]]) for name in names], dtype=np.int64)
    present = boolean_matrix(np.arange(len(names)), columns, shape=(len(names), len(labels)))
    return ImageDataset(
        images=Files(root, [prefix + name for name in names]),
        targets=Targets(present),
        labels=labels,
        name=root.absolute().name,
        single_label=True,
    )


def files(paths: str | Path | Sequence[str | Path]) -> ImageDataset:
    """Read images without labels.

    Args:
        paths: A file, a folder (searched recursively), a pattern such as ``photos/**/*.jpg``, or a list of these. In
            folders and patterns, images are recognised by extension.

    Returns:
        The dataset, without labels and without repetitions. Images of a single folder are named relative to it, others
        as given.

    Raises:
        DataError: Nothing is found. A single missing image in a list is not an error; it is reported when opened.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> (root / "a.jpg").touch()
        >>> photos = files(root)
        >>> photos.images.name(0), photos.targets.shape
        ('a.jpg', (1, 0))
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not several:
        raise DataError("the list of images is empty; pass files, folders or patterns such as photos/*.jpg")
    alone = len(several) == 1
    if alone and Path(several[0]).is_dir():
        root, names = Path(several[0]), list_images(Path(several[0]))
        if not names:
            list(expand(str(root)))  # raises an error that lists the content
    else:
        root, names = Path(), [name for path in several for name in _expand(str(path), alone=alone)]
    names = list(dict.fromkeys(names))
    nothing = csr_array((len(names), 0), dtype=bool)
    return ImageDataset(Files(root, names), Targets(nothing), LabelSpace([]), name=str(several[0]))


def _expand(path: str, *, alone: bool) -> list[str]:
    """Return the images of a path; one given by name among others need not exist."""
    is_pattern = bool(set(path) & set("*?["))
    if not is_pattern and (alone or Path(path).suffix.lower() not in IMAGE_ENDINGS):
        existing(path)
    return sorted(Path(name).as_posix() for name in expand(path))
