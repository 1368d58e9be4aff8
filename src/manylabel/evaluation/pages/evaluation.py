"""An evaluation as a page: the numbers and how far they can be trusted, then where the model goes wrong."""

from collections.abc import Callable, Iterator, Sequence

from manylabel.data import ImageDataset
from manylabel.evaluation.evaluate import Evaluation
from manylabel.evaluation.groups import SIZE_LIMITS
from manylabel.evaluation.label_results import LabelResult
from manylabel.evaluation.measures import MEASURES
from manylabel.evaluation.pages.album import thumbnail
from manylabel.evaluation.pages.plots import draw_calibration, draw_curves, draw_groups, draw_labels
from manylabel.evaluation.pages.words import describe_tags, interval, number, plural, shown, some, with_interval
from manylabel.evaluation.picture_results import ImageResult
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

__all__ = ["DrawImage", "evaluation_details", "evaluation_headline", "evaluation_page"]

DrawImage = Callable[[ImageResult, str], Picture]
"""Makes the thumbnail of a picture that a model understood well or badly, over the caption given."""

_FEW_POSITIVES = 20  # with fewer, the average precision of a label is mostly luck
_MOST_ROWS = 2_000
_DECISIONS = ("CP", "CR", "CF1", "OP", "OR", "OF1")
_KEY_FIGURES = ("top_1", "mAP", "CF1", "OF1", "one_error", "calibration_error")


def evaluation_page(evaluation: Evaluation, dataset: ImageDataset) -> Page:
    """Show an evaluation as a page.

    Args:
        evaluation: What `evaluate` found.
        dataset: The data set that it was found on; a few of its pictures are read again.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> dataset = scenes(8)
        >>> targets, _ = dataset.targets.dense()
        >>> scored = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels)
        >>> evaluation_page(evaluate(scored, draws=50), dataset).title
        'Evaluation of model'
    """
    judged = f"{plural(evaluation.num_pictures, 'picture')} of {evaluation.dataset}"
    subtitle = f"{judged}, {plural(len(evaluation.labels), 'label')}"
    page = Page(f"Evaluation of {evaluation.model}", subtitle=subtitle)
    return page.add(*evaluation_headline(evaluation), *evaluation_details(evaluation, dataset))


def evaluation_headline(evaluation: Evaluation) -> list[Part]:
    """Return what a reader should see first: key figures, and what to know before trusting them.

    Examples:
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> scored = ScoredImages.from_arrays([[0.9, 0.2]], [[1, 0]], labels=["cat", "dog"])
        >>> type(evaluation_headline(evaluate(scored, draws=0))[0]).__name__
        'Tiles'
    """
    return [_key_figures(evaluation), *_notes(evaluation)]


def evaluation_details(evaluation: Evaluation, dataset: ImageDataset, *, draw: DrawImage | None = None) -> list[Part]:
    """Return the rest: all measures, labels, confusions, hard cases and pictures.

    Args:
        evaluation: What `evaluate` found.
        dataset: The data set that it was found on; a few of its pictures are read again.
        draw: Makes the thumbnails; plain ones when left out.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> dataset = scenes(4)
        >>> targets, _ = dataset.targets.dense()
        >>> scored = ScoredImages.from_arrays(0.8 * targets + 0.1, targets, labels=dataset.labels)
        >>> evaluation_details(evaluate(scored, draws=0), dataset)[0]
        Heading(text='All measures', level=2)
    """
    return [
        *_measures(evaluation),
        *_labels(evaluation),
        *_confusions(evaluation, dataset),
        *_groups(evaluation),
        *_pictures(evaluation, dataset, draw or (lambda result, words: thumbnail(dataset, result.index, words))),
        _explanation(evaluation),
    ]


def _key_figures(evaluation: Evaluation) -> Tiles:
    names = [name for name in _KEY_FIGURES if name in evaluation.measures]
    return Tiles(
        [
            Tile(number(evaluation.measures[name].value), MEASURES[name].title, interval(evaluation.measures[name]))
            for name in names
        ]
    )


def _notes(evaluation: Evaluation) -> Iterator[Part]:
    if evaluation.bad:
        bad = [f"{picture.name} ({picture.reason})" for picture in evaluation.bad]
        yield Note(f"{plural(len(bad), 'picture')} could not be judged: {some(bad, at_most=5)}.", kind="warning")
    if evaluation.left_out:
        names = some(evaluation.left_out)
        yield Note(
            f"No picture has {names}, so that {plural(len(evaluation.left_out), 'label')} cannot be judged and "
            "count in no mean over labels.",
            kind="warning",
        )
    few = [label.display_name for label in evaluation.labels if 0 < label.positives < _FEW_POSITIVES]
    if few:
        yield Note(
            f"{plural(len(few), 'label')} with fewer than {_FEW_POSITIVES} pictures, of which little can be said: "
            f"{some(few)}.",
            kind="note",
        )
    if evaluation.single_label:
        yield Note("The model names one label of each picture: the one with the highest score counts as predicted.")
    elif not evaluation.has_thresholds:
        yield Note("The model brought no thresholds of its own: a score of 50 % or more counts as predicted.")
    yield from (Note(note) for note in evaluation.notes)


