"""Report of finished runs as one self-contained HTML page: training, results and errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from PIL import Image

from manylabel.errors import ImageError, MissingExtraError
from manylabel.evaluation import MEASURES, Comparison, compare
from manylabel.evaluation.comparison_page import comparison_parts
from manylabel.evaluation.evaluation_page import DrawImage, evaluation_details, evaluation_headline, thumbnail
from manylabel.evaluation.results import ImageResult
from manylabel.explain import draw_experts, expert_load, explain, mixup_scale
from manylabel.heads.traits import as_expert_head, as_mixup_head
from manylabel.images import decode
from manylabel.labelgraph import LabelGraph, draw_graph, partition_labels
from manylabel.page import (
    INK,
    Cell,
    Columns,
    Figure,
    Heading,
    Note,
    Page,
    Part,
    Section,
    Table,
    Text,
    Thumbnail,
    Tile,
    Tiles,
    plural,
    some,
)
from manylabel.runs.evaluation import EvaluatedRun
from manylabel.runs.run import Run
from manylabel.runs.training import draw_curves, facts_table, settings_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["heat_thumbnails", "report_page"]

_MOST_SUBSETS = 5
_MOST_TILES = 6
_MOST_ROWS = 20
_IMAGES = 128  # run through a head again to inspect it
_HEIGHT, _GAP = 112, 3  # of thumbnails, in pixels
_MAP = MEASURES["mAP"]


def report_page(
    runs: Sequence[EvaluatedRun],
    *,
    failed: Mapping[str, tuple[Run, str]] | None = None,
    draw: Callable[[EvaluatedRun], DrawImage] | None = None,
) -> Page:
    """Show finished runs as a page.

    Args:
        runs: The runs; the one with the highest mAP is compared with each of the others.
        failed: Runs that could not be evaluated and the reason, by name; only curves and settings are shown.
        draw: Returns the function that draws the thumbnails of a run (default: plain thumbnails).

    Returns:
        The page; under 10 MB for a handful of runs with any number of labels.
    """
    known = [*(each.run for each in runs), *(run for run, _ in (failed or {}).values())]
    title = f"Run {known[0].name}" if len(known) == 1 else f"{len(known)} runs"
    return Page(title, subtitle=_subtitle(runs)).add(
        *_headline(runs),
        *(Note(f"{name} could not be evaluated: {why}", kind="warning") for name, (_, why) in (failed or {}).items()),
        *_training(runs, known),
        *_results(runs, draw),
        *_graphs(runs),
        Heading("Settings and environment"),
        *settings_parts(known),
    )


def heat_thumbnails(run: EvaluatedRun) -> DrawImage:
    """Return a function that draws an image with the heat map of its worst error, or of a correct label.

    Args:
        run: The run; its model explains the images.
    """

    def draw(result: ImageResult, caption: str) -> Thumbnail:
        tags = [*result.missed, *result.invented, *result.found]
        try:
            if tags:
                return _with_heat_map(run, result.index, tags[0].label, caption)
        except (ImageError, OSError, MissingExtraError):
            pass
        return thumbnail(run.val, result.index, caption)

    return draw


def _with_heat_map(run: EvaluatedRun, index: int, label: str, caption: str) -> Thumbnail:
    images = run.val.images
    [found] = explain(run.model, decode(images[index], name=images.name(index)), labels=label)
    sides = [found.image.convert("RGB"), found.overlay()]
    for side in sides:
        side.thumbnail((2 * _HEIGHT, _HEIGHT))
    both = Image.new("RGB", (2 * sides[0].width + _GAP, sides[0].height), "white")
    both.paste(sides[0], (0, 0))
    both.paste(sides[1], (sides[0].width + _GAP, 0))
    encoded = io.BytesIO()
    both.save(encoded, "JPEG", quality=72, optimize=True)
    return Thumbnail(encoded.getvalue(), f"{caption}. Right: heat map of {run.val.labels.display(label)}")


def _subtitle(runs: Sequence[EvaluatedRun]) -> str:
    kinds = {(each.val.name, len(each.val), len(each.val.labels)) for each in runs}
    return "; ".join(
        f"{plural(count, 'validation image')} of {name}, {plural(labels, 'label')}"
        for name, count, labels in sorted(kinds)
    )


def _headline(runs: Sequence[EvaluatedRun]) -> list[Part]:
    if len(runs) == 1:
        return evaluation_headline(runs[0].evaluation)
    return [*_comparisons(sorted(runs, key=lambda each: -each.evaluation.measures["mAP"].value))] if runs else []


def _comparisons(runs: Sequence[EvaluatedRun]) -> Iterator[Part]:
    """Compare the best run, which comes first, with each of the others."""
    best, *others = runs
    is_same = len({(each.scored.names, each.scored.labels.names) for each in runs}) == 1
    draws, seed = best.evaluation.draws, best.evaluation.seed
    comparisons = [compare(each.scored, best.scored, draws=draws, seed=seed) for each in others] if is_same else []
    if len(comparisons) == 1:
        yield from comparison_parts(comparisons[0], best.val)
        return
    estimates = [(each, each.evaluation.measures["mAP"]) for each in runs[:_MOST_TILES]]
    yield Tiles(
        [Tile(_MAP.number(value.value), f"mAP of {each.run.name}", _MAP.interval(value)) for each, value in estimates]
    )
    if not is_same:
        text = "The runs have different validation images or labels, so their results are not comparable."
        yield Note(text, kind="warning")
    yield from _verdicts(best.run.name, comparisons)
    yield _measures(runs)
    for comparison in comparisons:
        title = f"{comparison.second} against {comparison.first}"
        yield Section(title, comparison_parts(comparison, best.val))


def _verdicts(best: str, comparisons: Sequence[Comparison]) -> Iterator[Part]:
    """Report which runs the best one significantly outperforms."""
    words: dict[bool, list[str]] = {True: [], False: []}
    for comparison in comparisons:
        change = comparison.measures["mAP"]
        difference = f"{_MAP.number(change.difference.value, signed=True)}, "
        difference += _MAP.interval(change.difference, signed=True)
        if change.p_value is not None:
            words[change.verdict == "better"].append(f"{comparison.first} ({difference})")
    if words[True]:
        yield Note(f"{best} has a significantly higher mAP than {some(words[True])}.", kind="good")
    if words[False]:
        yield Note(
            f"{best} does not have a significantly higher mAP than {some(words[False])}: the interval of the "
            "difference includes 0."
        )


def _measures(runs: Sequence[EvaluatedRun]) -> Table:
    names = [name for name in MEASURES if all(name in each.evaluation.measures for each in runs)]
    rows: list[list[Cell]] = [
        [
            MEASURES[name].title,
            *(MEASURES[name].with_interval(each.evaluation.measures[name]) for each in runs),
            "higher" if MEASURES[name].higher_is_better else "lower",
        ]
        for name in names
    ]
    columns = ["measure", *(each.run.name for each in runs), "better"]
    return Table(columns, rows, caption="In per cent with 95 % intervals.")


def _training(evaluated: Sequence[EvaluatedRun], runs: Sequence[Run]) -> Iterator[Part]:
    yield Heading("Training")
    if evaluated:
        yield facts_table(evaluated)
    figures = draw_curves(runs)
    yield Columns(figures) if figures else Text("No curves: no epoch was completed.")


def _results(runs: Sequence[EvaluatedRun], draw: Callable[[EvaluatedRun], DrawImage] | None) -> Iterator[Part]:
    for each in runs:
        parts = evaluation_details(each.evaluation, each.val, draw=None if draw is None else draw(each))
        parts += _head_parts(each)
        if len(runs) == 1:
            yield from parts
        else:
            yield Section(f"{each.run.name} in detail", [*evaluation_headline(each.evaluation), *parts])


def _head_parts(run: EvaluatedRun) -> Iterator[Part]:
    """Show the expert or layer weights of a head that has them."""
    head = run.model.head
    if as_expert_head(head):
        load = expert_load(run.model, run.val, limit=_IMAGES)
        yield Heading("Experts")
        yield Note(load.in_words(), kind="warning" if load.dead else "good")
        caption = (
            f"Mean weight of each expert for each label over {plural(load.num_images, 'image')}, on a log scale. "
            "The last row is the mean over labels, the last column each label's own expert."
        )
        yield Figure(_in_page_ink(draw_experts(load)), caption)
    if as_mixup_head(head):
        scale = mixup_scale(run.model, run.val, limit=_IMAGES)
        yield Heading("Weight of earlier layers")
        yield Note(scale.in_words())
        yield Table(
            ["label", "alpha"],
            [[name, f"{value:.3g}"] for name, value in scale.by_label[:_MOST_ROWS]],
            caption="Mean weight of the earlier layers over the images of a label, largest first.",
        )


def _graphs(runs: Sequence[EvaluatedRun]) -> Iterator[Part]:
    """Draw the label co-occurrence graph, once per training set."""
    seen = set()
    for each in runs:
        train = each.train
        if (key := (train.name, len(train), train.labels.names)) in seen or len(train.labels) < 3:
            continue
        seen.add(key)
        graph = LabelGraph.from_targets(train.targets, train.labels)
        subsets = min(_MOST_SUBSETS, len(train.labels) - 1)
        drawing = draw_graph(graph, [partition_labels(graph, subsets)])
        yield Heading("Co-occurrence of labels")
        caption = f"Label co-occurrence in {plural(len(train), 'training image')} of {train.name}."
        yield Figure(_in_page_ink(drawing), caption)


def _in_page_ink(drawing: Drawing) -> Drawing:
    """Give the text of a drawing the text colour of the page, which depends on light or dark mode."""
    from matplotlib.text import Text as DrawnText

    for text in drawing.findobj(DrawnText):
        if isinstance(text, DrawnText) and text.get_color() != "white":
            text.set_color(INK)
    return drawing
