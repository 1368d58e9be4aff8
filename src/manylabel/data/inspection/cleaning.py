"""Cleaned copies of datasets: spelling variants merged, one row per image, unreadable images left out."""

from pathlib import Path

import numpy as np

from manylabel.data.inspection.images import inspect_images
from manylabel.data.inspection.spelling import find_typos, find_variants
from manylabel.data.readers.table import refuse_table, write_table
from manylabel.data.spec import load, spec_path
from manylabel.errors import ConfigError
from manylabel.page import plural

__all__ = ["fix"]


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
    source = Path(spec_path(data) if isinstance(data, str) else data if isinstance(data, Path) else "").expanduser()
    if out.exists() and source.exists() and out.samefile(source):
        raise ConfigError(f"{out} is the input; write the cleaned table to another file")
    refuse_table(out, overwrite=overwrite)
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