def _measures(evaluation: Evaluation) -> Iterator[Part]:
    yield Heading("All measures")
    rows: list[list[Cell]] = [
        [
            MEASURES[name].title,
            shown(value.value, measure=name),
            interval(value, measure=name),
            "higher" if MEASURES[name].higher_is_better else "lower",
            MEASURES[name].meaning,
        ]
        for name, value in evaluation.measures.items()
        if name.removesuffix("@3") not in _DECISIONS
    ]
    yield Table(["measure", "value", "95 % interval", "better", "what it says"], rows)
    rule, words = (
        ("top 1", "the highest score") if evaluation.single_label else ("thresholds", "what reaches its threshold")
    )
    decisions: list[list[Cell]] = [
        [what, *(with_interval(evaluation.measures[f"{name}{suffix}"]) for name in _DECISIONS)]
        for what, suffix in ((rule, ""), ("top 3", "@3"))
    ]
    caption = (
        "Precision (P), recall (R) and F1 in per cent with 95 % intervals: means over labels (C) and over all labels "
        f"together (O), of {words}, and of the three highest scores of each picture."
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
    caption = "Every label, the worst first."
    if len(ranked) > _MOST_ROWS:
        caption = f"The {_MOST_ROWS:,} worst of {len(ranked):,} labels."
    columns = ["label", "pictures", "average precision", "95 % interval", "precision", "recall", "F1"]
    rows = [_row(label) for label in ranked[:_MOST_ROWS]]
    if evaluation.has_thresholds:
        columns.append("threshold")
        rows = [[*row, round(label.threshold, 3)] for row, label in zip(rows, ranked, strict=False)]
    yield Table(columns, rows, caption=caption)


def _row(label: LabelResult) -> list[Cell]:
    if label.average_precision is None:
        return [label.display_name, 0, None, "", None, None, None]
    decisions = [Share(value) for value in (label.precision, label.recall, label.f1)]
    return [label.display_name, label.positives, Share(label.value), interval(label.average_precision), *decisions]


def _confusions(evaluation: Evaluation, dataset: ImageDataset) -> Iterator[Part]:
    yield Heading("Confusions that matter")
    if not evaluation.confusions:
        yield Text("In no two pictures was the same label missed while the same other one was invented.")
        return
    yield Text(
        "Pictures in which a label that is there was missed while one that is not was predicted, sorted by how many "
        "more there are than if the two had nothing to do with each other."
    )
    display = dataset.labels.display
    rows: list[list[Cell]] = [
        [display(pair.missed), display(pair.invented), pair.count, Share(pair.share), Share(pair.usual_share)]
        for pair in evaluation.confusions
    ]
    yield Table(["missed", "invented", "pictures", "of the missed", "of other pictures"], rows)


def _groups(evaluation: Evaluation) -> Iterator[Part]:
    if not evaluation.by_count:
        return
    yield Heading("Hard cases")
    counts, sizes = evaluation.by_count, evaluation.by_size
    what = "recall, in per cent"
    figures: list[Part] = [
        draw_groups(
            [f"{group.name} ({group.pictures:,})" for group in counts],
            [group.recall for group in counts],
            what=what,
            caption="Recall by the number of labels that a picture has; in brackets, how many pictures have so many.",
        )
    ]
    if sizes:
        small, medium = (f"{100 * limit:.2g} %" for limit in SIZE_LIMITS)
        caption = (
            f"Recall by the size of a label's largest object: small is below {small} of the picture, medium below "
            f"{medium}. In brackets, how many there are."
        )
        names = [f"{group.name} ({group.positives:,})" for group in sizes]
        figures.append(draw_groups(names, [group.recall for group in sizes], what=what, caption=caption))
    yield Columns(figures)
    yield _count_table(evaluation)
    if sizes:
        yield _size_table(evaluation)


def _count_table(evaluation: Evaluation) -> Table:
    rows: list[list[Cell]] = [
        [group.name, group.pictures, *map(with_interval, (group.precision, group.recall, group.f1, group.ranking_loss))]
        for group in evaluation.by_count
    ]
    columns = ["pictures with", "pictures", "precision", "recall", "F1", "ranking loss"]
    return Table(columns, rows, caption="By the number of labels in a picture; per cent, with 95 % intervals.")


def _size_table(evaluation: Evaluation) -> Table:
    rows: list[list[Cell]] = [
        [group.name, group.positives, *map(with_interval, (group.recall, group.mean_average_precision))]
        for group in evaluation.by_size
    ]
    caption = "By size; per cent, with 95 % intervals. The mAP of a size leaves out positives of other sizes."
    return Table(["size", "picture x label", "recall", "mAP"], rows, caption=caption)


def _pictures(evaluation: Evaluation, dataset: ImageDataset, draw: DrawImage) -> Iterator[Part]:
    yield Heading("Pictures")
    for results, title in (
        (evaluation.worst, "Understood worst: scores furthest from the truth"),
        (evaluation.best, "Understood best, of pictures that have labels"),
    ):
        yield Pictures([draw(result, _caption(result, dataset)) for result in results], title=title)


def _caption(result: ImageResult, dataset: ImageDataset) -> str:
    parts = {"found": result.found, "missed": result.missed, "invented": result.invented}
    words = [f"{what} {describe_tags(tags, dataset.labels)}" for what, tags in parts.items() if tags]
    return f"{result.name}: {'; '.join(words) or 'nothing there, nothing predicted'}"


def _explanation(evaluation: Evaluation) -> Section:
    if not evaluation.draws:
        return Section("About the intervals", [Text("There are none: the bootstrap was switched off.")])
    sentences: Sequence[str] = (
        f"Pictures were drawn again {evaluation.draws:,} times, with replacement and as many as there are, and "
        "everything was measured again each time (seed "
        f"{evaluation.seed}). 95 % of the values so found lie in the interval.",
        "A drawn set holds copies of pictures, which flatters the average precision of rare labels; the draws were "
        "moved so that their mean is the measured value. The interval says how much a value would vary over other sets "
        "of as many pictures of the same kind. It says nothing about pictures of another kind, nor about training the "
        "model again.",
        "Where not one mistake was seen, the interval has no width: drawing the same pictures again cannot show "
        "mistakes that are not among them.",
    )
    return Section("About the intervals", [Text(sentence) for sentence in sentences])
