"""Cleaned copies of datasets: spelling variants merged, one row per image, unreadable images left out."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from manylabel.data.dataset import ImageDataset
from manylabel.data.inspection.images import inspect_images
from manylabel.data.inspection.spelling import find_typos, find_variants
from manylabel.data.spec import load, spec_path
from manylabel.errors import ConfigError, DataError
from manylabel.label_text import SEPARATOR, protect_cell
from manylabel.page import plural
from manylabel.storage import refuse_existing, replacing

__all__ = ["fix"]

ENDINGS = (".csv", ".parquet", ".jsonl")


def fix(
    data: object,
    out: str | Path,
    *,
    typos: bool = False,
    unreadable: bool = False,
    overwrite: bool = False,
    **options: object,
) -> tuple[str, ...]:
    r"""Write a cleaned table of a dataset; the dataset itself is never changed.

    Labels that differ only in case or spacing are merged under the most frequent spelling; every image has one row.

    Args:
        data: Anything that `load` takes; its images must be files.
        out: The table to write: ``.csv``, ``.parquet`` or ``.jsonl``; image paths in it are relative to its folder.
        typos: Whether to rename probable typos, too; `check` lists them.
        unreadable: Whether to drop unreadable images; this decodes every image.
        overwrite: Whether to replace an existing file, though never the input.
        options: Options of `load`, such as ``rename``, ``drop`` and ``blank``.

    Returns:
        The changes and the remaining findings, one sentence each.

    Raises:
        ConfigError: `out` is the input, or of another kind.
        OutputExistsError: `out` exists.
        DataError: The dataset cannot be read, or its images are not files.

    Examples:
        >>> from tempfile import mkdtemp
        >>> folder = Path(mkdtemp())
        >>> _ = (folder / "tags.csv").write_text("image,tags\na.jpg,Cat|dog\nb.jpg,cat\nc.jpg,cat\n")
        >>> fix(folder / "tags.csv", folder / "clean.csv", images=folder)
        ("renamed 'Cat' (1 image) to 'cat'",)
        >>> (folder / "clean.csv").read_text().splitlines()[:2]
        ['image,tags', 'a.jpg,cat|dog']
    """
    out = Path(out)
    _check_ending(out)
    source = Path(spec_path(data) if isinstance(data, str) else data if isinstance(data, Path) else "").expanduser()
    if out.exists() and source.exists() and out.samefile(source):
        raise ConfigError(f"{out} is the input; write the cleaned table to another file")
    refuse_existing(out, overwrite=overwrite)
    dataset = load(data, **options)
    names, positives = dataset.labels.names, dataset.targets.positives
    rename = {variant: group[0] for group in find_variants(names, positives) for variant in group[1:]}
    if typos:
        rename |= {typo: rename.get(meant, meant) for typo, meant in find_typos(names, positives) if typo not in rename}
    counts = dict(zip(names, positives.tolist(), strict=True))
    changes = [f"renamed {old!r} ({plural(counts[old], 'image')}) to {new!r}" for old, new in rename.items()]
    cleaned = dataset.rename_labels(rename)
    if unreadable:
        bad = inspect_images(cleaned.images).bad
        changes += [f"dropped {image.name!r}: {image.reason}" for image in bad]
        cleaned = cleaned.subset(~np.isin(np.arange(len(cleaned)), [image.index for image in bad]))
    write_table(cleaned, out, overwrite=overwrite)
    return (*changes, *dataset.notes)


def write_table(dataset: ImageDataset, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write a table of tags or, where tags could not be read back or some are unknown, of one column per label.

    Args:
        dataset: The dataset; its images must be files, and its splits become the column ``split``.
        out: The table to write: ``.csv``, ``.parquet`` or ``.jsonl``; image paths in it are relative to its folder.
        overwrite: Whether to replace an existing file.

    Returns:
        The path of the table.

    Raises:
        ConfigError: `out` has another ending.
        OutputExistsError: `out` exists.
        DataError: The images are not files.
    """
    out = Path(out)
    _check_ending(out)
    columns = {"image": pl.Series(list(_paths(dataset, out.absolute().parent)), dtype=pl.String)}
    is_text = out.suffix.lower() == ".csv"
    odd = "|" if (dataset.targets.labels_per_image > 1).any() else "|;, "  # how `table` would detect the separator
    are_columns = dataset.targets.unknown is not None or dataset.targets.absent is not None
    if are_columns or (is_text and any(set(odd) & set(name) for name in dataset.labels)):
        for name in {"image", "split"} & set(dataset.labels):
            raise DataError(
                f"label {name!r} has the name of another column of the table; rename it (rename={name}:NEW)"
            )
        values, known = dataset.targets.dense()
        flags = pl.DataFrame(np.where(known, values, np.nan), schema=list(map(protect_cell, dataset.labels)))
        columns |= {name: flags[name].fill_nan(None).cast(pl.Int8) for name in flags.columns}
    else:
        tags = [dataset.labels_of(index) for index in range(len(dataset))]
        cells = [protect_cell(SEPARATOR.join(names)) for names in tags]
        columns["tags"] = pl.Series(cells, dtype=pl.String) if is_text else pl.Series(tags, dtype=pl.List(pl.String))
    if dataset.splits:
        split_of = np.full(len(dataset), None, dtype=object)
        for name, members in dataset.splits.items():
            split_of[members] = name
        columns["split"] = pl.Series(split_of.tolist(), dtype=pl.String)
    frame = pl.DataFrame(columns)
    with replacing(out, overwrite=overwrite) as temporary:
        if is_text:
            frame.write_csv(temporary)
        elif out.suffix.lower() == ".parquet":
            frame.write_parquet(temporary)
        else:
            frame.write_ndjson(temporary)
    return out


def _check_ending(out: Path) -> None:
    if out.suffix.lower() not in ENDINGS:
        raise ConfigError(f"the table must end in {', '.join(ENDINGS)}, got {out.name!r}")


def _paths(dataset: ImageDataset, folder: Path) -> Iterator[str]:
    """Yield the path of each image, relative to a folder where that is possible."""
    for index in range(len(dataset)):
        image = dataset.images[index]
        if not isinstance(image, Path):
            raise DataError(f"the images of {dataset.name} are not files, which a table needs")
        try:
            yield Path(os.path.relpath(image, folder)).as_posix()
        except ValueError:  # another drive of Windows
            yield image.absolute().as_posix()
