"""HTML page of a dataset check, with example images."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from manylabel import page
from manylabel.data.dataset import ImageDataset
from manylabel.data.inspection.report import FEW_POSITIVES, CheckReport, DuplicateGroup
from manylabel.page import Cell, Fraction, Html, plural

Thing = TypeVar("Thing")

# These limits keep the page of any dataset below ten megabytes.
_MOST_ROWS = 2_000
_MOST_GROUPS = 30
_MOST_COPIES = 4
_MOST_LABELS = 60  # more names are illegible in a figure
_MOST_BARS = 60
_MOST_PAIRS = 20
_EXAMPLES = 6


def check_page(report: CheckReport, dataset: ImageDataset) -> page.Page:
    """Render a check as a page.

    Args:
        report: Result of `check`.
        dataset: The checked dataset; its images are read again for the thumbnails.

    Examples:
        >>> from manylabel.data import check, scenes
        >>> dataset = scenes(8)
        >>> check_page(check(dataset), dataset).title
        'Check of scenes'
    """
    subtitle = f"{plural(report.num_images, 'image')}, {plural(len(report.labels), 'label')}"
    parts = [
        *_summary(report),
        *_labels(report),
        *_sizes(report),
        *_bad(report),
        *_duplicates(report, dataset),
        *_examples(report, dataset),
    ]
    return page.Page(f"Check of {report.name}", subtitle, parts)


def _summary(report: CheckReport) -> Iterator[Html]:
    """Yield the key figures, all findings and the splits."""
    copies = sum(len(group.indices) - 1 for group in report.duplicates)
    rare = sum(label.positives < FEW_POSITIVES for label in report.labels)
    tiles = [
        page.tile(report.num_images, "image", f"{len(report.bad):,} cannot be read"),
        page.tile(len(report.labels), "label", f"{rare:,} with fewer than {FEW_POSITIVES} images"),
        (f"{report.mean_labels:.2f}", "labels per image", f"{max(len(report.labels_per_image) - 1, 0)} at most"),
        (f"{100 * report.unknown_fraction:.1f} %", "unknown", "of the image-label pairs"),
        page.tile(copies, "duplicate", f"in {plural(len(report.duplicates), 'group')}"),
    ]
    yield page.tiles(tiles)
    if report.is_sound:
        yield page.note(report.verdict, "note" if report.warnings else "good")
    yield from (page.note(f"{words[0].upper()}{words[1:]}.", "problem") for words in report.problems)
    yield from (page.note(f"{words[0].upper()}{words[1:]}.", "warning") for words in report.warnings)
    if len(report.splits) > 1:
        rows: list[list[Cell]] = [
            [name, size, Fraction(size / max(report.num_images, 1)), len(report.unseen.get(name, ()))]
            for name, size in report.splits.items()
        ]
        yield page.heading("Splits")
        yield page.table(["split", "images", "fraction", "labels without a positive"], rows)


def _labels(report: CheckReport) -> Iterator[Html]:
    yield page.heading("Labels")
    ranked = sorted(report.labels, key=lambda label: -label.positives)
    if len(ranked) > _MOST_LABELS:
        yield draw_ranking([label.positives for label in ranked])
    shown, total = _ends(ranked, at_most=_MOST_ROWS), max(report.num_images, 1)
    rows: list[list[Cell]] = [
        [label.display_name, label.positives, Fraction(label.positives / total), label.negatives, label.unknown]
        for label in shown
    ]
    yield page.table(["label", "present", "of all images", "absent", "unknown"], rows)
    if len(shown) < len(ranked):
        yield page.text(f"Showing the {len(shown):,} most and least frequent of {len(ranked):,} labels.")
    found = {label.name: label for label in report.labels}
    pairs: list[list[Cell]] = [
        [
            *(found[name].display_name for name in names),
            both,
            *(Fraction(both / found[name].positives) for name in names),
        ]
        for *names, both in report.frequent_pairs(_MOST_PAIRS)
    ]
    if pairs:
        yield page.heading("Label co-occurrence", level=3)
        yield page.table(["label", "with", "images of both", "of the first", "of the second"], pairs)
        yield page.text("The most frequent pairs; 'manylabel graph' draws all of them.")


def _sizes(report: CheckReport) -> Iterator[Html]:
    yield page.heading("Images")
    per_image = np.repeat(np.arange(len(report.labels_per_image)), report.labels_per_image)
    figures = [draw_histogram(per_image, what="labels", caption="Labels per image")]
    height, width = report.readable_sizes.T
    if len(height):
        figures += [
            draw_histogram(np.minimum(height, width), what="pixels", caption="Length of the shorter side"),
            draw_histogram(width / height, what="width / height", caption="Aspect ratio; above 1 is landscape"),
        ]
    yield page.columns(*figures)
    rows: list[list[Cell]] = [
        [what.replace("_", " "), *values.values()] for what, values in report.size_summary.items()
    ]
    if rows:
        yield page.table(["measure", "smallest", "median", "largest"], rows)


def _bad(report: CheckReport) -> Iterator[Html]:
    if report.bad:
        yield page.heading("Unreadable images")
        yield page.table(["image", "why"], [[image.name, image.reason] for image in report.bad[:_MOST_ROWS]])
    if len(report.bad) > _MOST_ROWS:
        yield page.text(f"Showing the first {_MOST_ROWS:,} of {len(report.bad):,}.")


def _duplicates(report: CheckReport, dataset: ImageDataset) -> Iterator[Html]:
    if not report.duplicates:
        return
    yield page.heading("Duplicates")
    ordered = sorted(report.duplicates, key=lambda group: (not group.labels_differ, group.is_exact))
    yield page.columns(*(_group(group, dataset) for group in ordered[:_MOST_GROUPS]))
    if len(ordered) > _MOST_GROUPS:
        yield page.text(f"Showing the first {_MOST_GROUPS} of {len(ordered):,} groups.")


def _group(group: DuplicateGroup, dataset: ImageDataset) -> Html:
    what = "The same file" if group.is_exact else "Looks the same"
    differ = ", different labels" if group.labels_differ else ""
    more = f", {len(group.indices)} times" if len(group.indices) > 2 else ""
    members = list(zip(group.indices, group.names, strict=True))[:_MOST_COPIES]
    captions = [(index, f"{name}\n{dataset.describe(index) or 'no label'}") for index, name in members]
    images = [dataset.thumbnail(index, caption=caption) for index, caption in captions]
    return page.thumbnails(images, title=f"{what}{more}{differ}")


def _examples(report: CheckReport, dataset: ImageDataset) -> Iterator[Html]:
    """Yield a few images of each label, or of the most and least frequent ones, spread over the dataset."""
    is_readable = report.sizes[:, 0] > 0
    by_label = dataset.targets.present.tocsc()
    positives = np.diff(by_label.indptr)
    ranked = [label for label in np.argsort(-positives, kind="stable").tolist() if positives[label]]
    shown = _ends(ranked, at_most=_MOST_LABELS)

    def examples(images: NDArray[np.int64], title: str = "") -> Html:
        images = images[is_readable[images]]
        chosen = np.unique(np.linspace(0, len(images) - 1, min(_EXAMPLES, len(images))).astype(int))
        return page.thumbnails([dataset.thumbnail(int(image)) for image in images[chosen]], title=title)

    if shown:
        left_out = f"; the {len(shown)} most and least frequent labels" if len(shown) < len(ranked) else ""
        titles = {label: f"{report.labels[label].display_name} ({positives[label]:,})" for label in shown}
        images = np.split(by_label.indices, by_label.indptr[1:-1])
        strips = [examples(images[label], title) for label, title in titles.items()]
        yield page.heading("Examples")
        yield page.section(f"Examples of each label{left_out}", *strips, is_open=True)
    empty = np.array(report.unlabelled, dtype=np.int64)
    if is_readable[empty].any():
        yield page.section("Images without a label", examples(empty))


def _ends(ranked: Sequence[Thing], *, at_most: int) -> list[Thing]:
    """Return all items, or the first and last of them, `at_most` in total."""
    return list(ranked) if len(ranked) <= at_most else [*ranked[: at_most // 2], *ranked[-(at_most // 2) :]]


def draw_histogram(values: ArrayLike, *, what: str, caption: str) -> Html:
    """Draw a histogram; unless each whole number has a bar, outliers are clipped into the outermost bars."""
    values = np.asarray(values, dtype=np.float64)
    drawing, axes = page.new_figure(width=3.7, height=2.4)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    whole = (values == np.round(values)).all() and high - low < _MOST_BARS
    if not whole:
        low, high = np.quantile(values, [0.005, 0.995]).tolist()
        caption += "; the outermost bars include the outermost 1 %"
    bins = np.arange(low - 0.5, high + 1).tolist() if whole else 40 if high > low else 1
    axes.hist(values.clip(low, high), bins=bins, color=page.ACCENT, rwidth=0.8 if whole else None)
    axes.set(xlabel=what, ylabel="images")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=bool(whole)))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return page.figure(drawing, caption)


def draw_ranking(counts: Sequence[int]) -> Html:
    """Draw the number of images of each label, the most frequent first, with a line below which labels are rare."""
    drawing, axes = page.new_figure(width=8.0, height=2.8)
    ranks = np.unique(np.linspace(1, len(counts), 2_000).astype(int))  # no more points than pixels
    ordered = np.asarray(counts)[ranks - 1]
    axes.fill_between(ranks, ordered, step="mid", color=page.ACCENT, alpha=0.3, linewidth=0)
    axes.step(ranks, ordered, where="mid", color=page.ACCENT)
    axes.axhline(FEW_POSITIVES, color=page.INK, linewidth=0.8, linestyle=":")
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set(xlabel="labels, the most frequent first", ylabel="images", xlim=(0.5, len(counts) + 0.5), ylim=(0, None))
    return page.figure(drawing, f"Images per label; labels below the dotted line have fewer than {FEW_POSITIVES}.")
