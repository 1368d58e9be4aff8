"""Label names that probably mean the same, and cleaned copies of datasets.

Cleaning merges spelling variants, leaves one row per image, and on request changes labels and leaves out unreadable
images.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.inspection.images import inspect_images
from manylabel.data.readers.table import read_table, refuse_table, write_table
from manylabel.data.spec import load, spec_path
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.page import plural

LEAST_RATIO = 20  # positives of a label and of its typo; rarer labels are compared only
LEAST_LENGTH = 4
LONG = 7  # letters; shorter names that differ in two are mostly other words: chair and car
VALUES = {"present": 1, "absent": 0, "unknown": -1}
_BINS = 32


def fix(
    data: object,
    out: str | Path,
    *,
    typos: bool = False,
    unreadable: bool = False,
    accept: str | Path | None = None,
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
        accept: Table of labels to change, such as `manylabel.label_issues.write_issues` writes, without the rows you
            disagree with: the columns ``image``, ``label`` and ``suggested`` (present, absent or unknown).
        overwrite: Whether to replace an existing file, though never the input.
        options: Options of `load`, such as ``rename``, ``drop`` and ``blank``.

    Returns:
        The changes and the remaining findings, one sentence each.

    Raises:
        ConfigError: `out` is the input, or of another kind.
        OutputExistsError: `out` exists.
        DataError: The dataset cannot be read, its images are not files, or `accept` has other images or labels.

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
    dataset, accepted = (dataset, []) if accept is None else _apply(dataset, Path(accept))
    names, positives = dataset.labels.names, dataset.targets.positives
    rename = {variant: group[0] for group in find_variants(names, positives) for variant in group[1:]}
    if typos:
        rename |= {typo: rename.get(meant, meant) for typo, meant in find_typos(names, positives) if typo not in rename}
    counts = dict(zip(names, positives.tolist(), strict=True))
    changes = [*accepted]
    changes += [f"renamed {old!r} ({plural(counts[old], 'image')}) to {new!r}" for old, new in rename.items()]
    cleaned = dataset.rename_labels(rename)
    if unreadable:
        bad = inspect_images(cleaned.images).bad
        changes += [f"dropped {image.name!r}: {image.reason}" for image in bad]
        cleaned = cleaned.subset(~np.isin(np.arange(len(cleaned)), [image.index for image in bad]))
    write_table(cleaned, out, overwrite=overwrite)
    return (*changes, *dataset.notes)


def _apply(dataset: ImageDataset, accept: Path) -> tuple[ImageDataset, list[str]]:
    """Return a dataset with the accepted changes, and a sentence for each that was one."""
    frame = read_table(accept, may_be_empty=True)
    columns = ("image", "label", "suggested")
    for column in columns:
        if column not in frame.columns:
            raise DataError(f"{accept} has no column {column!r}; {list_choices(column, frame.columns)}")
    rows_of = {dataset.images.name(row): row for row in range(len(dataset))}
    places: dict[tuple[int, int], int] = {}
    for image, label, suggested in frame.select(columns).iter_rows():
        if image not in rows_of:
            raise DataError(
                f"{accept} names image {image!r}, which {dataset.name} lacks; pass the dataset it was made of"
            )
        if label not in dataset.labels:
            choices = list_choices(str(label), dataset.labels)
            raise DataError(f"{accept} names label {label!r}, which {dataset.name} lacks; {choices}")
        if suggested not in VALUES:
            raise DataError(f"suggested must be one of {', '.join(VALUES)}, got {suggested!r} in {accept}")
        place = rows_of[image], dataset.labels.index(label)
        if places.setdefault(place, VALUES[suggested]) != VALUES[suggested]:
            raise DataError(f"{accept} has two suggestions for {label!r} of {image!r}; delete one of the rows")
    if not places:
        return dataset, []
    values, known = dataset.targets.dense(images := sorted({row for row, _ in places}))
    given = dict(zip(images, np.where(known, values, -1), strict=True))
    new = {place: value for place, value in places.items() if given[place[0]][place[1]] != value}
    words = {value: word for word, value in VALUES.items()}
    changes = [
        f"changed {dataset.labels[column]!r} of {dataset.images.name(row)!r} from "
        f"{words[int(given[row][column])]} to {words[value]}"
        for (row, column), value in new.items()
    ]
    rows, columns = zip(*places, strict=True)
    targets = dataset.targets.with_values(rows, columns, list(places.values()))
    single_label = dataset.single_label and bool((targets.labels_per_image == 1).all())
    return replace(dataset, targets=targets, areas=None, single_label=single_label), changes


def find_variants(names: Sequence[str], positives: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Return groups of labels that differ only in case, spaces, hyphens and underscores, the most frequent first.

    Args:
        names: The labels.
        positives: Number of images of each, ``[L]``.

    Examples:
        >>> find_variants(["Cat", "cat", "traffic light", "traffic_light", "dog"], np.array([1, 9, 3, 2, 5]))
        [('cat', 'Cat'), ('traffic light', 'traffic_light')]
    """
    groups = defaultdict[str, list[int]](list)
    for label, name in enumerate(names):
        groups[_plain(name)].append(label)
    ranked = (sorted(group, key=lambda label: -positives[label]) for group in groups.values() if len(group) > 1)
    return [tuple(names[label] for label in group) for group in ranked]


