"""Result of a dataset check: statistics, and problems and warnings in words.

Letters in shape comments: N images, L labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from manylabel.data.loading import most_bad
from manylabel.label_text import printable
from manylabel.page import plural, some
from manylabel.types import BadImage

LeakKind = Literal["exact", "near", "name"]

FEW_POSITIVES = 5  # a label with fewer counts as rare; always co-occurring with another is suspicious only above this
_MOST_BAD = 0.01  # training stops above this fraction of unreadable images; see `most_bad`
_MOST_LEAKED = 0.01  # above this fraction, scores measure the leak more than the model
_MOST_PAIRS_IN_JSON = 5_000  # all pairs of a hundred labels; of thousands, the most frequent


@dataclass(frozen=True)
class LabelCount:
    """Numbers of images in which a label is present, absent and unknown."""

    name: str
    display_name: str
    positives: int
    negatives: int
    unknown: int


@dataclass(frozen=True)
class DuplicateGroup:
    """Images that are exact or near duplicates.

    Args:
        indices: Their positions in the dataset.
        names: Their names.
        is_exact: Whether all files are identical, byte for byte; otherwise they look the same.
        labels_differ: Whether some label is present in one and known absent from another.
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    is_exact: bool
    labels_differ: bool


@dataclass(frozen=True)
class Leak:
    """Images of one split that also occur in another.

    Args:
        split: The smaller of the two splits.
        other: The larger one.
        kind: ``"exact"``: the same file or image; ``"near"``: one that looks the same; ``"name"``: a different image
            with the same file name.
        indices: The images of `split` that are in both.
        fraction: Their fraction of `split`.
    """

    split: str
    other: str
    kind: LeakKind
    indices: tuple[int, ...]
    fraction: float


@dataclass(frozen=True, eq=False)
class CheckReport:
    """Result of a dataset check.

    Args:
        name: The dataset.
        num_images: Number of images.
        splits: Number of images per split.
        labels: Counts per label.
        labels_per_image: At position k, the number of images with exactly k labels.
        unknown_fraction: Fraction of all images x labels that is unknown.
        cooccurrence: ``[L, L]``, the number of images that have both labels; the diagonal counts single labels. Above
            16 million pairs, only those of the 4,000 most frequent labels are counted.
        sizes: ``[N, 2]``, height and width; 0 where the image cannot be read.
        bad: The images that cannot be read.
        duplicates: Groups of exact or near duplicates.
        leaks: Images that are in two splits.
        unseen: Per split, the labels that have positives only in other splits.
        always_together: Groups of labels that have exactly the same images.
        only_with: Pairs of labels whose first never occurs without the second.
        variants: Groups of labels that differ only in case or spacing, the most frequent first.
        typos: Pairs of a label that is probably a typo, and the one that is probably meant.
        notes: Findings of the reader, such as merged rows, one sentence each.
        unlabelled: The images without labels.
        problems: Problems that would break training or invalidate its results, one sentence each.
        warnings: Other findings, one sentence each.
    """

    name: str
    num_images: int
    splits: Mapping[str, int]
    labels: tuple[LabelCount, ...]
    labels_per_image: tuple[int, ...]
    unknown_fraction: float
    cooccurrence: csr_array
    sizes: NDArray[np.int32]
    bad: tuple[BadImage, ...]
    duplicates: tuple[DuplicateGroup, ...]
    leaks: tuple[Leak, ...]
    unseen: Mapping[str, tuple[str, ...]]
    always_together: tuple[tuple[str, ...], ...]
    only_with: tuple[tuple[str, str], ...]
    variants: tuple[tuple[str, ...], ...]
    typos: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    unlabelled: tuple[int, ...]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """True if nothing was found that would break training."""
        return not self.problems

    @property
    def verdict(self) -> str:
        """Summary of problems and warnings in one sentence."""
        if self.problems:
            return f"Found {plural(len(self.problems), 'problem')} that would break training or invalidate its results."
        warnings = f"; {plural(len(self.warnings), 'warning')}" if self.warnings else ""
        return f"No problems found{warnings}."

    @property
    def mean_labels(self) -> float:
        """Mean number of labels per image."""
        return sum(label.positives for label in self.labels) / max(self.num_images, 1)

    @property
    def readable_sizes(self) -> NDArray[np.int32]:
        """Height and width of the images that can be read, ``[n, 2]``."""
        return self.sizes[self.sizes[:, 0] > 0]

    @property
    def size_summary(self) -> dict[str, dict[str, float]]:
        """Smallest, median and largest height, width and aspect ratio; empty if no image can be read."""
        height, width = self.readable_sizes.T
        if not len(height):
            return {}
        measures = {"height": height, "width": width, "width_to_height": width / height}
        return {
            name: dict(zip(("min", "median", "max"), np.quantile(values, [0, 0.5, 1]).tolist(), strict=True))
            for name, values in measures.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON; of very many pairs of labels, the most frequent."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "is_sound": self.is_sound,
            "num_labels": len(self.labels),
            "labels_per_image": {"mean": self.mean_labels, "histogram": self.labels_per_image},
            "sizes": self.size_summary,
            "cooccurrence": [
                {"labels": [one, other], "images": both}
                for one, other, both in self.frequent_pairs(_MOST_PAIRS_IN_JSON)
            ],
        }
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values))
        return plain

    def frequent_pairs(self, at_most: int) -> list[tuple[str, str, int]]:
        """Return the most frequent pairs of labels, each with its number of images."""
        above = triu(self.cooccurrence, k=1, format="coo")
        order = np.argsort(-above.data, kind="stable")[:at_most]
        names = [label.name for label in self.labels]
        pairs = zip(above.row[order], above.col[order], above.data[order].tolist(), strict=True)
        return [(names[one], names[other], both) for one, other, both in pairs]


