"""PASCAL VOC: one XML file of objects per image, splits in text files.

Everingham et al., "The PASCAL Visual Object Classes Challenge", IJCV 2010.
Letters in shape comments: N images, L labels.
"""

import logging
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
from scipy.sparse import csr_array

from manylabel.data.dataset import ImageDataset, largest_areas
from manylabel.data.readers import layout
from manylabel.data.sources import Files
from manylabel.errors import DataError
from manylabel.images import IMAGE_ENDINGS
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

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
        manylabel.errors.DataError: src is not PASCAL VOC: no folders ImageSets/Main and Annotations; found: ...
    """
    layout.check_choices(difficult=(difficult, Difficult))
    root = _find_root(layout.existing(path))
    members = _read_splits(root, split)
    ids = np.array(list(dict.fromkeys(chain(*members.values()))))
    annotations = {file.stem: file for file in (root / "Annotations").glob("*.xml")}
    is_blank = np.isin(ids, list(_without_annotation(root, members, annotations)))
    boxes = {name: voc_boxes(file) for name, file in annotations.items()}  # all of them, for all splits to agree
    names = {each.label for each in chain(*boxes.values())}
    labels = LabelSpace(VOC_LABELS, display_names=TWO_WORDS) if names <= set(VOC_LABELS) else LabelSpace(sorted(names))

    rows = [row for row in np.flatnonzero(~is_blank) for _ in boxes[ids[row]]]
    objects = list(chain(*(boxes[name] for name in ids[~is_blank])))
    columns = np.array([labels.index(each.label) for each in objects], dtype=np.int64)
    hard = np.array([each.difficult for each in objects], dtype=bool) & (difficult == "unknown")
    present, doubtful = (
        boolean_matrix(np.array(rows)[chosen], columns[chosen], shape=(len(ids), len(labels)))
        for chosen in (~hard, hard)
    )
    return ImageDataset(
        Files(root / "JPEGImages", _image_names(root, ids)),
        Targets(present, unknown=csr_array(doubtful > present)).forget(is_blank),
        labels,
        name=root.absolute().name,
        splits={name: np.flatnonzero(np.isin(ids, chosen)) for name, chosen in members.items()},
        areas=largest_areas(rows, columns, [each.area for each in objects], present=present),
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


def voc_boxes(annotation: str | Path) -> list[ObjectBox]:
    """Read the objects of one annotation file.

    Args:
        annotation: Such as ``VOC2012/Annotations/2008_000008.xml``.

    Returns:
        The objects in the order of the file; left, top, right and bottom from 0 to 1, all 0 where the file lacks the
        image's size.

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
        return [_read_object(thing, width, height) for thing in tree.iterfind("object")]
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise DataError(f"invalid annotation {annotation}: {error}; fix or remove it") from error


def _read_object(thing: ElementTree.Element, width: float, height: float) -> ObjectBox:
    label = (thing.findtext("name") or "").strip()
    if not label:
        raise ValueError("an object has no name")
    sides = ("xmin", "ymin", "xmax", "ymax")
    left, top, right, bottom = (float(thing.findtext(f"bndbox/{side}") or 0) for side in sides)
    box = (0.0, 0.0, 0.0, 0.0)
    if width > 0 and height > 0 and thing.find("bndbox") is not None:
        # Corners count as inside, and pixels are counted from 1.
        box = ((left - 1) / width, (top - 1) / height, right / width, bottom / height)
    return ObjectBox(label, box, (thing.findtext("difficult") or "").strip() == "1")


def _find_root(path: Path) -> Path:
    """Return the folder of one year: the path itself, or the only one in it."""
    here = [path, *(path / name for name in layout.subfolders(path))] if path.is_dir() else []
    years = [each for each in here if (each / "ImageSets" / "Main").is_dir() and (each / "Annotations").is_dir()]
    if path in years or len(years) == 1:
        return years[0]
    if years:
        raise DataError(f"{path} holds several years; choose one: {', '.join(str(year) for year in years)}")
    if (path / "VOCdevkit").is_dir():
        return _find_root(path / "VOCdevkit")
    raise layout.wrong_format(path, "PASCAL VOC", "no folders ImageSets/Main and Annotations")


def _read_splits(root: Path, split: str | None) -> dict[str, list[str]]:
    """Return the image ids of one split, or of all splits that are not the union of others."""
    files = {file.stem: file for file in (root / "ImageSets" / "Main").glob("*.txt")}
    names = {stem for stem in files if stem.rpartition("_")[2] not in files or "_" not in stem}  # no cat_train.txt
    order = {"train": 0, "val": 1, "trainval": 2, "test": 3}
    there = {name: files[name] for name in sorted(names, key=lambda name: (order.get(name, 4), name))}
    if split is None and names & {"train", "val"}:
        there.pop("trainval", None)
    wanted = layout.choose_splits(there, split, of=root)
    if not wanted:
        raise DataError(f"{root / 'ImageSets' / 'Main'} holds no split such as train.txt; write one image id per line")
    return {name: layout.read_lines(file) for name, file in wanted.items()}


def _without_annotation(root: Path, members: dict[str, list[str]], annotations: dict[str, Path]) -> set[str]:
    """Return the images of a test split without published annotations; all others must have theirs."""
    unpublished: set[str] = set()
    for split, names in members.items():
        missing = [name for name in names if name not in annotations]
        if missing and split == "test":
            logger.warning(
                "%s: %d of %d test images lack an annotation; all are unknown", root, len(missing), len(names)
            )
            unpublished = set(names).difference(*(members[other] for other in members if other != split))
        elif missing:
            file = root / "Annotations" / f"{missing[0]}.xml"
            raise DataError(
                f"{len(missing)} of {len(names)} images of split {split!r} have no annotation, the first is {file}; "
                f"add them or remove the images from ImageSets/Main/{split}.txt"
            )
    return unpublished


def _image_names(root: Path, ids: Iterable[str]) -> list[str]:
    """Return the images' file names; a missing image is assumed to be a JPEG, and reported when opened."""
    folder = layout.existing(root / "JPEGImages")
    there = {file.stem: file.name for file in folder.iterdir() if file.suffix.lower() in IMAGE_ENDINGS}
    return [there.get(name, f"{name}.jpg") for name in ids]
