"""HTML report of a dataset check, with example images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.inspection.check import FEW_POSITIVES
from manylabel.data.inspection.report import CheckReport, DuplicateGroup
from manylabel.page import (
    ACCENT,
    INK,
    Cell,
    Columns,
    Figure,
    Fraction,
    Heading,
    Note,
    Page,
    Part,
    Section,
    Table,
    Text,
    Thumbnail,
    Thumbnails,
    Tile,
    Tiles,
    new_figure,
)

__all__ = ["check_page"]

Thing = TypeVar("Thing")

# These limits keep the page of any dataset below ten megabytes.
_MOST_ROWS = 2_000
_MOST_GROUPS = 30
_MOST_COPIES = 4
_MOST_LABELS = 60  # more names are illegible in a figure
_EXAMPLES = 6
_MOST_NAMES = 8


def check_page(report: CheckReport, dataset: ImageDataset) -> Page:
    """Render a check as a page.

    Args:
        report: Result of `check`.
        dataset: The checked dataset; its images are read again for the thumbnails.

    Examples:
        >>> from manylabel.data import check, scenes
        >>> dataset = scenes(8)
        >>> page = check_page(check(dataset), dataset)
        >>> page.title
        'Check of scenes'
    """
    album = _Album(dataset)
    images = f"{report.num_images:,} images, {len(report.labels):,} labels"
    return Page(f"Check of {report.name}", subtitle=images).add(
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
    """Thumbnails of a dataset's images, captioned with their labels."""

    def __init__(self, dataset: ImageDataset) -> None:
        self.dataset = dataset
        self._by_label = dataset.targets.present.tocsc()

    def show(self, index: int, *, name: str = "") -> Thumbnail:
        """Return a thumbnail captioned with the name, if given, and the labels."""
        labels = self.dataset.labels_of(index)
        more = f" and {len(labels) - _MOST_NAMES:,} more" if len(labels) > _MOST_NAMES else ""
        words = ", ".join(map(self.dataset.labels.display, labels[:_MOST_NAMES])) + more
        return self.dataset.thumbnail(index, caption=f"{name}: {words or 'no label'}" if name else words)

    def examples(self, label: int, *, readable: NDArray[np.bool_]) -> list[Thumbnail]:
        """Return a few images of a label, spread over the dataset."""
        has_it = self._by_label.indices[self._by_label.indptr[label] : self._by_label.indptr[label + 1]]
        return self.spread(has_it[readable[has_it]])

    def spread(self, indices: NDArray[np.int64]) -> list[Thumbnail]:
        """Return a few of these images, evenly spread."""
        chosen = np.unique(np.linspace(0, len(indices) - 1, min(_EXAMPLES, len(indices))).astype(int))
        return [self.show(int(indices[position])) for position in chosen]


def _verdict(report: CheckReport) -> Iterator[Part]:
    yield from (Note(_sentence(problem), kind="problem") for problem in report.problems)
    yield from (Note(_sentence(warning), kind="warning") for warning in report.warnings)
    if report.is_sound:
        yield Note(report.verdict, kind="warning" if report.warnings else "good")


