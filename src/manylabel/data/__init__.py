"""Pictures and labels in: one reader per format, all giving a `PictureDataset`."""

from manylabel.data.coco import coco
from manylabel.data.dataset import PictureDataset
from manylabel.data.files import files
from manylabel.data.folder import folder
from manylabel.data.hold_out import hold_out
from manylabel.data.hugging_face import hugging_face
from manylabel.data.scenes import scenes, write_scenes
from manylabel.data.sources import Files, JoinedSource, LazyBytes, PictureSource
from manylabel.data.spec import FORMATS, load
from manylabel.data.splits import split_dataset, stratified_folds, stratified_split
from manylabel.data.voc import voc

__all__ = [
    "FORMATS",
    "Files",
    "JoinedSource",
    "LazyBytes",
    "PictureDataset",
    "PictureSource",
    "coco",
    "files",
    "folder",
    "hold_out",
    "hugging_face",
    "load",
    "scenes",
    "split_dataset",
    "stratified_folds",
    "stratified_split",
    "voc",
    "write_scenes",
]
