"""Datasets: one reader per format, each returning an `ImageDataset`; splits, transforms, loaders and checks."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manylabel.data.dataset import ImageDataset
    from manylabel.data.inspection import CheckReport, check, fix
    from manylabel.data.loading import DecodedImages, ImageLoader, collate
    from manylabel.data.readers.coco import coco
    from manylabel.data.readers.folder import files, folder
    from manylabel.data.readers.hugging_face import hugging_face
    from manylabel.data.readers.label_studio import label_studio
    from manylabel.data.readers.memory import arrays
    from manylabel.data.readers.nus_wide import nus_wide, nus_wide_zero_shot_labels
    from manylabel.data.readers.open_images import open_images
    from manylabel.data.readers.scenes import scenes, write_scenes
    from manylabel.data.readers.table import table, write_table
    from manylabel.data.readers.voc import voc
    from manylabel.data.readers.xmp import xmp
    from manylabel.data.readers.yolo import yolo
    from manylabel.data.sampling import EpochSampler, class_aware_sampler
    from manylabel.data.sources import Files, ImageSource, JoinedSource, LazyBytes
    from manylabel.data.spec import FORMATS, load, relabel
    from manylabel.data.splits import hold_out, stratified_folds, stratified_split
    from manylabel.data.transforms import ImageTransform, eval_transform, train_transform
    from manylabel.images import decode, image_size

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
    "arrays",
    "check",
    "class_aware_sampler",
    "coco",
    "collate",
    "decode",
    "eval_transform",
    "files",
    "fix",
    "folder",
    "hold_out",
    "hugging_face",
    "image_size",
    "label_studio",
    "load",
    "nus_wide",
    "nus_wide_zero_shot_labels",
    "open_images",
    "relabel",
    "scenes",
    "stratified_folds",
    "stratified_split",
    "table",
    "train_transform",
    "voc",
    "write_scenes",
    "write_table",
    "xmp",
    "yolo",
]

# Imported on first use: a model needs only the transforms, not every reader and its dependencies.
_HOMES = {
    "data.dataset": "ImageDataset",
    "data.inspection": "CheckReport check fix",
    "data.loading": "DecodedImages ImageLoader collate",
    "data.readers.coco": "coco",
    "data.readers.folder": "files folder",
    "data.readers.hugging_face": "hugging_face",
    "data.readers.label_studio": "label_studio",
    "data.readers.memory": "arrays",
    "data.readers.nus_wide": "nus_wide nus_wide_zero_shot_labels",
    "data.readers.open_images": "open_images",
    "data.readers.scenes": "scenes write_scenes",
    "data.readers.table": "table write_table",
    "data.readers.voc": "voc",
    "data.readers.xmp": "xmp",
    "data.readers.yolo": "yolo",
    "data.sampling": "EpochSampler class_aware_sampler",
    "data.sources": "Files ImageSource JoinedSource LazyBytes",
    "data.spec": "FORMATS load relabel",
    "data.splits": "hold_out stratified_folds stratified_split",
    "data.transforms": "ImageTransform eval_transform train_transform",
    "images": "decode image_size",
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"manylabel.{module}"), name)
    raise AttributeError(f"module 'manylabel.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
