"""HTML pages of an evaluation and of a comparison; the report of runs includes their parts."""

from collections.abc import Callable, Iterator, Sequence

from manylabel import page
from manylabel.data import ImageDataset
from manylabel.errors import ImageError
from manylabel.evaluation.compare import Comparison, ImageChange
from manylabel.evaluation.evaluate import Evaluation
from manylabel.evaluation.groups import SIZE_LIMITS, Group
from manylabel.evaluation.metrics import METRICS
from manylabel.evaluation.plots import draw_calibration, draw_changes, draw_curves, draw_groups, draw_labels
from manylabel.evaluation.results import ImageResult, LabelResult
from manylabel.images import decode
from manylabel.page import Cell, Fraction, Note, Part, Table, plural, some

__all__ = [
    "DrawImage",
    "comparison_page",
    "comparison_parts",
    "evaluation_details",
    "evaluation_headline",
    "evaluation_page",
    "thumbnail",
]

DrawImage = Callable[[ImageResult, str], page.Thumbnail]
"""Draws the thumbnail of an image result, given its caption."""

_FEW_POSITIVES = 20  # with fewer, the average precision of a label is mostly noise
_MOST_ROWS = 2_000
_DECISIONS = ("CP", "CR", "CF1", "OP", "OR", "OF1")
_HEIGHT = 112  # of thumbnails, in pixels
_MAP = METRICS["mAP"]  # formats any fraction
_KEY_FIGURES = ("top_1", "mAP", "CF1", "OF1", "one_error", "calibration_error")


def evaluation_page(evaluation: Evaluation, dataset: ImageDataset) -> page.Page:
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
    return page.Page(f"Evaluation of {evaluation.model}", subtitle=subtitle).add(
        *evaluation_headline(evaluation), *evaluation_details(evaluation, dataset)
    )


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
    """Return the rest of the page: all metrics, labels, confusions, hard cases and images.

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
        Heading(text='Metrics', level=2)
    """
    return [
        *_metrics(evaluation),
        *_labels(evaluation),
        *_confusions(evaluation, dataset),
        *_groups(evaluation),
        *_images(evaluation, dataset, draw or (lambda result, words: thumbnail(dataset, result.index, words))),
        _explanation(evaluation),
    ]


def _key_figures(evaluation: Evaluation) -> page.Tiles:
    values = {METRICS[name]: evaluation.metrics[name] for name in _KEY_FIGURES if name in evaluation.metrics}
    return page.Tiles(
        [page.Tile(metric.number(each.value), metric.title, metric.interval(each)) for metric, each in values.items()]
    )


def _notes(evaluation: Evaluation) -> Iterator[Part]:
    if evaluation.bad:
        bad = [f"{image.name} ({image.reason})" for image in evaluation.bad]
        yield Note(f"{plural(len(bad), 'image')} could not be evaluated: {some(bad, at_most=5)}.", kind="warning")
    if evaluation.without_positives:
        count, names = len(evaluation.without_positives), some(evaluation.without_positives)
        text = f"No image has {names}: {plural(count, 'label')} without results, excluded from means over labels."
        yield Note(text, kind="warning")
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


def _metrics(evaluation: Evaluation) -> Iterator[Part]:
    yield page.Heading("Metrics")
    values, suffixes = evaluation.metrics, [""]
    if all(f"{name}@3" in values for name in _DECISIONS):
        suffixes.append("@3")
    tabled = {f"{name}{suffix}" for name in _DECISIONS for suffix in suffixes}
    rows: list[list[Cell]] = [
        [
            METRICS[name].title,
            _cell(name, value.value),
            METRICS[name].interval(value),
            "higher" if METRICS[name].higher_is_better else "lower",
            METRICS[name].meaning,
        ]
        for name, value in values.items()
        if name not in tabled
    ]
    yield Table(["metric", "value", "95 % interval", "better", "meaning"], rows)
    rules = {"": "top 1" if evaluation.single_label else "thresholds", "@3": "top 3"}
    decisions: list[list[Cell]] = [
        [rules[suffix], *(_MAP.with_interval(values.get(f"{name}{suffix}")) for name in _DECISIONS)]
        for suffix in suffixes
        if f"OF1{suffix}" in values
    ]
    caption = "Precision (P), recall (R) and F1 in per cent with 95 % intervals: mean over labels (C) and overall (O)."
    if decisions:
        yield Table(["predicted by", *_DECISIONS], decisions, caption=caption)