def find_problems(report: CheckReport) -> Iterator[str]:
    """Yield problems that would break training or invalidate its results, one sentence each.

    These are: no images or no labels; more unreadable images than training tolerates; nothing to learn, because no
    label is both present somewhere and known to be absent elsewhere; a split without images or without labels to train
    on; and splits of which more than 1 % is also in another split.

    Args:
        report: The statistics.
    """
    if not report.num_images or not report.labels:
        yield f"there are {report.num_images} images and {len(report.labels)} labels; both are needed"
        return
    most = most_bad(report.num_images, _MOST_BAD)
    if len(report.bad) > most:
        yield (
            f"{len(report.bad):,} of {report.num_images:,} images cannot be read, and training stops above "
            f"{most:.0f}; for example {_first_bad(report)}; fix or remove them"
        )
    if not any(label.positives for label in report.labels):
        yield "no image has a label; check the label files and the image names in them"
    elif not any(label.positives and label.negatives for label in report.labels):
        yield (
            "no label is present in one image and known to be absent from another, so there is nothing to learn; "
            "add images without the labels, or mark labels as absent"
        )
    for split, size in report.splits.items():
        if not size:
            yield f"split {split!r} has no images"
        elif split.lower().startswith("train") and _is_without_labels(report, split):
            yield f"no image of split {split!r} has a label"
    for leak in filter(_is_serious, report.leaks):
        yield f"{_describe(leak)}, which inflates scores; remove them from one of the two"


def find_warnings(report: CheckReport) -> Iterator[str]:
    """Yield other findings worth knowing before training, one sentence each.

    Args:
        report: The statistics.
    """
    yield from _spelling_warnings(report)
    yield from report.notes
    yield from _image_warnings(report)
    yield from _split_warnings(report)
    yield from _label_warnings(report)


def _spelling_warnings(report: CheckReport) -> Iterator[str]:
    shown = {label.name: _with_count(label) for label in report.labels}
    if report.variants:
        groups = [" = ".join(shown[name] for name in names) for names in report.variants]
        yield f"labels that differ only in case or spacing: {some(groups)}; merge them with 'manylabel data fix'"
    if report.typos:
        pairs = [f"{shown[typo]} for {shown[meant]}" for typo, meant in report.typos]
        rename = "|".join(":".join(printable(name, reserved="|:") for name in pair) for pair in report.typos[:3])
        yield f"probable typos: {some(pairs)}; if so, rename={rename} in the spec or 'manylabel data fix --typos'"


