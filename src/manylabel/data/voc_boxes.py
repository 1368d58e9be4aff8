"""Where the objects of PASCAL VOC are: the boxes that the reader of labels does not keep."""

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from manylabel.errors import DataError

__all__ = ["ObjectBox", "voc_boxes"]


class ObjectBox(NamedTuple):
    """An object: its label, its box as shares of the picture's width and height, and whether it is hard to see."""

    label: str
    box: tuple[float, float, float, float]
    difficult: bool


def voc_boxes(annotation: str | Path) -> list[ObjectBox]:
    """Read the boxes of one annotation file.

    Args:
        annotation: Such as ``VOC2012/Annotations/2008_000008.xml``.

    Returns:
        The objects in the file's order; left, top, right and bottom from 0 to 1.

    Raises:
        DataError: The file cannot be understood.

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
        if width <= 0 or height <= 0:
            raise ValueError("it does not tell the picture's size")
        return [_read(thing, width, height) for thing in tree.iterfind("object")]
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise DataError(f"cannot understand the annotation {annotation}: {error}; mend or remove it") from error


def _read(thing: ElementTree.Element, width: float, height: float) -> ObjectBox:
    left, top, right, bottom = (
        float(thing.findtext(f"bndbox/{side}") or 0) for side in ("xmin", "ymin", "xmax", "ymax")
    )
    label = (thing.findtext("name") or "").strip()
    # Corners count as inside, and pixels are counted from 1.
    box = ((left - 1) / width, (top - 1) / height, right / width, bottom / height)
    return ObjectBox(label, box, (thing.findtext("difficult") or "").strip() == "1")
