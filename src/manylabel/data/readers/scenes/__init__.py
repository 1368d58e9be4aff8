"""Demo scenes: pictures of many things, drawn by the package itself, with labels that are right by construction."""

from manylabel.data.readers.scenes.dataset import scenes
from manylabel.data.readers.scenes.files import write_scenes

__all__ = ["scenes", "write_scenes"]
