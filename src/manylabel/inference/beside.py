"""What is left beside tagged pictures or made of them: sidecar files, and copies in a folder for each tag."""

from __future__ import annotations

import filecmp
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

from manylabel.errors import OutputExistsError
from manylabel.images import IMAGE_ENDINGS
from manylabel.inference.listing import is_address
from manylabel.inference.predictor import TaggedImage
from manylabel.storage import write_text

__all__ = ["SidecarKind", "copy_by_tag", "write_sidecar"]

SidecarKind = Literal["txt", "xmp"]
"""``txt`` is a line of tags, ``xmp`` is what photo programs read as keywords."""

UNTAGGED = "no tags"

_MARK = 'x:xmptk="manylabel"'

_XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="manylabel">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">
   <dc:subject>
    <rdf:Bag>
{items}
    </rdf:Bag>
   </dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


def write_sidecar(picture: TaggedImage, kind: SidecarKind, *, overwrite: bool = False) -> bool:
    r"""Write a picture's tags to a file beside it: ``photo.txt`` or ``photo.xmp`` beside ``photo.jpg``.

    Where pictures share a stem, each has its whole name in that of its file: ``photo.png.xmp``.

    Args:
        picture: The picture; nothing is written for one that could not be read, or was fetched.
        kind: What to write.
        overwrite: Whether a file that is there may be replaced; an XMP file of another program never is, since it holds
            more than tags.

    Returns:
        False where a file was there and is left as it is.

    Examples:
        >>> import tempfile
        >>> from manylabel.types import Tag
        >>> photo = Path(tempfile.mkdtemp()) / "photo.jpg"
        >>> write_sidecar(TaggedImage(str(photo), (Tag("cat", 0.9), Tag("dog", 0.8))), "txt")
        True
        >>> photo.with_suffix(".txt").read_text()
        'cat, dog\n'
    """
    if picture.error is not None or is_address(picture.name):
        return True
    labels = [tag.label for tag in picture.tags]
    items = "\n".join(f"     <rdf:li>{escape(label)}</rdf:li>" for label in labels)
    text = ", ".join(labels) + "\n" if kind == "txt" else _XMP.format(items=items)
    target = _sidecar(Path(picture.name), kind)
    is_ours = kind == "txt" or not target.exists() or _MARK in target.read_text(encoding="utf-8", errors="replace")
    try:
        write_text(target, text, overwrite=overwrite and is_ours)
    except OutputExistsError:
        return False
    return True


def _sidecar(picture: Path, kind: SidecarKind) -> Path:
    others = (picture.with_suffix(ending) for ending in IMAGE_ENDINGS if ending != picture.suffix.lower())
    shares_stem = any(other.exists() and not other.samefile(picture) for other in others)
    return picture.with_name(f"{picture.name}.{kind}") if shares_stem else picture.with_suffix(f".{kind}")


def copy_by_tag(picture: TaggedImage, folder: str | Path) -> list[Path]:
    """Copy a picture into a folder for each of its tags, or into ``no tags``.

    A copy that is there already is left; another picture of the same name gets a number.

    Args:
        picture: The picture; one that could not be read, or was fetched, is not copied.
        folder: Where the folders of the tags are made.

    Returns:
        The copies.
    """
    if picture.error is not None or is_address(picture.name):
        return []
    names: Sequence[str] = [tag.label for tag in picture.tags] or [UNTAGGED]
    return [_copy(Path(picture.name), Path(folder) / _folder_name(name)) for name in names]


def _copy(source: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target, number = folder / source.name, 1
    while target.exists() and not filecmp.cmp(source, target):
        number += 1
        target = folder / f"{source.stem} ({number}){source.suffix}"
    if not target.exists():
        shutil.copy2(source, target)
    return target


def _folder_name(label: str) -> str:
    """Return a label as the name of a folder on every system.

    Examples:
        >>> _folder_name("cat/dog: <big>.")
        'cat_dog_ _big_'
    """
    return re.sub(r'[<>:"/\\|?*\x00-\x1f]', "_", label).rstrip(". ") or "_"