def _labels(evaluation: Evaluation) -> Iterator[Part]:
    rated = [label for label in evaluation.labels if label.positives]
    yield page.Heading("Labels")
    if rated:
        curves = page.Columns([draw_curves(rated), draw_calibration({"": evaluation.calibration})])
        yield page.Columns([draw_labels(rated), curves])
    ranked = sorted(rated, key=lambda label: label.value)
    ranked += [label for label in evaluation.labels if not label.positives]
    caption = "All labels, worst first."
    if len(ranked) > _MOST_ROWS:
        caption = f"The {_MOST_ROWS:,} worst of {len(ranked):,} labels."
    columns = ["label", "images", "average precision", "95 % interval", "precision", "recall", "F1"]
    rows = [_row(label) for label in ranked[:_MOST_ROWS]]
    if evaluation.has_thresholds:
        columns.append("threshold")
        rows = [[*row, Fraction(label.threshold)] for row, label in zip(rows, ranked, strict=False)]
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
    yield page.Heading("Confusions that matter")
    if not evaluation.confusions:
        yield page.Text("No pair of labels was confused in more than one image.")
        return
    yield page.Text(
        "Images in which a present label was missed and an absent one predicted, sorted by the excess over what "
        "independence of the two predicts."
    )
    display = dataset.labels.display
    rows: list[list[Cell]] = [
        [
            display(pair.actual),
            display(pair.predicted),
            pair.count,
            Fraction(pair.rate),
            Fraction(pair.base_rate),
        ]
        for pair in evaluation.confusions
    ]
    yield Table(["missed", "wrongly predicted", "images", "rate if missed", "rate otherwise"], rows)


def _groups(evaluation: Evaluation) -> Iterator[Part]:
    if not evaluation.by_count:
        return
    small, medium = (f"{100 * limit:.2g} %" for limit in SIZE_LIMITS)
    by_size = (
        f"by object size (the largest object of a label: small is below {small} of the image, medium below {medium}; "
        "the mAP of a size ignores positives of other sizes)"
    )
    kinds = (
        (evaluation.by_count, "images with", "images", "by number of labels per image"),
        (evaluation.by_size, "size", "positives", by_size),
    )
    shown = [kind for kind in kinds if kind[0]]
    yield page.Heading("Hard cases")
    yield page.Columns(
        [
            draw_groups(groups, f"Recall {words.partition(' (')[0]} (number of {counted} in brackets).")
            for groups, _, counted, words in shown
        ]
    )
    for groups, what, counted, words in shown:
        yield _group_table(groups, [what, counted], f"Results {words}, in per cent with 95 % intervals.")


def _group_table(groups: Sequence[Group], columns: list[str], caption: str) -> Table:
    names = list(dict.fromkeys(name for group in groups for name in group.metrics))
    rows: list[list[Cell]] = [
        [group.name, group.count, *(_MAP.with_interval(group.metrics.get(name)) for name in names)] for group in groups
    ]
    return Table([*columns, *(name.replace("_", " ") for name in names)], rows, caption=caption)


def _images(evaluation: Evaluation, dataset: ImageDataset, draw: DrawImage) -> Iterator[Part]:
    yield page.Heading("Images")
    for results, title in (
        (evaluation.worst, "Highest loss"),
        (evaluation.best, "Lowest loss among images with labels"),
    ):
        yield page.Thumbnails([draw(result, _caption(result, dataset)) for result in results], title=title)


def _caption(result: ImageResult, dataset: ImageDataset) -> str:
    parts = {
        "correct:": result.true_positives,
        "missed:": result.false_negatives,
        "wrongly predicted:": result.false_positives,
    }
    words = []
    for what, tags in parts.items():
        named = [f"{dataset.labels.display(tag.label)} {100 * tag.score:.0f} %" for tag in tags]
        words += [f"{what} {some(named, at_most=4)}"] if tags else []
    return f"{result.name}: {'; '.join(words) or 'no label, none predicted'}"


def thumbnail(dataset: ImageDataset, index: int, caption: str) -> page.Thumbnail:
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
        return page.Thumbnail.of(decode(dataset.images[index], at_least=(_HEIGHT, _HEIGHT)), caption, height=_HEIGHT)
    except (ImageError, OSError):
        return page.Thumbnail(b"", caption)


def _cell(name: str, value: float) -> Cell:
    return Fraction(value) if METRICS[name].is_fraction else round(value, 2)


def _explanation(evaluation: Evaluation) -> page.Section:
    if not evaluation.draws:
        return page.Section("About the intervals", [page.Text("No intervals: the bootstrap was turned off.")])
    sentences: Sequence[str] = (
        f"95 % bootstrap intervals over images: {plural(evaluation.draws, 'draw')} with replacement, seed "
        f"{evaluation.seed}.",
        "Resampled sets contain duplicates, which inflate the average precision of rare labels; the draws are "
        "therefore shifted to have the measured value as their mean. The interval shows how much a value would vary "
        "over other sets of the same size and distribution. It covers neither distribution shift nor retraining.",
        "Without any observed error the interval has zero width: resampling cannot produce errors that were never "
        "observed.",
    )
    return page.Section("About the intervals", [page.Text(sentence) for sentence in sentences])


def comparison_page(comparison: Comparison, dataset: ImageDataset) -> page.Page:
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
    title = f"{comparison.second} against {comparison.first}"
    return page.Page(title, subtitle=images).add(*comparison_parts(comparison, dataset))


def comparison_parts(comparison: Comparison, dataset: ImageDataset) -> list[Part]:
    """Return the parts of the page: key figures and verdict, metrics, labels and images.

    Args:
        comparison: The comparison.
        dataset: Its dataset; a few of the images are read again.
    """
    return [
        _comparison_key_figures(comparison),
        _verdict(comparison),
        *(Note(note) for note in comparison.notes),
        *_comparison_metrics(comparison),
        *_comparison_labels(comparison),
        *_comparison_images(comparison, dataset),
        _comparison_explanation(comparison),
    ]


