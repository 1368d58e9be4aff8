"""Check of a dataset before training: statistics, and problems that would break training.

Letters in shape comments: N images, L labels, G groups.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, triu
from scipy.sparse.csgraph import connected_components

from manylabel.data.dataset import ImageDataset
from manylabel.data.inspection import report as findings
from manylabel.data.inspection.cleaning import find_typos, find_variants
from manylabel.data.inspection.images import Inspection, Progress, duplicate_groups, inspect_images
from manylabel.data.inspection.report import FEW_POSITIVES, CheckReport, DuplicateGroup, LabelCount, Leak, LeakKind
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

MOST_PAIRS = 16_000_000  # to count; an image with 100,000 labels has 10 billion, more than memory holds


def check(dataset: ImageDataset, *, num_workers: int | None = None, progress: Progress | None = None) -> CheckReport:
    """Check every image and every label of a dataset.

    Args:
        dataset: The images and their labels.
        num_workers: Number of decoding processes; 0 decodes in this one (default: one per core, 0 for few images).
        progress: Called with the number of images done and the total.

    Returns:
        The findings; `problems` is empty if nothing would break training.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> targets = Targets.from_lists([[0], [0, 1]], num_labels=2)
        >>> report = check(ImageDataset(Files("photos", ["a.jpg", "b.jpg"]), targets, LabelSpace(["cat", "dog"])))
        >>> report.problems
        ("2 of 2 images cannot be read, ... for example 'a.jpg': there is no such file; fix or remove them",)
    """
    seen = inspect_images(dataset.images, num_workers=num_workers, progress=progress)
    targets, names = dataset.targets, dataset.labels.names
    cooccurrence = _count_pairs(targets)
    groups = _find_duplicates(dataset, seen)
    together, only_with = _find_dependent_labels(cooccurrence, dataset.labels, num_images=len(dataset))
    report = CheckReport(
        name=dataset.name,
        num_images=len(dataset),
        splits={name: len(members) for name, members in dataset.splits.items()},
        labels=_count_labels(targets, dataset.labels),
        labels_per_image=tuple(np.bincount(targets.labels_per_image).tolist()),
        unknown_fraction=1 - float(targets.known.sum()) / max(len(dataset) * len(names), 1),
        cooccurrence=cooccurrence,
        sizes=seen.sizes,
        bad=seen.bad,
        duplicates=groups,
        leaks=tuple(_find_leaks(dataset, seen, groups)),
        unseen=_find_unseen(dataset),
        always_together=together,
        only_with=only_with,
        variants=tuple(find_variants(names, targets.positives)),
        typos=tuple(find_typos(names, targets.positives)),
        notes=dataset.notes,
        unlabelled=tuple(np.flatnonzero(targets.labels_per_image == 0).tolist()),
    )
    problems, warnings = findings.find_problems(report), findings.find_warnings(report)
    return replace(report, problems=tuple(problems), warnings=tuple(warnings))


def _count_pairs(targets: Targets) -> csr_array:
    """Return the co-occurrence counts of labels, ``[L, L]``; of too many pairs, only those of frequent labels."""
    present = targets.present.astype(np.int64)
    if (targets.labels_per_image**2).sum() <= MOST_PAIRS:
        return csr_array(present.T @ present)
    frequent = np.argsort(-targets.positives, kind="stable")[: int(MOST_PAIRS**0.5)]
    counted = np.isin(np.arange(targets.shape[1]), frequent)
    among = csr_array(present @ diags_array(counted.astype(np.int64), dtype=np.int64))
    among.eliminate_zeros()
    return csr_array(among.T @ among + diags_array(np.where(counted, 0, targets.positives), dtype=np.int64))


def _count_labels(targets: Targets, labels: LabelSpace) -> tuple[LabelCount, ...]:
    positives, known = targets.positives, targets.known
    columns = (positives.tolist(), (known - positives).tolist(), (len(targets) - known).tolist())
    return tuple(map(LabelCount, labels, map(labels.display, labels), *columns))


def _find_duplicates(dataset: ImageDataset, seen: Inspection) -> tuple[DuplicateGroup, ...]:
    readable = seen.readable
    groups = duplicate_groups(seen.digests[readable], seen.thumbnails[readable])
    groups = [readable[group] for group in groups]
    return tuple(
        DuplicateGroup(
            indices=tuple(group.tolist()),
            names=tuple(map(dataset.images.name, group.tolist())),
            is_exact=bool((seen.digests[group] == seen.digests[group[0]]).all()),
            labels_differ=_labels_differ(dataset.targets, group),
        )
        for group in groups
    )


def _labels_differ(targets: Targets, group: NDArray[np.int64]) -> bool:
    """Return whether a label is present in one image of a group and known absent from another."""
    values, known = targets.dense(group)
    return bool(((values > 0).any(axis=0) & (known & (values == 0)).any(axis=0)).any())


def _find_leaks(dataset: ImageDataset, seen: Inspection, groups: tuple[DuplicateGroup, ...]) -> Iterator[Leak]:
    """Yield the leaks between each pair of splits, one per kind."""
    if len(dataset.splits) < 2:
        return
    exact = np.where(seen.sizes[:, 0] > 0, seen.digests, np.arange(len(dataset), dtype=np.uint64))
    near = -1 - np.arange(len(dataset))  # unique per image, overwritten by one number per group
    for number, group in enumerate(groups):
        near[list(group.indices)] = number
    names = map(dataset.images.name, range(len(dataset)))
    hashed = np.fromiter((hash(PurePath(name).name) for name in names), dtype=np.int64, count=len(dataset))
    kinds: list[tuple[LeakKind, NDArray[Any]]] = [("exact", exact), ("near", near), ("name", hashed)]
    for one, other in combinations(sorted(dataset.splits, key=lambda split: len(dataset.splits[split])), 2):
        small, large = dataset.splits[one], dataset.splits[other]
        if _is_part_of(one, other, dataset.splits):
            continue
        left = small
        for kind, values in kinds:
            is_in_both = np.isin(values[left], values[large])
            if is_in_both.any():
                indices = tuple(left[is_in_both].tolist())
                yield Leak(split=one, other=other, kind=kind, indices=indices, fraction=len(indices) / len(small))
            left = left[~is_in_both]


def _is_part_of(small: str, large: str, splits: Mapping[str, NDArray[np.int64]]) -> bool:
    """Return whether one split is meant to contain the other, as trainval contains train."""
    return small in large and bool(np.isin(splits[small], splits[large]).all())


def _find_unseen(dataset: ImageDataset) -> dict[str, tuple[str, ...]]:
    """Return, per split, the labels that have positives in the dataset but none in that split."""
    if len(dataset.splits) < 2:
        return {}
    is_somewhere = dataset.targets.positives > 0
    unseen = {
        split: np.flatnonzero(is_somewhere & (dataset.targets[members].positives == 0))
        for split, members in dataset.splits.items()
    }
    return {split: tuple(dataset.labels[int(label)] for label in labels) for split, labels in unseen.items()}


def _find_dependent_labels(
    cooccurrence: csr_array, labels: LabelSpace, *, num_images: int
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, str], ...]]:
    """Return groups of labels that always co-occur, and pairs whose first label only occurs with the second."""
    positives = cooccurrence.diagonal()
    pairs = cooccurrence.tocoo()
    one, other = pairs.coords
    implied = (pairs.data == positives[one]) & (positives[one] >= FEW_POSITIVES) & (one != other)
    # A rare label may occur only with a frequent one by chance; require a 1 % significance level.
    chance = (positives[other] / num_images) ** positives[one]
    implied &= chance * len(labels) < 0.01
    one, other = one[implied], other[implied]
    same = positives[one] == positives[other]
    graph = boolean_matrix(one[same], other[same], shape=cooccurrence.shape)
    _, group_of = connected_components(triu(graph), directed=False)
    members = np.flatnonzero(np.bincount(group_of)[group_of] > 1)
    together: dict[int, list[str]] = {}
    for label in members.tolist():
        together.setdefault(int(group_of[label]), []).append(labels[label])
    order = np.flatnonzero(~same)[np.argsort(-positives[one[~same]], kind="stable")]
    only_with = tuple((labels[int(one[pair])], labels[int(other[pair])]) for pair in order)
    return tuple(map(tuple, together.values())), only_with
