"""Finished runs as one self-contained page: what was trained on what, how good it is, and where it goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from manylabel.evaluation.pages import DrawImage, evaluation_details, evaluation_headline
from manylabel.evaluation.pages.words import plural
from manylabel.labelgraph import LabelGraph, draw_graph, partition_labels
from manylabel.page import Columns, Figure, Heading, Note, Page, Part, Section, Text
from manylabel.runs.facts import facts_table, settings_parts
from manylabel.runs.insides import follow_page, head_parts
from manylabel.runs.judging import JudgedRun
from manylabel.runs.plots import draw_curves
from manylabel.runs.run import Run
from manylabel.runs.side_by_side import side_by_side

__all__ = ["report_page"]

_MOST_SUBSETS = 5


def report_page(
    runs: Sequence[JudgedRun],
    *,
    unjudged: Mapping[str, tuple[Run, str]] | None = None,
    draw: Callable[[JudgedRun], DrawImage] | None = None,
    pairs: Sequence[tuple[str, str]] = (),
) -> Page:
    """Show finished runs as a page.

    Args:
        runs: The runs, judged; the best is what the others are compared with.
        unjudged: Runs that could not be judged, by name, and why; their curves and settings are shown.
        draw: Makes what makes the thumbnails of a run; plain ones when left out.
        pairs: Labels to put against each other, where there are several runs; those most often confused when left out.

    Returns:
        The page; under 10 MB, whatever the number of labels, for a handful of runs.
    """
    told = [*(judged.run for judged in runs), *(run for run, _ in (unjudged or {}).values())]
    return Page(_title(told), subtitle=_subtitle(runs)).add(
        *_headline(runs, pairs),
        *(Note(f"{name} could not be judged: {why}", kind="warning") for name, (_, why) in (unjudged or {}).items()),
        *_training(runs, told),
        *_results(runs, draw),
        *_graphs(runs),
        Heading("Settings and environment"),
        *settings_parts(told),
    )


def _title(runs: Sequence[Run]) -> str:
    return f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs side by side"


def _subtitle(runs: Sequence[JudgedRun]) -> str:
    kinds = {(judged.held_out.name, len(judged.held_out), len(judged.held_out.labels)) for judged in runs}
    described = [
        f"{plural(count, 'held-out picture')} of {name}, {plural(labels, 'label')}"
        for name, count, labels in sorted(kinds)
    ]
    return "; ".join(described)


def _headline(runs: Sequence[JudgedRun], pairs: Sequence[tuple[str, str]]) -> list[Part]:
    if not runs:
        return []
    return evaluation_headline(runs[0].evaluation) if len(runs) == 1 else side_by_side(runs, pairs=pairs)


def _training(judged: Sequence[JudgedRun], runs: Sequence[Run]) -> Iterator[Part]:
    yield Heading("What was trained on what")
    if judged:
        yield facts_table(judged)
    figures = draw_curves(runs)
    if figures:
        yield Columns(figures)
    else:
        yield Text("No epoch was finished, so there are no curves.")


def _results(runs: Sequence[JudgedRun], draw: Callable[[JudgedRun], DrawImage] | None) -> Iterator[Part]:
    for judged in runs:
        parts = evaluation_details(judged.evaluation, judged.held_out, draw=None if draw is None else draw(judged))
        parts += head_parts(judged)
        if len(runs) == 1:
            yield from parts
        else:
            yield Section(f"{judged.run.name} in detail", [*evaluation_headline(judged.evaluation), *parts])


def _graphs(runs: Sequence[JudgedRun]) -> Iterator[Part]:
    """Draw which labels come together, once for each set of training pictures."""
    seen = set()
    for judged in runs:
        train = judged.train
        if (key := (train.name, len(train), train.labels.names)) in seen or len(train.labels) < 3:
            continue
        seen.add(key)
        graph = LabelGraph.from_targets(train.targets, train.labels)
        subsets = min(_MOST_SUBSETS, len(train.labels) - 1)
        drawing = draw_graph(graph, [partition_labels(graph, subsets)])
        yield Heading("Which labels come together")
        yield Figure(follow_page(drawing), f"The labels of {plural(len(train), 'training picture')} of {train.name}.")
