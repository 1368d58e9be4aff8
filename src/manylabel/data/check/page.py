"""A check as a page with pictures: what was found, and what it looks like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from manylabel.data.check.figures import draw_bars, draw_heat_map, draw_histogram, draw_ranking
from manylabel.data.check.report import CheckReport, DuplicateGroup
from manylabel.data.check.run import FEW_POSITIVES
from manylabel.data.dataset import ImageDataset
from manylabel.errors import ImageError
from manylabel.images import decode
from manylabel.page import (
    Cell,
    Columns,
    Heading,
    Note,
    Page,
    Part,
    Picture,
    Pictures,
    Section,
    Share,
    Table,
    Text,
    Tile,
    Tiles,
)

__all__ = ["check_page"]

Thing = TypeVar("Thing")

# What keeps the page of any data set below ten megabytes.
_MOST_ROWS = 2_000
_MOST_GROUPS = 30
_MOST_COPIES = 4
_MOST_LABELS = 60
_EXAMPLES = 6
_THUMBNAIL_HEIGHT = 112


def check_page(report: CheckReport, dataset: ImageDataset) -> Page:
    """Show a check as a page.

    Args:
        report: What `check` found.
        dataset: The data set that it looked at; its pictures are read again for the thumbnails.

    Examples:
        >>> from manylabel.data import check, scenes
        >>> dataset = scenes(8)
        >>> page = check_page(check(dataset), dataset)
        >>> page.title
        'Check of scenes'
    """
    album = _Album(dataset)
    pictures = f"{report.num_pictures:,} pictures, {len(report.labels):,} labels"
    return Page(f"Check of {report.name}", subtitle=pictures).add(
        _key_figures(report),
        *_verdict(report),
        *_splits(report),
        *_labels(report),
        *_sizes(report),
        *_bad(report),
        *_duplicates(report, album),
        *_examples(report, album),
    )


class _Album:
    """Thumbnails of a data set's pictures, captioned with their labels."""

    def __init__(self, dataset: ImageDataset) -> None:
        self.dataset = dataset
        self._by_label = dataset.targets.present.tocsc()

    def show(self, index: int, *, name: str = "") -> Picture:
        """Return a thumbnail; below it the name, where given, and the labels."""
        present = self.dataset.targets.present
        labels = present.indices[present.indptr[index] : present.indptr[index + 1]]
        words = _some([self.dataset.labels.display(self.dataset.labels[label]) for label in labels], at_most=8)
        caption = f"{name}: {words or 'no label'}" if name else words
        try:
            at_least = (_THUMBNAIL_HEIGHT, _THUMBNAIL_HEIGHT)
            return Picture.of(
                decode(self.dataset.pictures[index], at_least=at_least), caption, height=_THUMBNAIL_HEIGHT
            )
        except (ImageError, OSError):
            return Picture(b"", caption)

    def examples(self, label: int, *, readable: NDArray[np.bool_]) -> list[Picture]:
        """Return a few pictures of a label, from all over the data set."""
        has_it = self._by_label.indices[self._by_label.indptr[label] : self._by_label.indptr[label + 1]]
        return self.spread(has_it[readable[has_it]])

    def spread(self, indices: NDArray[np.int64]) -> list[Picture]:
        """Return a few of these pictures, evenly spread."""
        chosen = np.unique(np.linspace(0, len(indices) - 1, min(_EXAMPLES, len(indices))).astype(int))
        return [self.show(int(indices[position])) for position in chosen]


def _verdict(report: CheckReport) -> Iterator[Part]:
    yield from (Note(_sentence(problem), kind="problem") for problem in report.problems)
    if report.is_sound:
        yield Note("Nothing was found that would break training.", kind="good")
    yield from (Note(_sentence(warning), kind="warning") for warning in report.warnings)


def _key_figures(report: CheckReport) -> Tiles:
    most = len(report.labels_per_picture) - 1
    copies = sum(len(group.indices) - 1 for group in report.duplicates)
    rare = sum(label.positives < FEW_POSITIVES for label in report.labels)
    return Tiles(
        [
            Tile(f"{report.num_pictures:,}", "pictures", f"{len(report.bad):,} cannot be read"),
            Tile(f"{len(report.labels):,}", "labels", f"{rare:,} with fewer than {FEW_POSITIVES} pictures"),
            Tile(f"{report.mean_labels:.2f}", "labels a picture", f"{max(most, 0)} at most"),
            Tile(f"{report.unknown_share:.1%}", "unknown", "of pictures x labels"),
            Tile(
                f"{copies:,}",
                "duplicates",
                f"in {len(report.duplicates):,} group{'' if len(report.duplicates) == 1 else 's'}",
            ),
        ]
    )


