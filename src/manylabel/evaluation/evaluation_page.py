"""HTML page of an evaluation: metrics with confidence intervals, then an error analysis."""

from collections.abc import Callable, Iterator, Sequence

from manylabel.data import ImageDataset
from manylabel.errors import ImageError
from manylabel.evaluation.evaluate import Evaluation
from manylabel.evaluation.groups import SIZE_LIMITS
from manylabel.evaluation.measures import MEASURES
from manylabel.evaluation.plots import draw_calibration, draw_curves, draw_groups, draw_labels
from manylabel.evaluation.results import ImageResult, LabelResult
from manylabel.images import decode
from manylabel.page import (
    Cell,
    Columns,
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

__all__ = ["DrawImage", "evaluation_details", "evaluation_headline", "evaluation_page", "measure_cell", "thumbnail"]

DrawImage = Callable[[ImageResult, str], Thumbnail]
"""Draws the thumbnail of an image result, given its caption."""

_FEW_POSITIVES = 20  # with fewer, the average precision of a label is mostly noise
_MOST_ROWS = 2_000
_DECISIONS = ("CP", "CR", "CF1", "OP", "OR", "OF1")
_HEIGHT = 112  # of thumbnails, in pixels
_MAP = MEASURES["mAP"]  # formats any fraction
_KEY_FIGURES = ("top_1", "mAP", "CF1", "OF1", "one_error", "calibration_error")


def evaluation_page(evaluation: Evaluation, dataset: ImageDataset) -> Page:
    """Show an evaluation as a page.

    Args:
        evaluation: The evaluation.
        dataset: Its dataset; a few of the images are read again.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> dataset = scenes(8)
        >>> targets, _ = dataset.targets.dense()
        >>> scored = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels)
        >>> evaluation_page(evaluate(scored, draws=50), dataset).title
        'Evaluation of model'
    """
    images = f"{plural(evaluation.num_images, 'image')} of {evaluation.dataset}"
    subtitle = f"{images}, {plural(len(evaluation.labels), 'label')}"
    page = Page(f"Evaluation of {evaluation.model}", subtitle=subtitle)
    return page.add(*evaluation_headline(evaluation), *evaluation_details(evaluation, dataset))


def evaluation_headline(evaluation: Evaluation) -> list[Part]:
    """Return the top of the page: key figures and caveats.

    Examples:
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> scored = ScoredImages.from_arrays([[0.9, 0.2]], [[1, 0]], labels=["cat", "dog"])
        >>> type(evaluation_headline(evaluate(scored, draws=0))[0]).__name__
        'Tiles'
    """
    return [_key_figures(evaluation), *_notes(evaluation)]


def evaluation_details(evaluation: Evaluation, dataset: ImageDataset, *, draw: DrawImage | None = None) -> list[Part]:
    """Return the rest of the page: all measures, labels, confusions, hard cases and images.

    Args:
        evaluation: The evaluation.
        dataset: Its dataset; a few of the images are read again.
        draw: Draws the thumbnails (default: plain thumbnails).

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> dataset = scenes(4)
        >>> targets, _ = dataset.targets.dense()
        >>> scored = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels)
        >>> evaluation_details(evaluate(scored, draws=0), dataset)[0]
        Heading(text='Measures', level=2)
    """
    return [
        *_measures(evaluation),
        *_labels(evaluation),
        *_confusions(evaluation, dataset),
        *_groups(evaluation),
        *_images(evaluation, dataset, draw or (lambda result, words: thumbnail(dataset, result.index, words))),
        _explanation(evaluation),
    ]


def _key_figures(evaluation: Evaluation) -> Tiles:
    names = [name for name in _KEY_FIGURES if name in evaluation.measures]
    return Tiles(
        [
            Tile(MEASURES[name].number(value.value), MEASURES[name].title, MEASURES[name].interval(value))
            for name, value in ((name, evaluation.measures[name]) for name in names)
        ]
    )


def _notes(evaluation: Evaluation) -> Iterator[Part]:
    if evaluation.bad:
        bad = [f"{image.name} ({image.reason})" for image in evaluation.bad]
        yield Note(f"{plural(len(bad), 'image')} could not be evaluated: {some(bad, at_most=5)}.", kind="warning")
    if evaluation.left_out:
        names = some(evaluation.left_out)
        yield Note(
            f"No image has {names}: {plural(len(evaluation.left_out), 'label')} without results, excluded from means "
            "over labels.",
            kind="warning",
        )
    few = [label.display_name for label in evaluation.labels if 0 < label.positives < _FEW_POSITIVES]
    if few:
        yield Note(
            f"{plural(len(few), 'label')} with fewer than {_FEW_POSITIVES} images, whose results are mostly noise: "
            f"{some(few)}.",
            kind="note",
        )
    if evaluation.single_label:
        yield Note("The model predicts one label per image: the one with the highest score.")
    elif not evaluation.has_thresholds:
        yield Note("The model has no tuned thresholds: labels with a score of at least 50 % are predicted.")
    yield from (Note(note) for note in evaluation.notes)


def _measures(evaluation: Evaluation) -> Iterator[Part]:
    yield Heading("Measures")
    rows: list[list[Cell]] = [
        [
            MEASURES[name].title,
            measure_cell(name, value.value),
            MEASURES[name].interval(value),
            "higher" if MEASURES[name].higher_is_better else "lower",
            MEASURES[name].meaning,
        ]
        for name, value in evaluation.measures.items()
        if name.removesuffix("@3") not in _DECISIONS
    ]
    yield Table(["measure", "value", "95 % interval", "better", "meaning"], rows)
    rule, words = (
        ("top 1", "the highest score")
        if evaluation.single_label
        else ("thresholds", "the labels that reach their threshold")
    )
    decisions: list[list[Cell]] = [
        [what, *(_MAP.with_interval(evaluation.measures.get(f"{name}{suffix}")) for name in _DECISIONS)]
        for what, suffix in ((rule, ""), ("top 3", "@3"))
    ]
    caption = (
        "Precision (P), recall (R) and F1 in per cent with 95 % intervals: mean over labels (C) and overall (O), for "
        f"{words} and for the three highest scores of each image."
    )
    yield Table(["predicted by", *_DECISIONS], decisions, caption=caption)


def _labels(evaluation: Evaluation) -> Iterator[Part]:
    rated = [label for label in evaluation.labels if label.positives]
    yield Heading("Labels")
    if rated:
        curves = Columns([draw_curves(rated), draw_calibration(evaluation.calibration)])
        yield Columns([draw_labels(rated), curves])
    ranked = sorted(rated, key=lambda label: label.value)
    ranked += [label for label in evaluation.labels if not label.positives]
    caption = "All labels, worst first."
    if len(ranked) > _MOST_ROWS:
        caption = f"The {_MOST_ROWS:,} worst of {len(ranked):,} labels."
    columns = ["label", "images", "average precision", "95 % interval", "precision", "recall", "F1"]
    rows = [_row(label) for label in ranked[:_MOST_ROWS]]
    if evaluation.has_thresholds:
        columns.append("threshold")
        rows = [[*row, round(label.threshold, 3)] for row, label in zip(rows, ranked, strict=False)]
    yield Table(columns, rows, caption=caption)


def _row(label: LabelResult) -> list[Cell]:
    if label.average_precision is None:
        return [label.display_name, 0, None, "", None, None, None]
    decisions = [None if value is None else Fraction(value) for value in (label.precision, label.recall, label.f1)]
    return [
        label.display_name,
        label.positives,
        Fraction(label.value),
        _MAP.interval(label.average_precision),
        *decisions,
    ]


def _confusions(evaluation: Evaluation, dataset: ImageDataset) -> Iterator[Part]:
    yield Heading("Confusions that matter")
    if not evaluation.confusions:
        yield Text("No pair of labels was confused in more than one image.")
        return
    yield Text(
        "Images in which a present label was missed and an absent one predicted, sorted by the excess over what "
        "independence of the two predicts."
    )
    display = dataset.labels.display
    rows: list[list[Cell]] = [
        [
            display(pair.missed),
            display(pair.invented),
            pair.count,
            Fraction(pair.fraction),
            Fraction(pair.usual_fraction),
        ]
        for pair in evaluation.confusions
    ]
    yield Table(["missed", "wrongly predicted", "images", "rate if missed", "rate otherwise"], rows)


def _groups(evaluation: Evaluation) -> Iterator[Part]:
    if not evaluation.by_count:
        return
    yield Heading("Hard cases")
    counts, sizes = evaluation.by_count, evaluation.by_size
    what = "recall, in per cent"
    figures: list[Part] = [
        draw_groups(
            [f"{group.name} ({group.images:,})" for group in counts],
            [group.recall for group in counts],
            what=what,
            caption="Recall by number of labels per image (number of images in brackets).",
        )
    ]
    if sizes:
        small, medium = (f"{100 * limit:.2g} %" for limit in SIZE_LIMITS)
        caption = (
            f"Recall by the size of a label's largest object: small is below {small} of the image, medium below "
            f"{medium} (number of positives in brackets)."
        )
        names = [f"{group.name} ({group.positives:,})" for group in sizes]
        figures.append(draw_groups(names, [group.recall for group in sizes], what=what, caption=caption))
    yield Columns(figures)
    yield _count_table(evaluation)
    if sizes:
        yield _size_table(evaluation)


def _count_table(evaluation: Evaluation) -> Table:
    rows: list[list[Cell]] = [
        [group.name, group.images, *map(_MAP.with_interval, values)]
        for group in evaluation.by_count
        for values in [(group.precision, group.recall, group.f1, group.ranking_loss)]
    ]
    columns = ["images with", "images", "precision", "recall", "F1", "ranking loss"]
    return Table(columns, rows, caption="Results by number of labels per image, in per cent with 95 % intervals.")


def _size_table(evaluation: Evaluation) -> Table:
    rows: list[list[Cell]] = [
        [group.name, group.positives, *map(_MAP.with_interval, (group.recall, group.mean_average_precision))]
        for group in evaluation.by_size
    ]
    caption = (
        "Results by object size, in per cent with 95 % intervals. The mAP of a size ignores positives of other sizes."
    )
    return Table(["size", "image x label", "recall", "mAP"], rows, caption=caption)


def _images(evaluation: Evaluation, dataset: ImageDataset, draw: DrawImage) -> Iterator[Part]:
    yield Heading("Images")
    for results, title in (
        (evaluation.worst, "Highest loss"),
        (evaluation.best, "Lowest loss among images with labels"),
    ):
        yield Thumbnails([draw(result, _caption(result, dataset)) for result in results], title=title)


def _caption(result: ImageResult, dataset: ImageDataset) -> str:
    parts = {"correct:": result.found, "missed:": result.missed, "wrongly predicted:": result.invented}
    words = []
    for what, tags in parts.items():
        named = [f"{dataset.labels.display(tag.label)} {100 * tag.score:.0f} %" for tag in tags]
        words += [f"{what} {some(named, at_most=4)}"] if tags else []
    return f"{result.name}: {'; '.join(words) or 'no label, none predicted'}"


def thumbnail(dataset: ImageDataset, index: int, caption: str) -> Thumbnail:
    """Return a thumbnail of one image, or only its caption if the image is no longer readable.

    Args:
        dataset: The dataset.
        index: Position of the image.
        caption: Caption below the thumbnail.

    Examples:
        >>> from manylabel.data import scenes
        >>> thumbnail(scenes(1), 0, "a scene").caption
        'a scene'
    """
    try:
        return Thumbnail.of(decode(dataset.images[index], at_least=(_HEIGHT, _HEIGHT)), caption, height=_HEIGHT)
    except (ImageError, OSError):
        return Thumbnail(b"", caption)


def measure_cell(name: str, value: float) -> Cell:
    """Return the table cell for a value of a measure.

    Examples:
        >>> measure_cell("mAP", 0.5), measure_cell("coverage", 3.254)
        (Fraction(value=0.5), 3.25)
    """
    return Fraction(value) if MEASURES[name].is_fraction else round(value, 2)


def _explanation(evaluation: Evaluation) -> Section:
    if not evaluation.draws:
        return Section("About the intervals", [Text("No intervals: the bootstrap was turned off.")])
    sentences: Sequence[str] = (
        f"95 % bootstrap intervals over images: {plural(evaluation.draws, 'draw')} with replacement, seed "
        f"{evaluation.seed}.",
        "Resampled sets contain duplicates, which inflate the average precision of rare labels; the draws are "
        "therefore shifted to have the measured value as their mean. The interval shows how much a value would vary "
        "over other sets of the same size and distribution. It covers neither distribution shift nor retraining.",
        "Without any observed error the interval has zero width: resampling cannot produce errors that were never "
        "observed.",
    )
    return Section("About the intervals", [Text(sentence) for sentence in sentences])
