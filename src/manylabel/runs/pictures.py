"""Thumbnails of a report: a picture, and beside it where the model looks for what it got wrong, or right."""

from __future__ import annotations

import io

from PIL import Image

from manylabel.data import ImageDataset, decode
from manylabel.errors import ImageError, MissingExtraError
from manylabel.evaluation.pages import DrawImage
from manylabel.evaluation.pages.album import thumbnail
from manylabel.evaluation.picture_results import ImageResult
from manylabel.explain import explain
from manylabel.page import Picture
from manylabel.runs.judging import JudgedRun

__all__ = ["heat_thumbnails"]

_HEIGHT = 112
_GAP = 3


def heat_thumbnails(judged: JudgedRun) -> DrawImage:
    """Return what draws a picture beside the heat map of the label that tells most: missed, else invented, else found.

    Args:
        judged: The run; its model looks at the pictures again.
    """

    def draw(result: ImageResult, caption: str) -> Picture:
        tags = [*result.missed, *result.invented, *result.found]
        if not tags:
            return thumbnail(judged.held_out, result.index, caption)
        try:
            return _pair(judged, result.index, tags[0].label, caption)
        except (ImageError, OSError, MissingExtraError):
            return thumbnail(judged.held_out, result.index, caption)

    return draw


def _pair(judged: JudgedRun, index: int, label: str, caption: str) -> Picture:
    [found] = explain(judged.model, _open(judged.held_out, index), labels=label)
    sides = [found.image.convert("RGB"), found.overlay()]
    for side in sides:
        side.thumbnail((2 * _HEIGHT, _HEIGHT))
    both = Image.new("RGB", (2 * sides[0].width + _GAP, sides[0].height), "white")
    both.paste(sides[0], (0, 0))
    both.paste(sides[1], (sides[0].width + _GAP, 0))
    encoded = io.BytesIO()
    both.save(encoded, "JPEG", quality=72, optimize=True)
    words = f"{caption}. Right: where it looks for {judged.held_out.labels.display(label)}"
    return Picture(encoded.getvalue(), words)


def _open(dataset: ImageDataset, index: int) -> Image.Image:
    return decode(dataset.pictures[index], name=dataset.pictures.name(index))
