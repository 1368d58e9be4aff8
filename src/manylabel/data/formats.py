"""Data formats by name. To add one, add a module to `manylabel.data.readers` and a line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manylabel.data.dataset import ImageDataset

__all__ = ["FORMATS", "find_reader"]

FORMATS: dict[str, str | Callable[..., ImageDataset]] = {
    "coco": "coco:coco",
    "csv": "table:table",
    "files": "folder:files",
    "folder": "folder:folder",
    "hf": "hugging_face:hugging_face",
    "jsonl": "table:table",
    "nus_wide": "nus_wide:nus_wide",
    "open_images": "open_images:open_images",
    "parquet": "table:table",
    "scenes": "scenes:scenes",
    "tsv": "table:table",
    "voc": "voc:voc",
    "xmp": "xmp:xmp",
    "yolo": "yolo:yolo",
}
"""Reader of each format: module and function in `manylabel.data.readers`, imported on first use, or any function."""


def find_reader(name: str) -> Callable[..., ImageDataset]:
    """Import the reader of a format.

    Examples:
        >>> find_reader("csv").__name__
        'table'
    """
    home = FORMATS[name]
    if not isinstance(home, str):
        return home
    module, _, function = home.partition(":")
    reader: Callable[..., ImageDataset] = getattr(import_module(f"manylabel.data.readers.{module}"), function)
    return reader
