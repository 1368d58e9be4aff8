"""Pictures and labels in: one reader per format, all giving a `ImageDataset`."""

from importlib import import_module
from typing import TYPE_CHECKING

from manylabel.data.check import CheckReport, check
from manylabel.data.coco import coco
from manylabel.data.dataset import ImageDataset
from manylabel.data.files import files
from manylabel.data.folder import folder
from manylabel.data.hold_out import hold_out
from manylabel.data.hugging_face import hugging_face
from manylabel.data.loading import DecodedImages, ImageLoader, collate
from manylabel.data.nus_wide import nus_wide, nus_wide_zero_shot_labels
from manylabel.data.open_images import open_images
from manylabel.data.sampling import EpochSampler, class_aware_sampler
from manylabel.data.scenes import scenes, write_scenes
from manylabel.data.sources import Files, ImageSource, JoinedSource, LazyBytes
from manylabel.data.spec import FORMATS, load
from manylabel.data.splits import split_dataset, stratified_folds, stratified_split
from manylabel.data.table import table
from manylabel.data.voc import voc
from manylabel.images import decode, image_size

if TYPE_CHECKING:
    from manylabel.data.transforms import ImageTransform, eval_transform, train_transform, views_transform

__all__ = [
    "FORMATS",
    "CheckReport",
    "DecodedImages",
    "EpochSampler",
    "Files",
    "ImageDataset",
    "ImageLoader",
    "ImageSource",
    "ImageTransform",
    "JoinedSource",
    "LazyBytes",
    "check",
    "class_aware_sampler",
    "coco",
    "collate",
    "decode",
    "eval_transform",
    "files",
    "folder",
    "hold_out",
    "hugging_face",
    "image_size",
    "load",
    "nus_wide",
    "nus_wide_zero_shot_labels",
    "open_images",
    "scenes",
    "split_dataset",
    "stratified_folds",
    "stratified_split",
    "table",
    "train_transform",
    "views_transform",
    "voc",
    "write_scenes",
]

# Imported when first used: they need torchvision, which takes three times as long to import as all the rest.
_TRANSFORMS = ("ImageTransform", "eval_transform", "train_transform", "views_transform")


def __getattr__(name: str) -> object:
    if name in _TRANSFORMS:
        return getattr(import_module("manylabel.data.transforms"), name)
    raise AttributeError(f"module 'manylabel.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
