"""A comparison of two models as a page."""

from collections.abc import Iterator, Sequence

from manylabel.data import ImageDataset
from manylabel.evaluation.compare import Comparison, ImageChange
from manylabel.evaluation.measures import MEASURES
from manylabel.evaluation.pages.album import thumbnail
from manylabel.evaluation.pages.plots import draw_changes
from manylabel.evaluation.pages.words import interval, number, plural, shown, some
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

__all__ = ["compare_page"]


def compare_page(comparison: Comparison, dataset: ImageDataset) -> Page:
    """Show a comparison as a page.

    Args:
        comparison: What `compare` found.
        dataset: The data set that it was found on; a few of its pictures are read again.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, compare
        >>> dataset = scenes(8)
        >>> targets, _ = dataset.targets.dense()
        >>> good = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels, model="good")
        >>> bad = ScoredImages.from_arrays(0.8 - 0.6 * targets, targets, labels=dataset.labels, model="bad")
        >>> compare_page(compare(bad, good, draws=50), dataset).title
        'good against bad'
    """
    judged = f"{plural(comparison.num_pictures, 'picture')} of {comparison.dataset}"
    return Page(f"{comparison.second} against {comparison.first}", subtitle=judged).add(
        _key_figures(comparison),
        _verdict(comparison),
        *(Note(note) for note in comparison.notes),
        *_measures(comparison),
        *_labels(comparison),
        *_pictures(comparison, dataset),
        _explanation(comparison),
    )


def _key_figures(comparison: Comparison) -> Tiles:
    change = comparison.measures["mAP"]
    better = sum(label.verdict == "better" for label in comparison.labels)
    worse = sum(label.verdict == "worse" for label in comparison.labels)
    pairs = comparison.pairs
    return Tiles(
        [
            Tile(number(change.first), "mAP", comparison.first),
            Tile(number(change.second), "mAP", comparison.second),
            Tile(
                number(change.difference.value, signed=True), "change of mAP", interval(change.difference, signed=True)
            ),
            Tile(f"{better} : {worse}", "labels better : worse", f"clearly, of {len(comparison.labels):,}"),
            Tile(
                f"{100 * pairs.share:.0f} %",
                "pairs of labels improved",
                f"{pairs.improved:,} of {pairs.pairs:,}, {pairs.clearly_improved:,} of them clearly",
            ),
        ]
    )


def _verdict(comparison: Comparison) -> Note:
    change = comparison.measures["mAP"]
    if change.p_value is None:
        return Note("Without draws of the bootstrap nobody can tell these differences from chance.", kind="warning")
    if change.verdict == "unclear":
        return Note(
            f"On these pictures the two models cannot be told apart by mAP (p = {change.p_value:.3f}): the interval of "
            "the change holds 0.",
            kind="note",
        )
    kind, name = ("good", comparison.second) if change.verdict == "better" else ("warning", comparison.first)
    text = f"{name} has clearly the higher mAP: the interval of the change leaves out 0 (p = {change.p_value:.3f})."
    return Note(text, kind="good" if kind == "good" else "warning")


def _measures(comparison: Comparison) -> Iterator[Part]:
    yield Heading("All measures")
    rows: list[list[Cell]] = [
        [
            MEASURES[name].title,
            shown(change.first, measure=name),
            shown(change.second, measure=name),
            number(change.difference.value, measure=name, signed=True),
            interval(change.difference, measure=name, signed=True),
            "" if change.p_value is None else f"{change.p_value:.3f}",
            change.verdict,
        ]
        for name, change in comparison.measures.items()
    ]
    columns = ["measure", comparison.first, comparison.second, "change", "95 % interval", "p", "verdict"]
    yield Table(columns, rows, caption="Shares in per cent; a change is better or worse if its interval leaves out 0.")


def _labels(comparison: Comparison) -> Iterator[Part]:
    yield Heading("Labels")
    by_chance = round(0.05 * len(comparison.labels))
    if comparison.draws and by_chance:
        yield Text(
            f"One interval in twenty misses by chance: of {len(comparison.labels):,} labels, about {by_chance:,} would "
            "look better or worse even if nothing had changed."
        )
    if comparison.labels:
        yield Columns([draw_changes(comparison.labels)])
    if comparison.left_out:
        yield Note(f"Labels without a picture are left out: {some(comparison.left_out)}.", kind="warning")
    ranked = sorted(comparison.labels, key=lambda label: label.difference.value)
    rows: list[list[Cell]] = [
        [
            label.display_name,
            label.positives,
            Share(label.first),
            Share(label.second),
            number(label.difference.value, signed=True),
            interval(label.difference, signed=True),
            label.verdict,
        ]
        for label in ranked
    ]
    columns = ["label", "pictures", comparison.first, comparison.second, "change", "95 % interval", "verdict"]
    yield Table(columns, rows, caption="Average precision of every label, what lost most first.")


def _pictures(comparison: Comparison, dataset: ImageDataset) -> Iterator[Part]:
    yield Heading("Pictures")
    yield Text("Below each, what is there, and how far the scores are from it (cross-entropy), first and second model.")
    if comparison.better:
        yield Pictures(_thumbnails(comparison.better, dataset), title=f"Better understood by {comparison.second}")
    if comparison.worse:
        yield Pictures(_thumbnails(comparison.worse, dataset), title=f"Better understood by {comparison.first}")


def _thumbnails(changes: Sequence[ImageChange], dataset: ImageDataset) -> list[Picture]:
    present = dataset.targets.present
    pictures = []
    for change in changes:
        columns = present.indices[present.indptr[change.index] : present.indptr[change.index + 1]]
        names = some([dataset.labels.display(dataset.labels[column]) for column in columns], at_most=6)
        caption = f"{change.name}: {names or 'no label'}; {change.first:.1f} → {change.second:.1f}"
        pictures.append(thumbnail(dataset, change.index, caption))
    return pictures


def _explanation(comparison: Comparison) -> Section:
    sentences = (
        f"Both models were measured on the same {comparison.draws:,} draws of pictures (paired bootstrap, seed "
        f"{comparison.seed}), so that what is hard about a draw is hard for both and drops out of the difference.",
        "p is twice the share of draws in which the difference lies on the other side of 0. It says how sure the sign "
        "of the difference is on pictures of this kind, not how large it is, nor how it would turn out with models "
        "trained again.",
        "A pair of labels has improved if both labels have; the share of such pairs is how Hybrid Sharing Query counts "
        "simultaneous improvement.",
    )
    return Section("About the comparison", [Text(sentence) for sentence in sentences])
