"""Tags in the formats of annotation tools: FiftyOne, CVAT and Label Studio."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from manylabel.errors import ImageError
from manylabel.image_files import is_address
from manylabel.images import image_size

Row = Mapping[str, Any]
"""An image: ``{"image": ..., "tags": [{"label": ..., "score": ...}]}`` or ``{"image": ..., "error": ...}``."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fiftyone_text(rows: Sequence[Row], folder: Path) -> str:  # noqa: ARG001 - paths are absolute
    """Return labels for `fiftyone.types.FiftyOneImageClassificationDataset`: Classifications by absolute path.

    Examples:
        >>> row = {"image": "/photos/a.jpg", "tags": [{"label": "cat", "score": 0.9}]}
        >>> print(fiftyone_text([row], Path()))
        {"classes": null, "labels": {"/photos/a.jpg": [{"label": "cat", "confidence": 0.9}]}}
    """
    labels = {
        _path(row["image"], None): [{"label": tag["label"], "confidence": tag["score"]} for tag in row["tags"]]
        for row in rows
    }
    return json.dumps({"classes": None, "labels": labels})  # ASCII: names may not be valid Unicode


def cvat_text(rows: Sequence[Row], folder: Path) -> str:
    """Return annotations in the format "CVAT for images 1.1": one tag per label, named like the files in the task.

    Examples:
        >>> row = {"image": "a.jpg", "tags": [{"label": "cat", "score": 0.9}]}
        >>> print(cvat_text([row], Path()).splitlines()[-4])
          <image id="0" name="a.jpg">
    """
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    labels = ElementTree.SubElement(ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task"), "labels")
    for name in sorted({tag["label"] for row in rows for tag in row["tags"]}):
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = _xml(name)
        ElementTree.SubElement(label, "type").text = "tag"
    for number, row in enumerate(rows):
        image = ElementTree.SubElement(root, "image", id=str(number), name=_xml(_path(row["image"], folder)))
        try:
            height, width = image_size(Path(row["image"]))
            image.attrib |= {"width": str(width), "height": str(height)}
        except (ImageError, OSError):  # downloaded, or gone; CVAT finds it by name
            pass
        for tag in row["tags"]:
            ElementTree.SubElement(image, "tag", label=_xml(tag["label"]), source="auto")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def label_studio_text(rows: Sequence[Row], folder: Path) -> str:
    """Return tasks with predictions for ``<Image name="image" value="$image"/>`` and ``<Choices name="tags">``.

    Images are local files of Label Studio, whose document root must be the folder of the tasks.

    Examples:
        >>> row = {"image": "photos/a b.jpg", "tags": [{"label": "cat", "score": 0.9}]}
        >>> task, = json.loads(label_studio_text([row], Path.cwd()))
        >>> task["data"], task["predictions"][0]["result"][0]["value"]
        ({'image': '/data/local-files/?d=photos/a%20b.jpg'}, {'choices': ['cat']})
    """
    return json.dumps([_task(row, folder) for row in rows], indent=1)


WRITERS: dict[str, Callable[[Sequence[Row], Path], str]] = {
    ".fiftyone.json": fiftyone_text,
    ".label_studio.json": label_studio_text,
    ".cvat.xml": cvat_text,
}
"""Functions by ending of the file: from readable images and the file's folder to its text."""


def annotation_writer(path: Path) -> Callable[[Sequence[Row], Path], str] | None:
    """Return the writer of a file by its ending; None for other endings.

    Examples:
        >>> annotation_writer(Path("tags.cvat.xml")).__name__
        'cvat_text'
    """
    return next((write for ending, write in WRITERS.items() if path.name.lower().endswith(ending)), None)


def _task(row: Row, folder: Path) -> dict[str, Any]:
    name, tags = row["image"], row["tags"]
    address = name if is_address(name) else f"/data/local-files/?d={quote(os.fsencode(_path(name, folder)))}"
    value = {"choices": [tag["label"] for tag in tags]}
    result = {"from_name": "tags", "to_name": "image", "type": "choices", "value": value}
    score = sum(tag["score"] for tag in tags) / max(len(tags), 1)
    prediction = {"model_version": "manylabel", "score": score, "result": [result] if tags else []}
    return {"data": {"image": address}, "predictions": [prediction]}


def _path(name: str, folder: Path | None) -> str:
    """Return the path of an image relative to a folder, or absolute; URLs stay as they are."""
    if is_address(name):
        return name
    return os.path.abspath(name) if folder is None else Path(os.path.relpath(name, folder)).as_posix()  # noqa: PTH100 - a text, as the key


def _xml(text: str) -> str:
    """Return text that XML can contain: no control characters or invalid Unicode."""
    return _NOT_XML.sub("\ufffd", text)
