"""PASCAL VOC: one XML file of objects per image, splits in text files.

Everingham et al., "The PASCAL Visual Object Classes Challenge", IJCV 2010.
Letters in shape comments: N images, L labels.
"""

import logging
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset, largest_areas
from manylabel.data.readers.layout import check_choices, existing, subfolders
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
from manylabel.images import IMAGE_ENDINGS
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

__all__ = [
    "VOC_LABELS",
    "ObjectBox",
    "voc",
    "voc_boxes",
]

logger = logging.getLogger(__name__)

VOC_LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
Difficult = Literal["unknown", "present"]
TWO_WORDS = {"diningtable": "dining table", "pottedplant": "potted plant", "tvmonitor": "tv monitor"}


def voc(path: str | Path, *, split: str | None = None, difficult: Difficult = "unknown") -> ImageDataset:
    """Read PASCAL VOC 2007 or 2012, or other data in its format.

    The labels are the 20 official ones in their official order; if any annotation has another object name, they are
    the sorted names in all annotations, the same for every split. A ``test`` split without annotations, as in VOC 2012,
    is read with every label unknown.

    Args:
        path: A folder such as ``VOC2012``, with ``Annotations``, ``ImageSets/Main`` and ``JPEGImages``; or its parent
            ``VOCdevkit``.
        split: Name of a file in ``ImageSets/Main``, without ``.txt`` (default: all but the union ``trainval``).
        difficult: State of a label whose objects in an image are all marked difficult: unknown, as in the challenge,
            or present.

    Returns:
        The dataset; `areas` holds the fraction of the image that a label's largest box covers.

    Raises:
        DataError: A folder, split or annotation is missing or invalid.

    Examples:
        >>> voc("src")
        Traceback (most recent call last):
        manylabel.errors.DataError: src is not PASCAL VOC: no folders ImageSets/Main and Annotations; in it ...
    """
    check_choices(difficult=(difficult, Difficult))
    root = _find_root(existing(path))
    members = _read_splits(root, split)
    ids = list(dict.fromkeys(name for names in members.values() for name in names))
    positions = {name: position for position, name in enumerate(ids)}
    splits = {name: np.array([positions[i] for i in names], dtype=np.int64) for name, names in members.items()}

    without_annotation = _without_annotation(root, members)
    annotated = [name for name in ids if name not in without_annotation]
    found = {name: voc_boxes(root / "Annotations" / f"{name}.xml", needs_size=False) for name in annotated}
    objects = [each for boxes in found.values() for each in boxes]
    rows = np.repeat([positions[name] for name in annotated], list(map(len, found.values()))).astype(np.int64)
    names = _label_names(root, {each.label for each in objects}, read=set(annotated))
    labels = LabelSpace(names, display_names={name: text for name, text in TWO_WORDS.items() if name in names})
    columns = np.array([labels.index(each.label) for each in objects], dtype=np.int64)
    hard = np.array([each.difficult for each in objects], dtype=bool) & (difficult == "unknown")
    blank = np.array([positions[name] for name in without_annotation], dtype=np.int64)
    targets = _targets(rows, columns, hard, blank, shape=(len(ids), len(labels)))
    return ImageDataset(
        images=Files(root / "JPEGImages", _image_names(root, ids)),
        targets=targets,
        labels=labels,
        name=root.absolute().name,
        splits=splits,
        areas=largest_areas(rows, columns, [each.area for each in objects], present=targets.present),
    )


class ObjectBox(NamedTuple):
    """An object: its label, its box as fractions of the image's width and height, and whether it is difficult."""

    label: str
    box: tuple[float, float, float, float]
    difficult: bool

    @property
    def area(self) -> float:
        """The fraction of the image that the box covers."""
        left, top, right, bottom = self.box
        return max(right - left, 0.0) * max(bottom - top, 0.0)


