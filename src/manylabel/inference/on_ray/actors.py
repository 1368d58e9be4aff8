"""What an actor of Ray Data does: names of pictures in, their tags out, as tables of Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from manylabel.image_files import is_address
from manylabel.inference.on_ray.placed_model import PlacedModel
from manylabel.inference.pipeline import PreparationPool
from manylabel.predictions import Prediction, TagChoice, score_batch
from manylabel.types import Tag

if TYPE_CHECKING:  # it comes with the extra
    import pyarrow

__all__ = ["TaggingActor", "join_names", "pictures_to_table", "split_names", "table_to_pictures"]


class TaggingActor:
    """Holds a model and a process that decodes for it; a picture that kills that process is a bad one, no more.

    Args:
        model: What to open.
        choice: Which scores become tags.
        batch_size: Pictures that go through the model at once.
        folder: Where paths that are not absolute start.
    """

    def __init__(self, model: PlacedModel, choice: TagChoice, batch_size: int, folder: str) -> None:
        self.predictor = model.open()
        self.choice = choice
        self.batch_size = batch_size
        self.folder = folder
        self.pool = PreparationPool(1)

    def __call__(self, table: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """Tag the pictures that are named, batch by batch; the next ones are decoded meanwhile."""
        names = [name for row in table["names"].to_pylist() for name in split_names(row)]
        batches = [names[start : start + self.batch_size] for start in range(0, len(names), self.batch_size)]
        spec = self.predictor.spec.input_spec
        decoding = [self.pool.submit(tuple((name, self._locate(name)) for name in batch), spec) for batch in batches]
        for future in decoding:
            yield pictures_to_table(score_batch(self.predictor.engine, future.result()).tagged(self.choice))

    def _locate(self, name: str) -> str:
        return name if is_address(name) else os.path.join(self.folder, name)  # noqa: PTH118 - there are millions


def join_names(names: Sequence[str]) -> bytes:
    r"""Return names as bytes: a file's name need not be valid Unicode, but holds no zero byte.

    Examples:
        >>> split_names(join_names(["a b.jpg", "caf\udce9.jpg"]))
        ['a b.jpg', 'caf\udce9.jpg']
    """
    return b"\0".join(map(os.fsencode, names))


def split_names(joined: bytes) -> list[str]:
    """Return the names that were joined."""
    return [os.fsdecode(name) for name in joined.split(b"\0")]


def pictures_to_table(pictures: Sequence[Prediction]) -> pyarrow.Table:
    """Return tagged pictures as rows.

    Examples:
        >>> pictures = [Prediction("a.jpg", (Tag("cat", 0.9),)), Prediction("b.jpg", error="it is empty")]
        >>> table_to_pictures(pictures_to_table(pictures)) == pictures
        True
    """
    import pyarrow

    tag = pyarrow.struct({"label": pyarrow.string(), "score": pyarrow.float64()})
    schema = pyarrow.schema({"name": pyarrow.binary(), "tags": pyarrow.list_(tag), "error": pyarrow.string()})
    columns = {
        "name": [os.fsencode(picture.name) for picture in pictures],
        "tags": [[tag._asdict() for tag in picture.tags] for picture in pictures],
        "error": [picture.error for picture in pictures],
    }
    return pyarrow.table(columns, schema=schema)


def table_to_pictures(table: pyarrow.Table) -> list[Prediction]:
    """Return the tagged pictures of a table."""
    return [
        Prediction(os.fsdecode(row["name"]), tuple(Tag(**tag) for tag in row["tags"]), row["error"])
        for row in table.to_pylist()
    ]
