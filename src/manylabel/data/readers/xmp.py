"""Keywords of photos themselves, as photo managers write them: XMP, embedded or in sidecar files, and IPTC."""

import logging
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np
from PIL import Image, IptcImagePlugin

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import Blank, check_choices, existing, list_images, treat_blanks
from manylabel.data.sources import Files
from manylabel.errors import DataError
from manylabel.targets import Targets
from manylabel.types import LONGEST_LABEL, LabelSpace

logger = logging.getLogger(__name__)

Hierarchy = Literal["levels", "leaf", "path"]
"""Labels of a hierarchical keyword ``animal|dog``: both levels, ``dog``, or ``animal|dog``."""

MOST_BYTES = 4_000_000  # photo managers write kilobytes
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_FLAT = "{http://purl.org/dc/elements/1.1/}subject"
_SEPARATORS = {
    "{http://ns.adobe.com/lightroom/1.0/}hierarchicalSubject": "|",
    "{http://www.digikam.org/ns/1.0/}TagsList": "/",
}


def xmp(path: str | Path, *, hierarchy: Hierarchy = "levels", blank: Blank = "drop") -> ImageDataset:
    """Read photos with their keywords as labels.

    Keywords are read from XMP inside the photo, from a sidecar file (``photo.xmp`` or ``photo.jpg.xmp``) and from IPTC;
    those of one photo add up.

    Args:
        path: A folder of photos, with all below it.
        hierarchy: Labels of a hierarchical keyword ``animal|dog``: every level (``levels``), the last (``leaf``), or
            the whole text (``path``).
        blank: Photos without keywords are dropped (``drop``), have none of the labels (``negative``), or nothing is
            known about them (``unknown``).

    Returns:
        The dataset; the labels are all keywords, sorted.

    Raises:
        DataError: The folder is missing, or no photo in it has keywords.

    Examples:
        >>> from tempfile import mkdtemp
        >>> xmp(mkdtemp())
        Traceback (most recent call last):
        manylabel.errors.DataError: no photo in ... has keywords; looked at 0 photos for XMP inside, ...
    """
    check_choices(hierarchy=(hierarchy, Hierarchy), blank=(blank, Blank))
    root = existing(path)
    names = list_images(root) if root.is_dir() else []
    keywords = [sorted(_labels(root / name, hierarchy)) for name in names]
    space = LabelSpace(sorted({label for labels in keywords for label in labels}))
    if not len(space):
        raise DataError(
            f"no photo in {root} has keywords; looked at {len(names)} photos for XMP inside, sidecar files "
            "(photo.xmp, photo.jpg.xmp) and IPTC"
        )
    is_blank = np.array([not labels for labels in keywords], dtype=bool)
    num_blank = int(is_blank.sum())
    meanings = {"drop": "were dropped", "negative": "count as negatives of every label", "unknown": "are unknown"}
    dataset = ImageDataset(
        Files(root, names),
        Targets.from_lists(keywords, labels=space),
        space,
        name=root.absolute().name,
        notes=(f"{num_blank:,} photos without keywords {meanings[blank]}",) if num_blank else (),
    )
    return treat_blanks(dataset, is_blank, blank)


def xmp_keywords(content: bytes) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the flat keywords of an XMP packet, and the levels of its hierarchical ones.

    A document type declaration, and with it any entity, is refused, as is a packet above 4 MB.

    Args:
        content: The XML.

    Raises:
        DataError: It is not well-formed, or not to be trusted.

    Examples:
        >>> bag = "<dc:subject><r:Bag><r:li>dog</r:li></r:Bag></dc:subject>"
        >>> names = f'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:r="{_RDF}"'
        >>> xmp_keywords(f"<r:RDF {names}>{bag}</r:RDF>".encode())
        (['dog'], [])
    """
    if len(content) > MOST_BYTES:
        raise DataError(f"the XMP has {len(content):,} bytes, more than {MOST_BYTES:,}")
    try:
        tree = ElementTree.fromstring(content.strip(b"\0 \r\n\t"), ElementTree.XMLParser(target=_WithoutDoctype()))  # noqa: S314 - no entities
    except ElementTree.ParseError as error:
        raise DataError(f"the XMP is not well-formed: {error}") from error
    hierarchical = [
        tuple(level.strip() for level in keyword.split(separator) if level.strip())
        for name, separator in _SEPARATORS.items()
        for keyword in _items(tree, name)
    ]
    return _items(tree, _FLAT), [levels for levels in hierarchical if levels]


class _WithoutDoctype(ElementTree.TreeBuilder):
    def doctype(self, *_: object) -> None:
        raise DataError("the XMP has a document type declaration, which no photo manager writes")


def _items(tree: ElementTree.Element, name: str) -> list[str]:
    """Return the texts of a list, without blank ones."""
    texts = [(item.text or "").strip() for element in tree.iter(name) for item in element.iter(f"{{{_RDF}}}li")]
    if any(len(text) > LONGEST_LABEL for text in texts):
        raise DataError(f"the XMP has a keyword of more than {LONGEST_LABEL:,} characters")
    return list(filter(None, texts))


def _labels(photo: Path, hierarchy: Hierarchy) -> set[str]:
    """Return the labels of a photo; what cannot be read is logged and has none."""
    packets, words = _embedded(photo)
    for sidecar in (photo.with_suffix(".xmp"), photo.with_name(f"{photo.name}.xmp")):
        if sidecar.is_file():
            with sidecar.open("rb") as file:
                packets.append(file.read(MOST_BYTES + 1))
    flat, paths = set(words), set[tuple[str, ...]]()
    for packet in packets:
        try:
            words, levels = xmp_keywords(packet)
        except DataError as error:
            logger.warning("ignoring keywords of %s: %s", photo, error)
        else:
            flat.update(words)
            paths.update(levels)
    every = {level for levels in paths for level in levels}
    if hierarchy == "levels":
        return flat | every
    # Lightroom writes the levels as flat keywords, too
    return flat - every | ({levels[-1] for levels in paths} if hierarchy == "leaf" else set(map("|".join, paths)))


def _embedded(photo: Path) -> tuple[list[bytes], list[str]]:
    """Return the XMP packets inside a photo and its IPTC keywords, as older programs write them."""
    try:
        with Image.open(photo) as image:
            packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
            fields = IptcImagePlugin.getiptcinfo(image) or {}
    except (OSError, ValueError, SyntaxError, KeyError, Image.DecompressionBombError):
        return [], []  # whoever decodes the image reports it
    packet = packet.encode() if isinstance(packet, str) else packet
    found = fields.get((2, 25)) or []
    words = [_text(word).strip() for word in (found if isinstance(found, list) else [found])]
    return [packet] if packet else [], [word for word in words if 0 < len(word) <= LONGEST_LABEL]


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return word.decode("latin-1")
