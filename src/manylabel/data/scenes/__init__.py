"""Demo scenes: pictures of many things, drawn by the package itself, with labels that are right by construction."""

from manylabel.data.scenes.dataset import scenes
from manylabel.data.scenes.files import write_scenes

__all__ = ["scenes", "write_scenes"]
