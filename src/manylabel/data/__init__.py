"""Pictures and labels in: one reader per format, all giving a `PictureDataset`."""

from manylabel.data.dataset import PictureDataset
from manylabel.data.scenes import scenes, write_scenes
from manylabel.data.sources import Files, JoinedSource, LazyBytes, PictureSource
from manylabel.data.splits import split_dataset, stratified_folds, stratified_split

__all__ = [
    "Files",
    "JoinedSource",
    "LazyBytes",
    "PictureDataset",
    "PictureSource",
    "scenes",
    "split_dataset",
    "stratified_folds",
    "stratified_split",
    "write_scenes",
]
