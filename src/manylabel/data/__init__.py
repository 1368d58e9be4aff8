"""Pictures and labels in: one reader per format, all giving a `PictureDataset`."""

from manylabel.data.dataset import PictureDataset
from manylabel.data.scenes import scenes, write_scenes
from manylabel.data.sources import Files, JoinedSource, LazyBytes, PictureSource

__all__ = ["Files", "JoinedSource", "LazyBytes", "PictureDataset", "PictureSource", "scenes", "write_scenes"]