def _comparison_key_figures(comparison: Comparison) -> page.Tiles:
    change = comparison.metrics["mAP"]
    better = sum(label.verdict == "better" for label in comparison.labels)
    worse = sum(label.verdict == "worse" for label in comparison.labels)
    pairs = comparison.pairs
    return page.Tiles(
        [
            page.Tile(_MAP.number(change.first), "mAP", comparison.first),
            page.Tile(_MAP.number(change.second), "mAP", comparison.second),
            page.Tile(
                _MAP.number(change.difference.value, signed=True),
                "change in mAP",
                _MAP.interval(change.difference, signed=True),
            ),
            page.Tile(f"{better} : {worse}", "labels better : worse", f"significantly, of {len(comparison.labels):,}"),
            page.Tile(
                f"{100 * pairs.fraction:.0f} %",
                "pairs of labels improved",
                f"{pairs.improved:,} of {pairs.pairs:,}, {pairs.significantly_improved:,} of them significantly",
            ),
        ]
    )


def _verdict(comparison: Comparison) -> Note:
    change = comparison.metrics["mAP"]
    if change.p_value is None:
        return Note("Without bootstrap draws, the significance of these differences is unknown.", kind="warning")
    if change.verdict == "unclear":
        return Note(
            f"The mAP of the two models does not differ significantly on these images (p = {change.p_value:.3f}): the "
            "interval of the change includes 0.",
            kind="note",
        )
    is_better = change.verdict == "better"
    name = comparison.second if is_better else comparison.first
    text = f"{name} has a significantly higher mAP: the interval of the change excludes 0 (p = {change.p_value:.3f})."
    return Note(text, kind="good" if is_better else "warning")


def _comparison_metrics(comparison: Comparison) -> Iterator[Part]:
    yield page.Heading("Metrics")
    rows: list[list[Cell]] = [
        [
            METRICS[name].title,
            _cell(name, change.first),
            _cell(name, change.second),
            METRICS[name].number(change.difference.value, signed=True),
            METRICS[name].interval(change.difference, signed=True),
            "" if change.p_value is None else f"{change.p_value:.3f}",
            change.verdict,
        ]
        for name, change in comparison.metrics.items()
    ]
    columns = ["metric", comparison.first, comparison.second, "change", "95 % interval", "p", "verdict"]
    yield Table(columns, rows, caption="In per cent; a change is better or worse if its interval excludes 0.")


def _comparison_labels(comparison: Comparison) -> Iterator[Part]:
    yield page.Heading("Labels")
    by_chance = round(0.05 * len(comparison.labels))
    if comparison.draws and by_chance:
        yield page.Text(
            f"One 95 % interval in twenty misses by chance: of {plural(len(comparison.labels), 'label')}, about "
            f"{by_chance:,} would appear significant even without any change (no correction for multiple testing)."
        )
    if comparison.labels:
        yield page.Columns(draw_changes(comparison.labels))
    if comparison.without_positives:
        yield Note(f"Labels without images are excluded: {some(comparison.without_positives)}.", kind="warning")
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


def _comparison_images(comparison: Comparison, dataset: ImageDataset) -> Iterator[Part]:
    yield page.Heading("Images")
    yield page.Text("Below each image: its labels, and the loss (cross-entropy) of the first and the second model.")
    if comparison.better:
        yield page.Thumbnails(_thumbnails(comparison.better, dataset), title=f"Lower loss with {comparison.second}")
    if comparison.worse:
        yield page.Thumbnails(_thumbnails(comparison.worse, dataset), title=f"Lower loss with {comparison.first}")


def _thumbnails(changes: Sequence[ImageChange], dataset: ImageDataset) -> list[page.Thumbnail]:
    present = dataset.targets.present
    thumbnails = []
    for change in changes:
        columns = present.indices[present.indptr[change.index] : present.indptr[change.index + 1]]
        names = some([dataset.labels.display(dataset.labels[column]) for column in columns], at_most=6)
        caption = f"{change.name}: {names or 'no label'}; {change.first:.1f} → {change.second:.1f}"
        thumbnails.append(thumbnail(dataset, change.index, caption))
    return thumbnails


def _comparison_explanation(comparison: Comparison) -> page.Section:
    sentences = (
        f"Paired bootstrap over images: both models are evaluated on the same {plural(comparison.draws, 'draw')}, seed "
        f"{comparison.seed}, so the difficulty of a draw affects both and cancels out of the difference.",
        "p is twice the fraction of draws in which the difference has the opposite sign: how certain the sign is for "
        "images of this distribution. It measures neither the size of the difference nor the variation between "
        "training runs.",
        "A pair of labels has improved if both labels have; Hybrid Sharing Query reports the fraction of such pairs as "
        "simultaneous improvement.",
    )
    return page.Section("About the comparison", [page.Text(sentence) for sentence in sentences])
