"""Demo scenes as files: pictures in a folder and a table of their labels beside them."""

from pathlib import Path

import numpy as np
import polars as pl

from manylabel.data.readers.scenes.dataset import scenes
from manylabel.errors import OutputExistsError
from manylabel.storage import replacing

__all__ = ["write_scenes"]


def write_scenes(
    folder: str | Path, n: int = 200, *, seed: int = 0, size: int = 256, unknown: float = 0.0, overwrite: bool = False
) -> Path:
    """Write demo scenes as JPEG files under ``pictures/`` and their labels as ``labels.csv``.

    The table has a column ``image`` and one column per label: 1 present, 0 absent, blank unknown.

    Args:
        folder: Where to; it is made.
        n: How many pictures.
        seed: Which pictures; another seed gives other ones.
        size: Width and height in pixels.
        unknown: The share of all entries to make unknown.
        overwrite: Whether files that are there may be replaced.

    Returns:
        The path of the table.

    Raises:
        OutputExistsError: A file is there and `overwrite` is false.

    Examples:
        >>> from tempfile import mkdtemp
        >>> table = write_scenes(mkdtemp(), 2, size=64)
        >>> table.name, sorted(path.name for path in (table.parent / "pictures").iterdir())
        ('labels.csv', ['scene-00000.jpg', 'scene-00001.jpg'])
    """
    table = Path(folder) / "labels.csv"
    if table.exists() and not overwrite:  # before any picture is drawn
        raise OutputExistsError(f"{table} exists already; choose another folder or ask to overwrite it (--overwrite)")
    dataset = scenes(n, seed=seed, size=size, unknown=unknown)
    names = [f"pictures/{dataset.pictures.name(index)}" for index in range(n)]
    for index, name in enumerate(names):
        picture = dataset.pictures[index]
        with replacing(table.parent / name, overwrite=overwrite) as temporary:
            temporary.write_bytes(picture if isinstance(picture, bytes) else picture.read_bytes())
    values, known = dataset.targets.dense()
    columns = np.where(known, values, np.nan).T
    frame = pl.DataFrame({"image": names} | dict(zip(dataset.labels, columns, strict=True)))
    with replacing(table, overwrite=overwrite) as temporary:
        frame.with_columns(pl.exclude("image").fill_nan(None).cast(pl.Int8)).write_csv(temporary)
    return table