def voc_boxes(annotation: str | Path, *, needs_size: bool = True) -> list[ObjectBox]:
    """Read the objects of one annotation file.

    Args:
        annotation: Such as ``VOC2012/Annotations/2008_000008.xml``.
        needs_size: Whether to refuse a file without the image's size; otherwise its boxes are all 0.

    Returns:
        The objects in the order of the file; left, top, right and bottom from 0 to 1.

    Raises:
        DataError: The file is invalid.

    Examples:
        >>> import tempfile
        >>> box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>50</xmax><ymax>20</ymax></bndbox>"
        >>> size = "<size><width>100</width><height>40</height></size>"
        >>> file = Path(tempfile.mkdtemp()) / "a.xml"
        >>> _ = file.write_text(f"<annotation>{size}<object><name>cat</name>{box}</object></annotation>")
        >>> voc_boxes(file)
        [ObjectBox(label='cat', box=(0.0, 0.0, 0.5, 0.5), difficult=False)]
    """
    try:
        tree = ElementTree.parse(annotation).getroot()  # noqa: S314 - expat stops entity bombs since its version 2.4
        width, height = (float(tree.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        if needs_size and not (width > 0 and height > 0):
            raise ValueError("it lacks the image's size")
        return [_read_object(thing, width, height) for thing in tree.iterfind("object")]
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise DataError(f"invalid annotation {annotation}: {error}; fix or remove it") from error


def _read_object(thing: ElementTree.Element, width: float, height: float) -> ObjectBox:
    label = (thing.findtext("name") or "").strip()
    if not label:
        raise ValueError("an object has no name")
    sides = (float(thing.findtext(f"bndbox/{side}") or 0) for side in ("xmin", "ymin", "xmax", "ymax"))
    left, top, right, bottom = sides
    box = (0.0, 0.0, 0.0, 0.0)
    if width > 0 and height > 0 and thing.find("bndbox") is not None:
        # Corners count as inside, and pixels are counted from 1.
        box = ((left - 1) / width, (top - 1) / height, right / width, bottom / height)
    return ObjectBox(label, box, (thing.findtext("difficult") or "").strip() == "1")


def _targets(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    hard: NDArray[np.bool_],
    blank: NDArray[np.int64],
    *,
    shape: tuple[int, int],
) -> Targets:
    """Return the targets; labels with difficult objects only and all labels of `blank` images are unknown."""
    present = boolean_matrix(rows[~hard], columns[~hard], shape=shape)
    doubtful = boolean_matrix(
        np.concatenate([rows[hard], np.repeat(blank, shape[1])]),
        np.concatenate([columns[hard], np.tile(np.arange(shape[1]), len(blank))]),
        shape=shape,
    )
    return Targets(present, unknown=csr_array(doubtful > present))


def _find_root(path: Path) -> Path:
    """Return the folder of one year: the path itself, or the only one in it."""
    here = [path, *(path / name for name in subfolders(path))] if path.is_dir() else []
    years = [
        folder for folder in here if (folder / "ImageSets" / "Main").is_dir() and (folder / "Annotations").is_dir()
    ]
    if path in years or len(years) == 1:
        return years[0]
    if years:
        raise DataError(f"{path} holds several years; choose one: {', '.join(str(year) for year in years)}")
    if (path / "VOCdevkit").is_dir():
        return _find_root(path / "VOCdevkit")
    inside = f"in it {list_choices('', subfolders(path))}" if path.is_dir() else "it is a file"
    raise DataError(f"{path} is not PASCAL VOC: no folders ImageSets/Main and Annotations; {inside}")


def _read_splits(root: Path, split: str | None) -> dict[str, list[str]]:
    """Return the image ids of one split, or of all splits that are not the union of others."""
    stems = {file.stem for file in (root / "ImageSets" / "Main").glob("*.txt")}
    names = {stem for stem in stems if stem.rpartition("_")[2] not in stems or "_" not in stem}  # no cat_train.txt
    if split is not None and split not in names:
        raise DataError(f"{root} has no split {split!r}; {list_choices(split, names)}")
    wanted = {split} if split else names - {"trainval"} if names & {"train", "val"} else names
    if not wanted:
        raise DataError(f"{root / 'ImageSets' / 'Main'} holds no split such as train.txt; write one image id per line")
    order = {"train": 0, "val": 1, "trainval": 2, "test": 3}
    texts = {
        name: (root / "ImageSets" / "Main" / f"{name}.txt").read_text(encoding="utf-8-sig")
        for name in sorted(wanted, key=lambda name: (order.get(name, 4), name))
    }
    return {name: [line.strip() for line in text.splitlines() if line.strip()] for name, text in texts.items()}


def _without_annotation(root: Path, members: dict[str, list[str]]) -> set[str]:
    """Return the images of a test split without published annotations; all others must have theirs."""
    there = {file.stem for file in (root / "Annotations").glob("*.xml")}
    unpublished: set[str] = set()
    for split, names in members.items():
        missing = [name for name in names if name not in there]
        if missing and split == "test":
            logger.warning(
                "%s: %d of %d test images have no annotation; all are unknown", root, len(missing), len(names)
            )
            elsewhere = {name for other in members if other != split for name in members[other]}
            unpublished.update(set(names) - elsewhere)
        elif missing:
            file = root / "Annotations" / f"{missing[0]}.xml"
            raise DataError(
                f"{len(missing)} of {len(names)} images of split {split!r} have no annotation, the first is {file}; "
                f"add them or take the images out of ImageSets/Main/{split}.txt"
            )
    return unpublished


def _label_names(root: Path, found: set[str], *, read: set[str]) -> list[str]:
    """Return the labels of all annotations, also of those not read yet, for all splits to agree."""
    rest = (file for file in (root / "Annotations").glob("*.xml") if file.stem not in read)
    names = found.union(each.label for file in rest for each in voc_boxes(file, needs_size=False))
    return list(VOC_LABELS) if names <= set(VOC_LABELS) else sorted(names)


def _image_names(root: Path, ids: list[str]) -> list[str]:
    """Return the images' file names; a missing image is assumed to be a JPEG, and reported when opened."""
    folder = existing(root / "JPEGImages")
    there = {file.stem: file.name for file in folder.iterdir() if file.suffix.lower() in IMAGE_ENDINGS}
    return [there.get(name, f"{name}.jpg") for name in ids]