def _image_warnings(report: CheckReport) -> Iterator[str]:
    if 0 < len(report.bad) <= most_bad(report.num_images, _MOST_BAD):
        yield f"{plural(len(report.bad), 'image')} cannot be read and will be skipped; for example {_first_bad(report)}"
    for what, groups in (
        ("files with the same content", [group for group in report.duplicates if group.is_exact]),
        ("images that look the same", [group for group in report.duplicates if not group.is_exact]),
        ("duplicate images with different labels", [group for group in report.duplicates if group.labels_differ]),
    ):
        if groups:
            yield f"{plural(len(groups), 'group')} of {what}: {_members(groups)}"
    if report.unlabelled:
        fraction = len(report.unlabelled) / report.num_images
        has, counts = ("has", "counts") if len(report.unlabelled) == 1 else ("have", "count")
        meaning = f"and {counts} as negative for every label (in a table, blank=unknown or blank=drop changes that)"
        yield (
            f"{plural(len(report.unlabelled), 'image')} ({fraction:.1%}) {has} no label"
            f"{'' if report.unknown_fraction else f', {meaning}'}"
        )


def _split_warnings(report: CheckReport) -> Iterator[str]:
    yield from (_describe(leak) for leak in report.leaks if not _is_serious(leak))
    shown = {label.name: label.display_name for label in report.labels}
    for split, names in report.unseen.items():
        if _is_without_labels(report, split):
            yield f"no image of split {split!r} has a label, so it cannot be used for evaluation"
        elif names:
            yield f"split {split!r} has no positives of {_labels([shown[name] for name in names])}"


def _label_warnings(report: CheckReport) -> Iterator[str]:
    if not any(label.positives for label in report.labels):
        return
    never = [label.display_name for label in report.labels if not label.positives]
    rare = [label for label in report.labels if 0 < label.positives < FEW_POSITIVES]
    always = [label.display_name for label in report.labels if label.positives and not label.negatives]
    if never:
        yield f"no image has {_labels(never)}; a model cannot learn what it never sees"
    if rare:
        verb = "has" if len(rare) == 1 else "have"
        counted = some([_with_count(label) for label in rare])
        yield f"{plural(len(rare), 'label')} {verb} fewer than {FEW_POSITIVES} images: {counted}"
    if always:
        yield f"no image is known to lack {_labels(always)}; a model learns to always predict it"
    shown = {label.name: label.display_name for label in report.labels}
    for names in report.always_together:
        yield f"labels that always co-occur cannot be distinguished: {some([shown[name] for name in names])}"
    if report.only_with:
        pairs = [f"{shown[one]} only with {shown[other]}" for one, other in report.only_with]
        yield f"labels that never occur alone: {some(pairs)}"


def _is_serious(leak: Leak) -> bool:
    return leak.kind == "exact" and leak.fraction > _MOST_LEAKED


def _describe(leak: Leak) -> str:
    one = len(leak.indices) == 1
    where = {
        "exact": f"{'is' if one else 'are'} also in split {leak.other!r}",
        "near": f"{'looks' if one else 'look'} the same as images of split {leak.other!r}",
        "name": f"{'is' if one else 'are'} also in split {leak.other!r}, for different images",
    }
    what = plural(len(leak.indices), "file name" if leak.kind == "name" else "image")
    return f"{what} of split {leak.split!r} ({leak.fraction:.1%}) {where[leak.kind]}"


def _is_without_labels(report: CheckReport, split: str) -> bool:
    """Return whether no image of a split has a label, although images of other splits do."""
    seen = sum(label.positives > 0 for label in report.labels)
    return 0 < seen == len(report.unseen.get(split, ()))


def _with_count(label: LabelCount) -> str:
    return f"{label.display_name} ({label.positives})"


def _first_bad(report: CheckReport) -> str:
    return f"{report.bad[0].name!r}: {report.bad[0].reason}"


def _members(groups: Sequence[DuplicateGroup]) -> str:
    """List the members of the first groups."""
    return some(
        [" = ".join(group.names[:3]) + (" = ..." if len(group.names) > 3 else "") for group in groups], at_most=3
    )


def _labels(names: Sequence[str]) -> str:
    return f"label {names[0]}" if len(names) == 1 else f"{len(names):,} labels: {some(names)}"