def find_typos(names: Sequence[str], positives: NDArray[np.int64]) -> list[tuple[str, str]]:
    """Return pairs of a rare label that is probably a typo, and the frequent label that is probably meant.

    A probable typo has at most a twentieth of the other label's images, the same first letter, and differs by one
    insertion, deletion, substitution or transposition, or by two if it has seven letters or more. Names that differ in
    digits, and names without upper and lower case, are never typos of each other.

    Args:
        names: The labels.
        positives: Number of images of each, ``[L]``.

    Examples:
        >>> find_typos(["bicycle", "bycicle", "car", "cart"], np.array([90, 1, 80, 70]))
        [('bycicle', 'bicycle')]
    """
    plain = [_plain(name) for name in names]
    lengths = np.array([len(name) for name in plain])
    letters = np.zeros((len(names), _BINS), dtype=np.int16)
    for row, name in enumerate(plain):
        letters[row] = np.bincount([ord(letter) % _BINS for letter in name], minlength=_BINS)
    largest = positives.max(initial=0)
    found = []
    is_rare = (positives > 0) & (positives * LEAST_RATIO <= largest) & (lengths >= LEAST_LENGTH)
    for rare in np.flatnonzero(is_rare).tolist():
        most = 2 if lengths[rare] >= LONG else 1
        others = np.flatnonzero(positives >= positives[rare] * LEAST_RATIO)
        others = others[np.abs(letters[others] - letters[rare]).sum(axis=1) <= 2 * most]
        near = [int(other) for other in others if _could_be(plain[rare], plain[other], most)]
        if near:
            meant = min(near, key=lambda other: (_distance(plain[rare], plain[other]), -positives[other]))
            found.append((names[rare], names[meant]))
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name).casefold())


def _could_be(typo: str, meant: str, most: int) -> bool:
    has_case = typo.upper() != typo
    same_digits = re.sub(r"\D", "", typo) == re.sub(r"\D", "", meant)
    return has_case and same_digits and typo[0] == meant[0] and 0 < _distance(typo, meant) <= most


def _distance(one: str, other: str) -> int:
    """Return the number of insertions, deletions, substitutions and transpositions between two texts."""
    before, above = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        here = [row]
        for column, against in enumerate(other, 1):
            best = min(here[-1] + 1, above[column] + 1, above[column - 1] + (letter != against))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == against:
                best = min(best, before[column - 2] + 1)
            here.append(best)
        before, above = above, here
    return above[-1]