def _splits(report: CheckReport) -> Iterator[Part]:
    if len(report.splits) < 2:
        return
    yield Heading("Splits")
    rows: list[list[Cell]] = [
        [name, size, Share(size / max(report.num_pictures, 1)), len(report.unseen.get(name, ()))]
        for name, size in report.splits.items()
    ]
    yield Table(["split", "pictures", "share", "labels without a positive"], rows)
    if report.leaks:
        kinds = {"exact": "same picture", "near": "looks the same", "name": "same file name, other picture"}
        yield Table(
            ["split", "also in", "how", "pictures", "of the split"],
            [[leak.split, leak.other, kinds[leak.kind], len(leak.indices), Share(leak.share)] for leak in report.leaks],
            caption="Leaks",
        )


def _labels(report: CheckReport) -> Iterator[Part]:
    yield Heading("Labels")
    ranked = sorted(report.labels, key=lambda label: -label.positives)
    if len(ranked) > _MOST_LABELS:
        caption = f"Pictures of each label; below the dotted line there are fewer than {FEW_POSITIVES}."
        yield draw_ranking([label.positives for label in ranked], few=FEW_POSITIVES, caption=caption)
    shown = _ends(ranked, at_most=_MOST_ROWS)
    rows: list[list[Cell]] = [
        [
            label.display_name,
            label.positives,
            Share(label.positives / max(report.num_pictures, 1)),
            label.negatives,
            label.unknown,
        ]
        for label in shown
    ]
    yield Table(["label", "present", "of all pictures", "absent", "unknown"], rows)
    if len(shown) < len(ranked):
        yield Text(f"Of {len(ranked):,} labels, the {len(shown):,} most and least frequent are shown.")
    heat_map = draw_heat_map(report)
    if heat_map is not None:
        yield Heading("Which labels come together", level=3)
        yield heat_map


def _sizes(report: CheckReport) -> Iterator[Part]:
    yield Heading("Pictures")
    bars = draw_bars(report.labels_per_picture, what="labels", caption="Labels per picture")
    if not len(report.readable_sizes):
        yield bars
        return
    height, width = report.readable_sizes.T
    yield Columns(
        [
            bars,
            draw_histogram(np.minimum(height, width), what="pixels", caption="Length of the shorter side"),
            draw_histogram(width / height, what="width / height", caption="Proportion; above 1 is landscape"),
        ]
    )
    measures = {"height": height, "width": width, "width / height": width / height}
    rows: list[list[Cell]] = [
        [what, float(values.min()), float(np.median(values)), float(values.max())] for what, values in measures.items()
    ]
    yield Table(["measure", "smallest", "median", "largest"], rows)


def _bad(report: CheckReport) -> Iterator[Part]:
    if report.bad:
        yield Heading("Pictures that cannot be read")
        yield Table(["picture", "why"], [[picture.name, picture.reason] for picture in report.bad[:_MOST_ROWS]])
    if len(report.bad) > _MOST_ROWS:
        yield Text(f"The first {_MOST_ROWS:,} of {len(report.bad):,} are shown.")


def _duplicates(report: CheckReport, album: _Album) -> Iterator[Part]:
    if not report.duplicates:
        return
    yield Heading("Pictures that are the same")
    ordered = sorted(report.duplicates, key=lambda group: (not group.labels_differ, group.is_exact))
    yield Columns([_group(group, album) for group in ordered[:_MOST_GROUPS]])
    if len(ordered) > _MOST_GROUPS:
        yield Text(f"The first {_MOST_GROUPS} of {len(ordered):,} groups are shown.")


def _group(group: DuplicateGroup, album: _Album) -> Pictures:
    what = "The same file" if group.is_exact else "Looks the same"
    differ = ", different labels" if group.labels_differ else ""
    more = f", {len(group.indices)} times" if len(group.indices) > 2 else ""
    members = zip(group.indices[:_MOST_COPIES], group.names, strict=False)
    return Pictures([album.show(index, name=name) for index, name in members], title=f"{what}{more}{differ}")


def _examples(report: CheckReport, album: _Album) -> Iterator[Part]:
    readable = report.sizes[:, 0] > 0
    positives = np.array([label.positives for label in report.labels], dtype=np.int64)
    ranked = [int(label) for label in np.argsort(-positives, kind="stable") if positives[label]]
    shown = _ends(ranked, at_most=_MOST_LABELS)
    left_out = f"; the {len(shown)} most and least frequent labels" if len(shown) < len(ranked) else ""
    strips = [
        Pictures(
            album.examples(label, readable=readable),
            title=f"{report.labels[label].display_name} ({positives[label]:,})",
        )
        for label in shown
    ]
    if strips:
        yield Heading("What it looks like")
        yield Section(f"Examples of each label{left_out}", strips, is_open=True)
    empty = np.array(report.unlabelled, dtype=np.int64)
    if readable[empty].any():
        yield Section("Pictures without a label", [Pictures(album.spread(empty[readable[empty]]))])


def _ends(ranked: Sequence[Thing], *, at_most: int) -> list[Thing]:
    """Return all, or the first and the last half of what may be shown."""
    return list(ranked) if len(ranked) <= at_most else [*ranked[: at_most // 2], *ranked[-(at_most // 2) :]]


def _some(names: Sequence[str], *, at_most: int) -> str:
    return ", ".join(names[:at_most]) + (f" and {len(names) - at_most} more" if len(names) > at_most else "")


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
