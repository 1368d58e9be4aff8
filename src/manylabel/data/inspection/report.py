"""What a check of a dataset found: the facts, and sentences about what would break training or what one should know.

Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from manylabel.data.loading import most_bad
from manylabel.types import BadImage

__all__ = ["CheckReport", "DuplicateGroup", "LabelCount", "Leak", "LeakKind", "find_problems", "find_warnings"]

LeakKind = Literal["exact", "near", "name"]

_MOST_PAIRS_IN_JSON = 5_000  # all pairs of a hundred labels; of thousands, those that matter


@dataclass(frozen=True)
class LabelCount:
    """Of how many images a label is known to be there, known not to be there, and unknown."""

    name: str
    display_name: str
    positives: int
    negatives: int
    unknown: int


@dataclass(frozen=True)
class DuplicateGroup:
    """Images that are the same.

    Args:
        indices: Their positions in the dataset.
        names: Their names.
        is_exact: Whether all are the same file, byte for byte; else they look the same.
        labels_differ: Whether some label is known to be there in one and not to be there in another.
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    is_exact: bool
    labels_differ: bool


@dataclass(frozen=True)
class Leak:
    """Images of one split that another split has too.

    Args:
        split: The smaller of the two splits.
        other: The larger one.
        kind: ``"exact"``: the same file or image; ``"near"``: one that looks the same; ``"name"``: another image,
            with the same file name.
        indices: The images of `split` that are in both.
        share: What part of `split` they are.
    """

    split: str
    other: str
    kind: LeakKind
    indices: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What a check of a dataset found.

    Args:
        name: The dataset.
        num_images: How many images it has.
        splits: The number of images of each split.
        labels: What is known of each label.
        labels_per_image: At position k, how many images have exactly k labels.
        unknown_share: The part of all images x labels that is unknown.
        cooccurrence: ``[L, L]``, the number of images that have both labels; on the diagonal, that have the label.
            Of more than 16 million pairs, those of the 4,000 most frequent labels are counted.
        sizes: ``[N, 2]``, height and width; 0 where the image cannot be read.
        bad: The images that cannot be read.
        duplicates: Groups of images that are the same, or nearly.
        leaks: Images that are in two splits.
        unseen: For each of several splits, the labels that no image of it has, though others have.
        always_together: Groups of labels that have exactly the same images.
        only_with: Pairs of labels of which the first never comes without the second.
        unlabelled: The images that have no label.
        problems: What would break training or make its results worthless, one sentence each.
        warnings: What one should know before training, one sentence each.
    """

    name: str
    num_images: int
    splits: Mapping[str, int]
    labels: tuple[LabelCount, ...]
    labels_per_image: tuple[int, ...]
    unknown_share: float
    cooccurrence: csr_array
    sizes: NDArray[np.int32]
    bad: tuple[BadImage, ...]
    duplicates: tuple[DuplicateGroup, ...]
    leaks: tuple[Leak, ...]
    unseen: Mapping[str, tuple[str, ...]]
    always_together: tuple[tuple[str, ...], ...]
    only_with: tuple[tuple[str, str], ...]
    unlabelled: tuple[int, ...]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that would break training."""
        return not self.problems

    @property
    def mean_labels(self) -> float:
        """Labels per image, on average."""
        return sum(label.positives for label in self.labels) / max(self.num_images, 1)

    @property
    def readable_sizes(self) -> NDArray[np.int32]:
        """Height and width of the images that can be read, ``[n, 2]``."""
        return self.sizes[self.sizes[:, 0] > 0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON; of very many labels, the most frequent pairs."""
        return {
            "name": self.name,
            "is_sound": self.is_sound,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "num_images": self.num_images,
            "num_labels": len(self.labels),
            "splits": dict(self.splits),
            "unknown_share": self.unknown_share,
            "labels": [asdict(label) for label in self.labels],
            "labels_per_image": {"mean": self.mean_labels, "histogram": list(self.labels_per_image)},
            "sizes": _summaries(self.readable_sizes),
            "bad": [asdict(image) for image in self.bad],
            "duplicates": [asdict(group) for group in self.duplicates],
            "leaks": [asdict(leak) for leak in self.leaks],
            "unseen": {split: list(names) for split, names in self.unseen.items()},
            "always_together": [list(names) for names in self.always_together],
            "only_with": [list(pair) for pair in self.only_with],
            "unlabelled": list(self.unlabelled),
            "cooccurrence": self._pairs(_MOST_PAIRS_IN_JSON),
        }

    def _pairs(self, at_most: int) -> list[dict[str, Any]]:
        """Return the pairs of labels that share most images."""
        above = triu(self.cooccurrence, k=1, format="coo")
        order = np.argsort(-above.data, kind="stable")[:at_most]
        triples = zip(above.row[order], above.col[order], above.data[order].tolist(), strict=True)
        return [
            {"labels": [self.labels[one].name, self.labels[other].name], "images": images}
            for one, other, images in triples
        ]


def _summaries(sizes: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """Return the smallest, middle and largest height, width and proportion."""
    if not len(sizes):
        return {}
    height, width = sizes.T
    measures = {"height": height, "width": width, "width_to_height": width / height}
    return {
        name: {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}
        for name, values in measures.items()
    }


_MOST_BAD = 0.01  # a run stops when more images than this cannot be read, as `most_bad` counts
_MOST_LEAKED = 0.01  # above this, scores tell more about the leak than about the model


def find_problems(report: CheckReport) -> tuple[str, ...]:
    """Return what would break training or make its results worthless, one sentence each.

    These are: no images or no labels; too many images that cannot be read for a run to go on; nothing to learn,
    because no label is both present somewhere and known to be absent elsewhere; a split without images or without
    labels to train on; and splits of which more than 1 % is in another split too.

    Args:
        report: The facts.
    """
    return tuple(_problems(report))


def find_warnings(report: CheckReport, *, few: int) -> tuple[str, ...]:
    """Return what one should know before training, one sentence each.

    Args:
        report: The facts.
        few: How many positives a label should have at least.
    """
    return (*_image_warnings(report), *_leak_warnings(report), *_label_warnings(report, few=few))


def _problems(report: CheckReport) -> Iterator[str]:
    if not report.num_images or not report.labels:
        yield f"there are {report.num_images} images and {len(report.labels)} labels; both are needed"
        return
    most = most_bad(report.num_images, _MOST_BAD)
    if len(report.bad) > most:
        yield (
            f"{len(report.bad):,} of {report.num_images:,} images cannot be read, and training stops above "
            f"{most:.0f}; for example {_first_bad(report)}; mend or remove them"
        )
    if not any(label.positives for label in report.labels):
        yield "no image has a label; look at the label files and at the names of images in them"
    elif not any(label.positives and label.negatives for label in report.labels):
        yield (
            "no label is present in one image and known to be absent from another, so there is nothing to tell "
            "apart; add images without the labels, or say which labels are absent"
        )
    for split, size in report.splits.items():
        if not size:
            yield f"split {split!r} has no images"
        elif split.lower().startswith("train") and _is_without_labels(report, split):
            yield f"no image of split {split!r} has a label"
    for leak in report.leaks:
        if leak.kind == "exact" and leak.share > _MOST_LEAKED:
            yield (
                f"{_count(leak.indices, 'image')} of split {leak.split!r} ({leak.share:.1%}) also in split "
                f"{leak.other!r}, so that scores say little; remove them from one of the two"
            )


def _image_warnings(report: CheckReport) -> Iterator[str]:
    if 0 < len(report.bad) <= most_bad(report.num_images, _MOST_BAD):
        yield f"{_count(report.bad, 'image')} cannot be read and will be left out; for example {_first_bad(report)}"
    exact = [group for group in report.duplicates if group.is_exact]
    near = [group for group in report.duplicates if not group.is_exact]
    odd = [group for group in report.duplicates if group.labels_differ]
    if exact:
        yield f"{_count(exact, 'group')} of files with the same content: {_members(exact)}"
    if near:
        yield f"{_count(near, 'group')} of images that look the same: {_members(near)}"
    if odd:
        yield f"{_count(odd, 'group')} of images that are the same but have different labels: {_members(odd)}"
    if report.unlabelled:
        share = len(report.unlabelled) / report.num_images
        yield f"{_count(report.unlabelled, 'image')} ({share:.1%}) without any label"


def _leak_warnings(report: CheckReport) -> Iterator[str]:
    for leak in report.leaks:
        where = f"of split {leak.split!r} ({leak.share:.1%})"
        if leak.kind == "exact" and leak.share <= _MOST_LEAKED:
            yield f"{_count(leak.indices, 'image')} {where} also in split {leak.other!r}"
        elif leak.kind == "near":
            yield f"{_count(leak.indices, 'image')} {where} looking the same as images of split {leak.other!r}"
        elif leak.kind == "name":
            files = _count(leak.indices, "file name")
            yield f"{files} {where} also in split {leak.other!r}, for images that differ"
    shown = {label.name: label.display_name for label in report.labels}
    for split, names in report.unseen.items():
        if _is_without_labels(report, split):
            yield f"no image of split {split!r} has a label, so that nothing can be scored on it"
        elif names:
            yield f"split {split!r} has no positives of {_labels([shown[name] for name in names])}"


def _label_warnings(report: CheckReport, *, few: int) -> Iterator[str]:
    if not any(label.positives for label in report.labels):
        return
    never = [label.display_name for label in report.labels if not label.positives]
    rare = [label for label in report.labels if 0 < label.positives < few]
    always = [label.display_name for label in report.labels if label.positives and not label.negatives]
    if never:
        yield f"no image has {_labels(never)}; a model cannot learn what it never sees"
    if rare:
        verb = "has" if len(rare) == 1 else "have"
        counted = _some([_with_count(label) for label in rare])
        yield f"{_count(rare, 'label')} {verb} fewer than {few} images: {counted}"
    if always:
        yield f"no image is known to lack {_labels(always)}; a model learns to say yes to it always"
    shown = {label.name: label.display_name for label in report.labels}
    for names in report.always_together:
        yield f"labels that always come together cannot be told apart: {_some([shown[name] for name in names])}"
    if report.only_with:
        pairs = [f"{shown[one]} only with {shown[other]}" for one, other in report.only_with]
        yield f"labels that never come alone: {_some(pairs)}"


def _is_without_labels(report: CheckReport, split: str) -> bool:
    """Tell whether no image of a split has a label, though images of other splits have."""
    seen = sum(label.positives > 0 for label in report.labels)
    return 0 < seen == len(report.unseen.get(split, ()))


def _with_count(label: LabelCount) -> str:
    return f"{label.display_name} ({label.positives})"


def _first_bad(report: CheckReport) -> str:
    return f"{report.bad[0].name!r}: {report.bad[0].reason}"


def _members(groups: Sequence[DuplicateGroup]) -> str:
    """Name the members of the first groups."""
    return _some(
        [" = ".join(group.names[:3]) + (" = ..." if len(group.names) > 3 else "") for group in groups], at_most=3
    )


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def _labels(names: Sequence[str]) -> str:
    return f"label {names[0]}" if len(names) == 1 else f"{len(names):,} labels: {_some(names)}"


def _some(names: Sequence[str], *, at_most: int = 8) -> str:
    more = f" and {len(names) - at_most:,} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more
