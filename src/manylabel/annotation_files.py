"""Tags in the formats of annotation tools: FiftyOne, CVAT and Label Studio."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree

from manylabel.errors import ImageError
from manylabel.image_files import is_address, relative_path
from manylabel.images import image_size

Row = Mapping[str, Any]
"""An image: ``{"image": ..., "tags": [{"label": ..., "score": ...}]}`` or ``{"image": ..., "error": ...}``."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fiftyone_text(rows: Iterable[Row], folder: Path) -> Iterator[str]:  # noqa: ARG001 - paths are absolute
    """Yield labels for `fiftyone.types.FiftyOneImageClassificationDataset`: Classifications by absolute path.

    Examples:
        >>> row = {"image": "/photos/a.jpg", "tags": [{"label": "cat", "score": 0.9}]}
        >>> print("".join(fiftyone_text([row], Path())))
        {"classes": null, "labels": {
        "/photos/a.jpg": [{"label": "cat", "confidence": 0.9}]
        }}
    """
    yield '{"classes": null, "labels": {'
    for comma, row in zip(chain(["\n"], repeat(",\n")), _readable(rows), strict=False):
        name = row["image"] if is_address(row["image"]) else os.path.abspath(row["image"])  # noqa: PTH100 - a text
        tags = [{"label": tag["label"], "confidence": tag["score"]} for tag in row["tags"]]
        yield f"{comma}{json.dumps(name)}: {json.dumps(tags)}"  # ASCII: names may not be valid Unicode
    yield "\n}}\n"


def cvat_text(rows: Iterable[Row], folder: Path) -> Iterator[str]:
    """Yield annotations in the format "CVAT for images 1.1": one tag per label, named like the files in the task.

    Examples:
        >>> row = {"image": "a.jpg", "tags": [{"label": "cat", "score": 0.9}]}
        >>> print("".join(cvat_text([row], Path())).splitlines()[-4])
          <image id="0" name="a.jpg">
    """
    yield '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
    meta = ElementTree.Element("meta")
    labels = ElementTree.SubElement(ElementTree.SubElement(meta, "task"), "labels")
    for name in sorted({tag["label"] for row in _readable(rows) for tag in row["tags"]}):
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = _xml(name)
        ElementTree.SubElement(label, "type").text = "tag"
    yield _indented(meta)
    for number, row in enumerate(_readable(rows)):
        image = ElementTree.Element("image", id=str(number), name=_xml(relative_path(row["image"], folder)))
        try:
            height, width = image_size(Path(row["image"]))
            image.attrib |= {"width": str(width), "height": str(height)}
        except (ImageError, OSError):  # downloaded, or gone; CVAT finds it by name
            pass
        for tag in row["tags"]:
            ElementTree.SubElement(image, "tag", label=_xml(tag["label"]), source="auto")
        yield _indented(image)
    yield "</annotations>\n"


def label_studio_text(rows: Iterable[Row], folder: Path) -> Iterator[str]:
    """Yield tasks with predictions for ``<Image name="image" value="$image"/>`` and ``<Choices name="tags">``.

    Images are local files of Label Studio, whose document root must be the folder of the tasks.

    Examples:
        >>> row = {"image": "photos/a b.jpg", "tags": [{"label": "cat", "score": 0.9}]}
        >>> task, = json.loads("".join(label_studio_text([row], Path.cwd())))
        >>> task["data"], task["predictions"][0]["result"][0]["value"]
        ({'image': '/data/local-files/?d=photos/a%20b.jpg'}, {'choices': ['cat']})
    """
    yield "["
    for comma, row in zip(chain(["\n"], repeat(",\n")), _readable(rows), strict=False):
        yield comma + json.dumps(_task(row, folder))
    yield "\n]\n"


Writer: TypeAlias = Callable[[Iterable[Row], Path], Iterator[str]]
WRITERS: dict[str, Writer] = {
    ".fiftyone.json": fiftyone_text,
    ".label_studio.json": label_studio_text,
    ".cvat.xml": cvat_text,
}
"""Functions by ending of the file: from the images, read once or twice, and the file's folder to pieces of its text."""


def annotation_writer(path: Path) -> Writer | None:
    """Return the writer of a file by its ending; None for other endings.

    Examples:
        >>> annotation_writer(Path("tags.cvat.xml")).__name__
        'cvat_text'
    """
    return next((write for ending, write in WRITERS.items() if path.name.lower().endswith(ending)), None)


def _task(row: Row, folder: Path) -> dict[str, Any]:
    name, tags = row["image"], row["tags"]
    address = name if is_address(name) else f"/data/local-files/?d={quote(os.fsencode(relative_path(name, folder)))}"
    value = {"choices": [tag["label"] for tag in tags]}
    result = {"from_name": "tags", "to_name": "image", "type": "choices", "value": value}
    score = sum(tag["score"] for tag in tags) / max(len(tags), 1)
    prediction = {"model_version": "manylabel", "score": score, "result": [result] if tags else []}
    return {"data": {"image": address}, "predictions": [prediction]}


def _readable(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if "tags" in row)


def _indented(element: ElementTree.Element) -> str:
    ElementTree.indent(element, level=1)
    return f"  {ElementTree.tostring(element, encoding='unicode')}\n"


def _xml(text: str) -> str:
    """Return text that XML can contain: no control characters or invalid Unicode."""
    return _NOT_XML.sub("\ufffd", text)