def _key_figures(report: CheckReport) -> Tiles:
    most = len(report.labels_per_image) - 1
    copies = sum(len(group.indices) - 1 for group in report.duplicates)
    rare = sum(label.positives < FEW_POSITIVES for label in report.labels)
    return Tiles(
        [
            Tile(f"{report.num_images:,}", "images", f"{len(report.bad):,} cannot be read"),
            Tile(f"{len(report.labels):,}", "labels", f"{rare:,} with fewer than {FEW_POSITIVES} images"),
            Tile(f"{report.mean_labels:.2f}", "labels per image", f"{max(most, 0)} at most"),
            Tile(f"{report.unknown_fraction:.1%}", "unknown", "of images x labels"),
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
        [name, size, Fraction(size / max(report.num_images, 1)), len(report.unseen.get(name, ()))]
        for name, size in report.splits.items()
    ]
    yield Table(["split", "images", "fraction", "labels without a positive"], rows)
    if report.leaks:
        kinds = {"exact": "same image", "near": "looks the same", "name": "same file name, different image"}
        yield Table(
            ["split", "also in", "match", "images", "fraction of split"],
            [
                [leak.split, leak.other, kinds[leak.kind], len(leak.indices), Fraction(leak.fraction)]
                for leak in report.leaks
            ],
            caption="Leaks",
        )


def _labels(report: CheckReport) -> Iterator[Part]:
    yield Heading("Labels")
    ranked = sorted(report.labels, key=lambda label: -label.positives)
    if len(ranked) > _MOST_LABELS:
        caption = f"Images per label; labels below the dotted line have fewer than {FEW_POSITIVES}."
        yield draw_ranking([label.positives for label in ranked], few=FEW_POSITIVES, caption=caption)
    shown = _ends(ranked, at_most=_MOST_ROWS)
    rows: list[list[Cell]] = [
        [
            label.display_name,
            label.positives,
            Fraction(label.positives / max(report.num_images, 1)),
            label.negatives,
            label.unknown,
        ]
        for label in shown
    ]
    yield Table(["label", "present", "of all images", "absent", "unknown"], rows)
    if len(shown) < len(ranked):
        yield Text(f"Showing the {len(shown):,} most and least frequent of {len(ranked):,} labels.")
    pairs = report.frequent_pairs(_MOST_PAIRS)
    if pairs:
        yield Heading("Label co-occurrence", level=3)
        counts = {label.name: label.positives for label in report.labels}
        rows = [
            [one, other, both, Fraction(both / counts[one]), Fraction(both / counts[other])]
            for one, other, both in pairs
        ]
        yield Table(["label", "with", "images of both", "of the first", "of the second"], rows)
        yield Text("The most frequent pairs; 'manylabel graph' draws all of them.")


def _sizes(report: CheckReport) -> Iterator[Part]:
    yield Heading("Images")
    per_image = np.repeat(np.arange(len(report.labels_per_image)), report.labels_per_image)
    bars = draw_histogram(per_image, what="labels", caption="Labels per image")
    if not len(report.readable_sizes):
        yield bars
        return
    height, width = report.readable_sizes.T
    yield Columns(
        [
            bars,
            draw_histogram(np.minimum(height, width), what="pixels", caption="Length of the shorter side"),
            draw_histogram(width / height, what="width / height", caption="Aspect ratio; above 1 is landscape"),
        ]
    )
    measures = {"height": height, "width": width, "width / height": width / height}
    rows: list[list[Cell]] = [
        [what, float(values.min()), float(np.median(values)), float(values.max())] for what, values in measures.items()
    ]
    yield Table(["measure", "smallest", "median", "largest"], rows)


def _bad(report: CheckReport) -> Iterator[Part]:
    if report.bad:
        yield Heading("Unreadable images")
        yield Table(["image", "why"], [[image.name, image.reason] for image in report.bad[:_MOST_ROWS]])
    if len(report.bad) > _MOST_ROWS:
        yield Text(f"Showing the first {_MOST_ROWS:,} of {len(report.bad):,}.")


def _duplicates(report: CheckReport, album: _Album) -> Iterator[Part]:
    if not report.duplicates:
        return
    yield Heading("Duplicates")
    ordered = sorted(report.duplicates, key=lambda group: (not group.labels_differ, group.is_exact))
    yield Columns([_group(group, album) for group in ordered[:_MOST_GROUPS]])
    if len(ordered) > _MOST_GROUPS:
        yield Text(f"Showing the first {_MOST_GROUPS} of {len(ordered):,} groups.")


def _group(group: DuplicateGroup, album: _Album) -> Thumbnails:
    what = "The same file" if group.is_exact else "Looks the same"
    differ = ", different labels" if group.labels_differ else ""
    more = f", {len(group.indices)} times" if len(group.indices) > 2 else ""
    members = zip(group.indices[:_MOST_COPIES], group.names, strict=False)
    return Thumbnails([album.show(index, name=name) for index, name in members], title=f"{what}{more}{differ}")


def _examples(report: CheckReport, album: _Album) -> Iterator[Part]:
    readable = report.sizes[:, 0] > 0
    positives = np.array([label.positives for label in report.labels], dtype=np.int64)
    ranked = [int(label) for label in np.argsort(-positives, kind="stable") if positives[label]]
    shown = _ends(ranked, at_most=_MOST_LABELS)
    left_out = f"; the {len(shown)} most and least frequent labels" if len(shown) < len(ranked) else ""
    strips = [
        Thumbnails(
            album.examples(label, readable=readable),
            title=f"{report.labels[label].display_name} ({positives[label]:,})",
        )
        for label in shown
    ]
    if strips:
        yield Heading("Examples")
        yield Section(f"Examples of each label{left_out}", strips, is_open=True)
    empty = np.array(report.unlabelled, dtype=np.int64)
    if readable[empty].any():
        yield Section("Images without a label", [Thumbnails(album.spread(empty[readable[empty]]))])


def _ends(ranked: Sequence[Thing], *, at_most: int) -> list[Thing]:
    """Return all items, or the first and last of them, `at_most` in total."""
    return list(ranked) if len(ranked) <= at_most else [*ranked[: at_most // 2], *ranked[-(at_most // 2) :]]


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


_MOST_BARS = 60
_MOST_PAIRS = 20
_MOST_RANKS = 2_000


def draw_histogram(values: ArrayLike, *, what: str, caption: str) -> Figure:
    """Draw a histogram; the outermost half per cent on each side is clipped into the last bar."""
    values = np.asarray(values, dtype=np.float64)
    drawing, axes = new_figure(width=3.7, height=2.4)
    low, high = np.quantile(values, [0.005, 0.995]).tolist() if len(values) else (0.0, 0.0)
    whole = (values == np.round(values)).all() and high - low < _MOST_BARS
    bins = np.arange(low - 0.5, high + 1).tolist() if whole else 40 if high > low else 1
    axes.hist(values.clip(low, high), bins=bins, color=ACCENT, rwidth=0.8 if whole else None)
    axes.set(xlabel=what, ylabel="images")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=bool(whole)))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return Figure(drawing, caption)


def draw_ranking(counts: Sequence[int], *, few: int, caption: str) -> Figure:
    """Draw the number of images of each label, the most frequent first, with a line at `few`."""
    drawing, axes = new_figure(width=8.0, height=2.8)
    ranks = np.unique(np.linspace(1, len(counts), _MOST_RANKS).astype(int))  # no more points than pixels
    ordered = np.sort(np.asarray(counts))[::-1][ranks - 1]
    axes.fill_between(ranks, ordered, step="mid", color=ACCENT, alpha=0.3, linewidth=0)
    axes.step(ranks, ordered, where="mid", color=ACCENT)
    axes.axhline(few, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set(xlabel="labels, the most frequent first", ylabel="images", xlim=(0.5, len(counts) + 0.5), ylim=(0, None))
    return Figure(drawing, caption)
