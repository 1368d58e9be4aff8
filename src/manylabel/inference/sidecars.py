"""Sidecar files with the tags of an image, and copies of images sorted into one folder per tag."""

import filecmp
import shutil
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

from manylabel.errors import OutputExistsError
from manylabel.image_files import is_address
from manylabel.images import IMAGE_ENDINGS
from manylabel.label_text import LABEL_FILE, SEPARATOR, folder_name, printable
from manylabel.predictions import ImagePrediction
from manylabel.storage import free_path, replacing, write_text

SidecarKind = Literal["txt", "xmp"]
"""``txt`` is a line of tags, ``xmp`` the keywords that photo managers read."""

UNTAGGED = "no tags"

_MARK = 'x:xmptk="manylabel"'

_XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="manylabel">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:lr="http://ns.adobe.com/lightroom/1.0/">
{keywords}
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


def write_sidecar(image: ImagePrediction, kind: SidecarKind, *, overwrite: bool = False) -> bool:
    r"""Write an image's tags to a file next to it: ``photo.txt`` or ``photo.xmp`` for ``photo.jpg``.

    Images with the same stem keep their extension in the sidecar name: ``photo.png.xmp``. Control characters of a
    label, which XML cannot hold, are percent-encoded. A label ``animal|dog`` becomes the keyword ``dog`` and the
    hierarchical keyword ``animal|dog``, as in Lightroom.

    Args:
        image: The image; nothing is written for unreadable images and URLs.
        kind: Sidecar format.
        overwrite: Replace an existing file, except XMP files of other programs, which hold more than tags.

    Returns:
        False if a file exists and was not replaced.

    Examples:
        >>> import tempfile
        >>> from manylabel.types import Tag
        >>> photo = Path(tempfile.mkdtemp()) / "photo.jpg"
        >>> write_sidecar(ImagePrediction(str(photo), (Tag("cat", 0.9), Tag("dog", 0.8))), "txt")
        True
        >>> photo.with_suffix(".txt").read_text()
        'cat, dog\n'
    """
    if image.error is not None or is_address(image.name):
        return True
    labels = [printable(tag.label) for tag in image.tags]
    text = ", ".join(labels) + "\n" if kind == "txt" else _XMP.format(keywords=_keywords(labels))
    target = _sidecar(Path(image.name), kind)
    is_ours = kind == "txt" or not target.exists() or _MARK in target.read_text(encoding="utf-8", errors="replace")
    try:
        write_text(target, text, overwrite=overwrite and is_ours)
    except OutputExistsError:
        return False
    return True


def _keywords(labels: list[str]) -> str:
    """Return the flat keywords and, if a label is hierarchical (``animal|dog``), the hierarchical ones."""
    leaves = list(dict.fromkeys(label.rpartition(SEPARATOR)[2] or label for label in labels))
    bags = {"dc:subject": leaves, "lr:hierarchicalSubject": [label for label in labels if SEPARATOR in label]}
    return "\n".join(
        "\n".join(
            [
                f"   <{name}>",
                "    <rdf:Bag>",
                *(f"     <rdf:li>{escape(keyword)}</rdf:li>" for keyword in keywords),
                "    </rdf:Bag>",
                f"   </{name}>",
            ]
        )
        for name, keywords in bags.items()
        if keywords or name == "dc:subject"
    )


def _sidecar(image: Path, kind: SidecarKind) -> Path:
    others = (image.with_suffix(ending) for ending in IMAGE_ENDINGS if ending != image.suffix.lower())
    shares_stem = any(other.exists() and not other.samefile(image) for other in others)
    return image.with_name(f"{image.name}.{kind}") if shares_stem else image.with_suffix(f".{kind}")


def copy_by_tag(image: ImagePrediction, folder: str | Path) -> list[Path]:
    """Copy an image into a folder for each of its tags, or into ``no tags``.

    Existing copies stay; another image of the same name gets a number. If a label is not a valid folder name, a file
    ``.label`` in the folder holds it, and ``folder:DIR`` reads it from there.

    Args:
        image: The image; unreadable images and URLs are not copied.
        folder: Parent of the tag folders.

    Returns:
        The copies.

    Raises:
        StorageError: The disk is full or not writable.
    """
    if image.error is not None or is_address(image.name):
        return []
    folders = [_label_folder(Path(folder), tag.label) for tag in image.tags] or [Path(folder) / UNTAGGED]
    return [_copy(Path(image.name), each) for each in folders]


def _label_folder(folder: Path, label: str) -> Path:
    """Return the folder of a label; a label that is not a valid folder name is written into it."""
    inside = folder / (UNTAGGED.replace(" ", "%20") if label == UNTAGGED else folder_name(label))
    if inside.name != label and not (inside / LABEL_FILE).exists():
        write_text(inside / LABEL_FILE, printable(label))
    return inside


def _copy(source: Path, folder: Path) -> Path:
    target = free_path(folder / source.name, is_ours=lambda copy: filecmp.cmp(source, copy))
    if not target.exists():
        with replacing(target) as temporary:
            shutil.copy2(source, temporary)
    return target
