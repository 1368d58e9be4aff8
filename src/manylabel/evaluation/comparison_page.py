"""HTML page that compares two models; the report of several runs includes its parts."""

from collections.abc import Iterator, Sequence

from manylabel.data import ImageDataset
from manylabel.evaluation.compare import Comparison, ImageChange
from manylabel.evaluation.evaluation_page import measure_cell, thumbnail
from manylabel.evaluation.measures import MEASURES
from manylabel.evaluation.plots import draw_changes
from manylabel.page import (
    Cell,
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
    plural,
    some,
)

__all__ = ["comparison_page", "comparison_parts"]

_MAP = MEASURES["mAP"]  # formats any fraction


def comparison_page(comparison: Comparison, dataset: ImageDataset) -> Page:
    """Show a comparison as a page.

    Args:
        comparison: The comparison.
        dataset: Its dataset; a few of the images are read again.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, compare
        >>> dataset = scenes(8)
        >>> targets, _ = dataset.targets.dense()
        >>> good = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels, model="good")
        >>> bad = ScoredImages.from_arrays(0.8 - 0.6 * targets, targets, labels=dataset.labels, model="bad")
        >>> comparison_page(compare(bad, good, draws=50), dataset).title
        'good against bad'
    """
    images = f"{plural(comparison.num_images, 'image')} of {comparison.dataset}"
    page = Page(f"{comparison.second} against {comparison.first}", subtitle=images)
    return page.add(*comparison_parts(comparison, dataset))


def comparison_parts(comparison: Comparison, dataset: ImageDataset) -> list[Part]:
    """Return the parts of the page: key figures and verdict, measures, labels and images.

    Args:
        comparison: The comparison.
        dataset: Its dataset; a few of the images are read again.
    """
    return [
        _key_figures(comparison),
        _verdict(comparison),
        *(Note(note) for note in comparison.notes),
        *_measures(comparison),
        *_labels(comparison),
        *_images(comparison, dataset),
        _explanation(comparison),
    ]


def _key_figures(comparison: Comparison) -> Tiles:
    change = comparison.measures["mAP"]
    better = sum(label.verdict == "better" for label in comparison.labels)
    worse = sum(label.verdict == "worse" for label in comparison.labels)
    pairs = comparison.pairs
    return Tiles(
        [
            Tile(_MAP.number(change.first), "mAP", comparison.first),
            Tile(_MAP.number(change.second), "mAP", comparison.second),
            Tile(
                _MAP.number(change.difference.value, signed=True),
                "change in mAP",
                _MAP.interval(change.difference, signed=True),
            ),
            Tile(f"{better} : {worse}", "labels better : worse", f"significantly, of {len(comparison.labels):,}"),
            Tile(
                f"{100 * pairs.fraction:.0f} %",
                "pairs of labels improved",
                f"{pairs.improved:,} of {pairs.pairs:,}, {pairs.clearly_improved:,} of them significantly",
            ),
        ]
    )


def _verdict(comparison: Comparison) -> Note:
    change = comparison.measures["mAP"]
    if change.p_value is None:
        return Note("Without bootstrap draws, the significance of these differences is unknown.", kind="warning")
    if change.verdict == "unclear":
        return Note(
            f"The mAP of the two models does not differ significantly on these images (p = {change.p_value:.3f}): the "
            "interval of the change includes 0.",
            kind="note",
        )
    kind, name = ("good", comparison.second) if change.verdict == "better" else ("warning", comparison.first)
    text = f"{name} has a significantly higher mAP: the interval of the change excludes 0 (p = {change.p_value:.3f})."
    return Note(text, kind="good" if kind == "good" else "warning")


def _measures(comparison: Comparison) -> Iterator[Part]:
    yield Heading("Measures")
    rows: list[list[Cell]] = [
        [
            MEASURES[name].title,
            measure_cell(name, change.first),
            measure_cell(name, change.second),
            MEASURES[name].number(change.difference.value, signed=True),
            MEASURES[name].interval(change.difference, signed=True),
            "" if change.p_value is None else f"{change.p_value:.3f}",
            change.verdict,
        ]
        for name, change in comparison.measures.items()
    ]
    columns = ["measure", comparison.first, comparison.second, "change", "95 % interval", "p", "verdict"]
    yield Table(columns, rows, caption="In per cent; a change is better or worse if its interval excludes 0.")


def _labels(comparison: Comparison) -> Iterator[Part]:
    yield Heading("Labels")
    by_chance = round(0.05 * len(comparison.labels))
    if comparison.draws and by_chance:
        yield Text(
            f"One 95 % interval in twenty misses by chance: of {plural(len(comparison.labels), 'label')}, about "
            f"{by_chance:,} would appear significant even without any change (no correction for multiple testing)."
        )
    if comparison.labels:
        yield draw_changes(comparison.labels)
    if comparison.left_out:
        yield Note(f"Labels without images are excluded: {some(comparison.left_out)}.", kind="warning")
    ranked = sorted(comparison.labels, key=lambda label: -label.difference.value)
    rows: list[list[Cell]] = [
        [
            label.display_name,
            label.positives,
            Fraction(label.first),
            Fraction(label.second),
            _MAP.number(label.difference.value, signed=True),
            _MAP.interval(label.difference, signed=True),
            label.verdict,
        ]
        for label in ranked
    ]
    columns = ["label", "images", comparison.first, comparison.second, "change", "95 % interval", "verdict"]
    yield Table(columns, rows, caption="Average precision of each label, largest gain first.")


def _images(comparison: Comparison, dataset: ImageDataset) -> Iterator[Part]:
    yield Heading("Images")
    yield Text("Below each image: its labels, and the loss (cross-entropy) of the first and the second model.")
    if comparison.better:
        yield Thumbnails(_thumbnails(comparison.better, dataset), title=f"Lower loss with {comparison.second}")
    if comparison.worse:
        yield Thumbnails(_thumbnails(comparison.worse, dataset), title=f"Lower loss with {comparison.first}")


def _thumbnails(changes: Sequence[ImageChange], dataset: ImageDataset) -> list[Thumbnail]:
    present = dataset.targets.present
    thumbnails = []
    for change in changes:
        columns = present.indices[present.indptr[change.index] : present.indptr[change.index + 1]]
        names = some([dataset.labels.display(dataset.labels[column]) for column in columns], at_most=6)
        caption = f"{change.name}: {names or 'no label'}; {change.first:.1f} → {change.second:.1f}"
        thumbnails.append(thumbnail(dataset, change.index, caption))
    return thumbnails


def _explanation(comparison: Comparison) -> Section:
    sentences = (
        f"Paired bootstrap over images: both models are measured on the same {plural(comparison.draws, 'draw')}, seed "
        f"{comparison.seed}, so the difficulty of a draw affects both and cancels out of the difference.",
        "p is twice the fraction of draws in which the difference has the opposite sign: how certain the sign is for "
        "images of this distribution. It measures neither the size of the difference nor the variation between "
        "training runs.",
        "A pair of labels has improved if both labels have; Hybrid Sharing Query reports the fraction of such pairs as "
        "simultaneous improvement.",
    )
    return Section("About the comparison", [Text(sentence) for sentence in sentences])
